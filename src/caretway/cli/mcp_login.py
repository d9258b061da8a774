"""`caretway mcp login SERVER` and `logout SERVER`: signs in to an MCP server with a browser, which is redirected to a
port of the loopback interface. For a browser on another machine, the user pastes the address of its last page.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from ..config import Settings, has_desktop
from ..processes.tasks import spawn
from .process import CommandFailed, remark, tell

if TYPE_CHECKING:
    from mcp.client.auth import AuthorizationCodeResult

    from ..mcp.definitions import Remote, ServerDefinition

PATIENCE_S: Final = 900.0
"""The time limit for the user."""
_CONNECTION_S: Final = 10.0
_MAX_LINE: Final = 16 * 2**10
_PATH: Final = "/callback"
_DONE: Final = "You are signed in. You can close this page."
_NOT_DONE: Final = "The server did not sign you in. The terminal says why."


async def login(settings: Settings, name: str, *, browser: bool) -> int:
    from ..upstream import mcp_sign_in, open_mcp_bridge

    definition, remote = _remote(settings, name)
    if remote.oauth is None:
        raise CommandFailed(f"{name} has `oauth = false` in its definition", "remove it there to sign in")
    if not remote.signs_in:
        raise CommandFailed(f"{name} uses the header Authorization of its definition", "remove it there to sign in")
    try:
        from ..mcp.oauth import SignInFailed, sign_in
    except ImportError as missing:
        from ..installation import install_command

        raise CommandFailed(
            "the `mcp` package is not installed, or is too old", f"run: {install_command('mcp')}"
        ) from missing
    kept = mcp_sign_in(settings, remote.url)
    try:
        async with Browser.listening(remote.oauth.callback_port, opens=browser and has_desktop()) as person:
            async with asyncio.timeout(PATIENCE_S):
                found = await sign_in(definition, person)
    except SignInFailed as failure:
        raise CommandFailed(f"{name}: {definition.hide(str(failure))}") from failure
    except TimeoutError:
        raise CommandFailed(f"nobody signed in within {PATIENCE_S / 60:g} minutes", "repeat the command") from None
    if found is None:
        tell([f"{name} asks for no sign-in."])
        return 0
    async with kept.locked():
        await kept.write(found)
    tell([f"Signed in to {name}. Stored in {kept.place}."])
    async with open_mcp_bridge(settings, only=name) as bridge:
        assert bridge is not None
        await bridge.tried(settings.mcp_connect_timeout, name)
        server = bridge.servers[name]
        if server.state.value != "connected":
            raise CommandFailed(f"but {name} cannot be used: {server.detail or server.state.value}")
        tell([f"It answers, with {len(server.tools)} tools."])
    return 0


async def logout(settings: Settings, name: str) -> int:
    from ..upstream import mcp_sign_in

    _, remote = _remote(settings, name)
    forgotten = await mcp_sign_in(settings, remote.url).forget()
    tell([f"Signed out of {name} on this machine." if forgotten else f"No sign-in is stored for {name}."])
    return 0


def _remote(settings: Settings, name: str) -> tuple[ServerDefinition, Remote]:
    from ..mcp.definitions import Remote
    from ..upstream import mcp_bridge

    bridge = mcp_bridge(settings, only=name)
    if bridge is None or name not in bridge.servers:
        unusable = next((one.problem for one in bridge.misfits if one.name == name), "") if bridge else ""
        raise CommandFailed(unusable or f"there is no MCP server {name}", "see: caretway mcp list")
    definition = bridge.servers[name].definition
    if not isinstance(definition.reached, Remote):
        raise CommandFailed(f"{name} is a program on this machine, which nobody signs in to")
    return definition, definition.reached


class Browser:
    """The user's browser, here or on another machine. Accepts only answers for this sign-in."""

    def __init__(self, *, opens: bool) -> None:
        self.redirect = ""
        self._opens = opens
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    @classmethod
    @asynccontextmanager
    async def listening(cls, port: int, *, opens: bool) -> AsyncIterator[Browser]:
        """Listens on the loopback interface while the block lasts. `port` 0 selects any free port."""
        browser = cls(opens=opens)
        try:
            server = await asyncio.start_server(
                lambda reader, writer: spawn(browser._connected(reader, writer), "browser"),
                "127.0.0.1",
                port,
                limit=_MAX_LINE,
            )
        except OSError as taken:
            raise CommandFailed(f"port {port} of 127.0.0.1 cannot be used: {taken.strerror}") from taken
        try:
            browser.redirect = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_PATH}"
            with _pasted_lines(browser._pasted):
                yield browser
        finally:
            server.close()

    async def visit(self, link: str, host: str) -> None:
        parts = urlsplit(link)
        self._state = parse_qs(parts.query).get("state", [""])[0]
        tell(["Open this link, on any machine, and sign in:", "", link, ""])
        if parts.hostname != host:
            tell([f"The sign-in is at {parts.hostname}. What it gives goes to {host}."])
        tell(
            [
                "Waiting for you to sign in. If the browser runs on another machine, it ends at a page that it cannot",
                f"open: paste the address of that page ({self.redirect}?...) here. Ctrl-C stops.",
            ]
        )
        if self._opens:
            import webbrowser

            with suppress(webbrowser.Error):  # the link is on the screen
                await asyncio.to_thread(webbrowser.open, link)

    async def answer(self) -> AuthorizationCodeResult:
        return await self._answer

    def _take(self, address: str) -> bool | None:
        """Whether the server signed the user in; None if the address does not belong to this sign-in."""
        from mcp.client.auth import AuthorizationCodeResult

        from ..mcp.oauth import SignInFailed, plain

        parts = urlsplit(address)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        mine = self._state and secrets.compare_digest(given.get("state", "").encode(), self._state.encode())
        if parts.path != _PATH or not mine or self._answer.done():
            return None
        if "code" in given:
            self._answer.set_result(
                AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given.get("iss"))
            )
            return True
        why = ": ".join(filter(None, (given.get("error"), given.get("error_description"))))
        self._answer.set_exception(SignInFailed(f"it did not sign you in: {plain(why) or 'it gave no reason'}"))
        return False

    def _pasted(self, line: str) -> None:
        try:
            taken = self._take(line)
        except ValueError:
            taken = None
        if taken is None and line:
            remark([f"this is not the address of the page that this sign-in ends at ({self.redirect}?...)"])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request of any browser or program; reads only its first line."""
        try:
            async with asyncio.timeout(_CONNECTION_S):
                words = (await reader.readline()).decode("latin-1").split()
                taken = self._take(words[1]) if len(words) == 3 and words[0] == "GET" else None
                status = "404 Not Found" if taken is None else "200 OK"
                text = {True: _DONE, False: _NOT_DONE, None: "Not found."}[taken].encode()
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
                head += "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + text)
                await writer.drain()
        except (TimeoutError, OSError, ValueError):  # after a broken request, the browser is still expected
            pass
        finally:
            writer.close()


@contextmanager
def _pasted_lines(take: Callable[[str], None]) -> Iterator[None]:
    """Reads lines of standard input in the background, if it is a terminal or a pipe."""
    loop = asyncio.get_running_loop()
    waiting = bytearray()

    def read() -> None:
        data = os.read(number, _MAX_LINE)
        if not data:
            loop.remove_reader(number)
        waiting.extend(data)
        *lines, rest = bytes(waiting).split(b"\n")
        waiting[:] = rest[-_MAX_LINE:]
        for line in lines:
            take(line.decode("utf-8", "replace").strip())

    try:
        number = sys.stdin.fileno()
        loop.add_reader(number, read)
    except (OSError, ValueError):  # a file or closed input: only the browser can answer
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(number)
