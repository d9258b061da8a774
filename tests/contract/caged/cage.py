"""Scripts in the cage of the SDK's process, or outside of it for comparison, and witnesses on this side of it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from caretway.backends.sdk.bridge import SdkInstall, egress, node_command

HERE: Final = Path(__file__).parent
PATIENCE_S: Final = 60.0


def installed() -> SdkInstall:
    import cursor_sdk

    vendor = (Path(cursor_sdk.__file__).parent / "_vendor" / "bridge").resolve()
    return SdkInstall(vendor / "bin" / "node", vendor / "node_modules")


@dataclass(slots=True)
class Witness:
    """A server that nobody may reach: it answers, and keeps what it hears."""

    port: int = 0
    heard: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(b"a connection")
        self.heard.append(await reader.read(2000))
        body = b"the witness's own words"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, heard: list[bytes]) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._heard.append(data)


@asynccontextmanager
async def witness() -> AsyncIterator[Witness]:
    """Listens on every address of this machine, IPv6 included where there is any, and for datagrams."""
    seen = Witness()
    server = await asyncio.start_server(seen.serve, None, 0)
    seen.port = server.sockets[0].getsockname()[1]
    others = [
        await asyncio.start_server(seen.serve, sock.getsockname()[0], seen.port)
        for sock in server.sockets[1:]
        if sock.getsockname()[1] != seen.port
    ]
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(seen.heard), ("127.0.0.1", seen.port))
    try:
        yield seen
    finally:
        datagrams.close()
        for each in (server, *others):
            each.close()


class Caged:
    """One script's process: lines in, JSON lines out."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError((await self.process.stderr.read()).decode("utf-8", "replace")[-2000:])
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def ask(self, prompt: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(prompt).encode() + b"\n")
        told = await self.hear()
        return str(told["text"] or told["error"])


@asynccontextmanager
async def caged(
    script: str,
    root: Path,
    urls: list[str],
    *words: str,
    domains: tuple[str, ...] = (),
    free: bool = False,
    programs: Path | None = None,
) -> AsyncIterator[Caged]:
    """In `root`, which exists. `free`: without guard and permissions, with a `PATH` that begins with `programs`."""
    allowed = egress(urls, stand_in=True) | {"domains": list(domains)}
    command = node_command(installed(), root, allowed, backend_url=urls[0], script=HERE / script)
    argv, environment = list(command.argv), dict(command.environment)
    if free:
        held = ("--permission", "--allow-", "--import")
        argv = [word for word in argv if not word.startswith(held)]
        environment |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        environment |= dict.fromkeys(("HOME", "TMPDIR", "CURSOR_DATA_DIR"), str(root))
    piped = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, *words, cwd=root, env=environment, stdin=piped, stdout=piped, stderr=piped
    )
    try:
        yield Caged(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
