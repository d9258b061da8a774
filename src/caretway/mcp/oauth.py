"""OAuth with the SDK's client: sign-in by a person, and its use and renewal by an unattended gateway. Imports the SDK,
so it is imported late.

The SDK implements the protocol: metadata of resource and authorization server, registration, PKCE, state, issuer,
resource indicators. Its requests go through `OAuthRequests`, which bounds them and refuses addresses that a hostile
server could abuse. Nothing here opens a browser, and no sign-in is sent to a server that it does not belong to.
"""

import asyncio
import logging
import re
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final, Protocol

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types import LATEST_PROTOCOL_VERSION
from msgspec.structs import replace

from .. import __version__
from ..core.addresses import is_public
from ..core.errors import GatewayError
from ..processes.tasks import spawn
from .definitions import Remote, ServerDefinition, is_loopback
from .sign_ins import TOKEN, McpSignIn, SignInFile, SignInNeeded, SignInState, ends_at

log = logging.getLogger(__name__)

ANSWER_S: Final = 20.0
"""Seconds for one answer about a sign-in, from the name lookup to the last byte."""
MAX_ANSWER: Final = 128 * 2**10
"""Bytes of one answer."""
MAX_TOKEN: Final = 12_000
"""Characters of one token: it goes into the head of every request, which servers limit to 16 KiB."""
MAX_RENEWALS: Final = 10
RENEWALS_S: Final = 60.0
"""Seconds in which at most `MAX_RENEWALS` renewals are requested, for servers whose tokens expire at once."""
AGAIN_S: Final = 10.0
"""Seconds before the next renewal after one that failed without a refusal."""
MAX_LINK: Final = 8_000
"""Characters of the link to a sign-in: it is printed, and servers accept no longer links."""
_CODE: Final = re.compile(r"[a-z_]{1,60}")
_HIDDEN: Final = "***"


class SignInFailed(Exception):
    """A sign-in or a renewal failed. The text is one sentence about what the server did."""


class SignInRefused(SignInFailed):
    """The server refused the request: a retry does not help."""


class Person(Protocol):
    """The person who signs in, in a browser."""

    redirect: str
    """The address to which the sign-in redirects the browser."""

    async def visit(self, link: str, host: str) -> None:
        """Show the link. `host` is the host of the MCP server that gets the sign-in."""
        ...

    async def answer(self) -> AuthorizationCodeResult:
        """The result that the browser brings to `redirect`."""
        ...


# ---- requests


class OAuthRequests:
    """Sends OAuth requests, bounded in time and size, and only to addresses that `misplaced` permits."""

    def __init__(self, server: str) -> None:
        self._server = httpx2.URL(server)

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """The whole answer. Raises SignInFailed. A redirect is an answer: the SDK follows it within its origin."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._check(request.url)
                response = await self._send(request)
        except TimeoutError as late:
            raise SignInFailed(f"{_place(request.url)} did not answer within {ANSWER_S:g} s") from late
        except httpx2.HTTPError as failure:
            raise SignInFailed(f"{_place(request.url)} cannot be reached: {plain(_words(failure))}") from failure
        follows = response.next_request
        leads_away = follows is not None and (follows.method != "POST" or _origin(follows.url) != _origin(request.url))
        if request.method == "POST" and (response.status_code >= 400 or leads_away):
            raise _refusal(request, response)
        return response

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        body = bytearray()
        async with httpx2.AsyncClient(trust_env=not is_loopback(request.url.host)) as http:
            response = await http.send(request, stream=True)
            try:
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise SignInFailed(f"{_place(request.url)} sends compressed data that was not asked for")
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > MAX_ANSWER:
                        raise SignInFailed(f"{_place(request.url)} sends more than {MAX_ANSWER} bytes")
            finally:
                await response.aclose()
        whole = httpx2.Response(response.status_code, headers=response.headers, content=bytes(body), request=request)
        whole.next_request = response.next_request
        return whole

    async def _check(self, url: httpx2.URL) -> None:
        found = await asyncio.gather(_addresses(url), _addresses(self._server))
        if why := misplaced(url, self._server, *found):
            raise SignInFailed(why)


def misplaced(url: httpx2.URL, server: httpx2.URL, addresses: Iterable[str], of_server: Iterable[str]) -> str:
    """Why `server` may not make the gateway send a request to `url`; empty if it may. Only servers on this machine may
    be reached without TLS, and a public server may not lead to a private address."""
    inside = is_loopback(server.host)
    if url.scheme != "https" and not (inside and is_loopback(url.host)):
        return f"{_place(url)} is not an https address, and others could read the sign-in"
    if _origin(url) == _origin(server) or inside or not all(map(is_public, of_server)):
        return ""
    if not all(map(is_public, addresses)):
        return f"it leads to {_place(url)}, which is not a public address"
    return ""


async def _addresses(url: httpx2.URL) -> list[str]:
    """The addresses of the host; empty if its name does not resolve, because a proxy may resolve it."""
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(url.host, url.port or 443, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(row[4][0]) for row in rows]


def _refusal(request: httpx2.Request, response: httpx2.Response) -> SignInFailed:
    """The refusal without its body, because a server may repeat secrets from the request."""
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        answer = None
    code = answer.get("error") if isinstance(answer, dict) else None
    known = f", {code}" if isinstance(code, str) and _CODE.fullmatch(code) else ""
    what = f"{_place(request.url)} answered HTTP {response.status_code}{known}"
    if response.next_request is not None:
        what += f", a redirect to {_place(response.next_request.url)}, which is not followed"
    # 429 and server errors may pass: a later request may succeed
    return (SignInRefused if 400 <= response.status_code < 500 and response.status_code != 429 else SignInFailed)(what)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _place(url: httpx2.URL) -> str:
    return plain(f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}")


def plain(text: str) -> str:
    """A server's text, made safe for a terminal and a log."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:300]


# ---- the SDK's client


class _Held:
    """The SDK's storage. It stores nothing: `_Client.sign_in` takes the values from the SDK's context."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Raises SignInFailed for a token that no request can carry."""
        for token in filter(None, (tokens.access_token, tokens.refresh_token)):
            if len(token) > MAX_TOKEN:
                raise SignInFailed(f"it gave a token of {len(token)} characters; at most {MAX_TOKEN} are taken")
            if not TOKEN.fullmatch(token):
                raise SignInFailed("it gave a token with characters that no header can hold")

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


class _Client(OAuthClientProvider):
    """The SDK's client. OAuth requests go through `OAuthRequests`; httpx sends the request that needs a sign-in."""

    def __init__(self, url: str, held: _Held, person: Person | None = None) -> None:
        super().__init__(
            url,
            OAuthClientMetadata(
                # A client that only renews has no redirect, but the SDK requires one.
                redirect_uris=[person.redirect if person is not None else "http://127.0.0.1/callback"],  # type: ignore[list-item]
                client_name="Caretway",
                token_endpoint_auth_method="none",  # noqa: S106 - not a secret: there is none
            ),
            held,
            self._visit if person is not None else None,
            person.answer if person is not None else None,
        )
        self.context.protocol_version = LATEST_PROTOCOL_VERSION
        self._url = httpx2.URL(url)
        self._requests = OAuthRequests(url)
        self._person = person
        # The SDK logs data that it cannot read, including tokens. Its exceptions hold what is needed.
        logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super().async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is request:
                    response = yield outgoing
                    await _drop_body(response)
                    self._look_at_challenge(response)
                else:
                    response = await self._requests.send(outgoing)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _look_at_challenge(self, response: httpx2.Response) -> None:
        metadata_url = extract_resource_metadata_from_www_auth(response) if response.status_code in (401, 403) else None
        if metadata_url and _origin(self._url.join(metadata_url)) != _origin(self._url):
            raise SignInFailed(
                f"its metadata is to be at {_place(self._url.join(metadata_url))}, another server's address"
            )

    async def _visit(self, link: str) -> None:
        assert self._person is not None
        metadata, url = self.context.oauth_metadata, httpx2.URL(link)
        issuer = httpx2.URL(str(metadata.issuer)) if metadata is not None else self._url
        # Otherwise a server could send a person to another server's sign-in and receive its code.
        if _origin(url) not in (_origin(issuer), _origin(self._url)):
            raise SignInFailed(
                f"it wants a sign-in at {_place(url)}, which is neither its own address nor its issuer's"
            )
        if why := misplaced(url, self._url, (), ()):
            raise SignInFailed(why)
        if url.userinfo or len(link) > MAX_LINK:  # as in https://accounts.example@evil.example
            raise SignInFailed(f"its link to the sign-in at {_place(url)} has a user's name or is too long")
        await self._person.visit(link, self._url.host)

    async def renew(self, kept: McpSignIn) -> McpSignIn:
        """The renewed sign-in. Raises SignInFailed, and the SDK's exceptions for unreadable data."""
        context = self.context
        context.current_tokens = OAuthToken.model_validate(kept.tokens)
        context.client_info = OAuthClientInformationFull.model_validate(kept.client)
        context.oauth_metadata = OAuthMetadata.model_validate(kept.metadata) if kept.metadata else None
        context.protected_resource_metadata = (
            ProtectedResourceMetadata.model_validate(kept.resource) if kept.resource else None
        )
        request = await self._refresh_token()
        if not await self._handle_refresh_response(await self._requests.send(request)):
            raise SignInFailed(f"{_place(request.url)} sends no token that can be read")
        return self.sign_in()

    def sign_in(self) -> McpSignIn:
        """The sign-in from the finished flow. Raises SignInFailed."""
        context, now = self.context, time.time()
        tokens, client = context.current_tokens, context.client_info
        if tokens is None or not tokens.access_token or client is None:
            raise SignInFailed("it gave no token")
        return McpSignIn(
            url=str(context.server_url),
            tokens=tokens.model_dump(mode="json", exclude_none=True, exclude={"expires_in"}),
            client=client.model_dump(mode="json", exclude_none=True),
            metadata=_dumped(context.oauth_metadata),
            resource=_dumped(context.protected_resource_metadata),
            received_at=now,
            ends_at=ends_at(tokens.expires_in, now),
        )


def _dumped(model: OAuthMetadata | ProtectedResourceMetadata | None) -> dict[str, Any] | None:
    return model.model_dump(mode="json", exclude_none=True) if model is not None else None


async def _drop_body(response: httpx2.Response) -> None:
    """Drop the body of an answer whose request is repeated: httpx would read all of it, of any length."""
    if response.status_code in (401, 403):
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        await response.stream.aclose()
        response.stream = httpx2.ByteStream(b"")
        response.headers.pop("content-encoding", None)


# ---- the sign-in, by a person


_HELLO: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_PROTOCOL_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "caretway", "version": __version__},
    },
}


async def sign_in(definition: ServerDefinition, person: Person) -> McpSignIn | None:
    """Sign in to a server. Returns None if the server needs no sign-in. Raises SignInFailed."""
    reached = definition.reached
    assert isinstance(reached, Remote)
    assert reached.oauth is not None
    given: OAuthClientInformationFull | None = None
    if reached.oauth.client_id:
        given = OAuthClientInformationFull(
            client_id=reached.oauth.client_id,
            client_secret=reached.oauth.client_secret or None,
            redirect_uris=[person.redirect],  # type: ignore[list-item]
            token_endpoint_auth_method="client_secret_post" if reached.oauth.client_secret else "none",
        )
    client = _Client(reached.url, _Held(given), person)
    try:
        asks = await _ask(reached, client)
        return client.sign_in() if asks else None
    except SignInFailed:
        raise
    except Exception as failure:  # of the SDK, of httpx, of pydantic, about whatever the server wrote
        raise SignInFailed(plain(_words(failure))) from failure


async def _ask(reached: Remote, client: _Client) -> bool:
    """Send a first request. Returns whether the server required a sign-in, which `client` then holds."""
    url = httpx2.URL(reached.url)
    headers = {**reached.headers, "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(
        auth=client, headers=headers, timeout=ANSWER_S, trust_env=not is_loopback(url.host)
    ) as http:
        for method, hello in (("POST", _HELLO), ("GET", None)):  # servers of the older transport take no POST here
            async with http.stream(method, url, json=hello) as response:
                if response.status_code == 401:
                    raise SignInFailed("it does not accept the sign-in that it has just given (HTTP 401)")
                if client.context.current_tokens is not None or response.status_code not in (404, 405):
                    return client.context.current_tokens is not None
    return False


# ---- its use


class ServerSignIn(httpx2.Auth):
    """Adds the stored sign-in to the requests to one server, and renews it before it expires or when the server
    refuses it. Never raises and never asks a person: a refused request returns the server's answer, and `problem`
    returns the reason."""

    def __init__(self, definition: ServerDefinition, kept: SignInFile) -> None:
        self.state: SignInState = ""
        self._definition = definition
        self._file = kept
        self._kept: McpSignIn | None = None
        self._seen: object = self  # a value that `touched` never returns
        self._why = ""
        self._trouble = ""
        """Why the last renewal failed, if the server did not refuse it."""
        self._again_at = 0.0
        """The end of the pause after a failed renewal, on the loop's clock."""
        self._stored: McpSignIn | None = None
        self._unstored: McpSignIn | None = None
        """A renewed sign-in that could not be written."""
        self._renewing: asyncio.Task[McpSignIn | None] | None = None
        self._renewals: deque[float] = deque(maxlen=MAX_RENEWALS)

    def problem(self) -> SignInNeeded | None:
        """Why the server needs a sign-in; None if it does not."""
        if self.state in ("", "signed in"):
            return None
        seen = self._file.touched()
        return SignInNeeded(self.state, self._why, self._definition.login_command, lambda: self._file.changed(seen))

    def hide(self, text: str) -> str:
        for secret in self._kept.secrets() if self._kept is not None else ():
            text = text.replace(secret, _HIDDEN)
        return text

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        kept = first = await self._current()
        if kept is not None and kept.renewable and kept.due(time.time()):
            kept = await self._renewed(kept)
        response = yield _with(request, kept)
        if response.status_code == 401 and kept is not None and kept is first:
            kept = await self._renewed(kept)
            if kept is not None and kept.access_token != first.access_token:
                await _drop_body(response)
                response = yield _with(request, kept)
        self._note(response.status_code, kept)

    def _note(self, status: int, kept: McpSignIn | None) -> None:
        if status != 401:
            self.state, self._why = "signed in" if kept is not None else "", ""
        elif kept is None:
            self.state, self._why = "needed", "it wants a sign-in"
        elif kept.refused:
            self.state, self._why = "refused", f"it does not renew its sign-in ({kept.refused})"
        elif kept.over(time.time()):
            self.state, self._why = "expired", self._trouble or "its sign-in has expired"
        else:
            self.state = "refused"
            self._why = self._trouble or "it does not accept its sign-in any more (HTTP 401)"

    async def _current(self) -> McpSignIn | None:
        """The stored sign-in, read again only after a process has changed the file."""
        seen = self._file.touched()
        if seen != self._seen:
            try:
                self._kept, self._seen, self._trouble = await self._read(), seen, ""
            except GatewayError as unreadable:
                log.warning("%s", unreadable.message)
        return self._kept

    async def _read(self) -> McpSignIn | None:
        before, self._stored = self._stored, await self._file.read()
        if self._unstored is not None and self._stored == before:
            return self._unstored
        self._unstored = None
        return self._stored

    async def _renewed(self, used: McpSignIn) -> McpSignIn | None:
        """The sign-in that replaces `used`, or `used` if the renewal fails. One renewal serves all waiting requests
        and finishes even if they are cancelled, so that its answer is not lost."""
        if self._trouble and asyncio.get_running_loop().time() < self._again_at:
            return used
        if self._renewing is None or self._renewing.done():
            self._renewing = spawn(self._renew(used), "mcp-renewal")
        return await asyncio.shield(self._renewing)

    async def _renew(self, used: McpSignIn) -> McpSignIn | None:
        try:
            async with self._file.locked():
                kept = await self._read()  # another process, or another request, may have been faster
                if kept is not None and kept.access_token == used.access_token and kept.renewable:
                    kept = await self._ask_to_renew(kept)
            self._kept, self._trouble = kept, ""
        except Exception as failure:  # of the SDK, the disk, the server; the request is then sent as it is
            self._trouble = f"its sign-in was not renewed: {plain(self.hide(_words(failure)))}"
            self._again_at = asyncio.get_running_loop().time() + AGAIN_S
            log.warning("MCP server %s: %s", self._definition.name, self._trouble)
            return used
        return kept

    async def _ask_to_renew(self, kept: McpSignIn) -> McpSignIn:
        """Renew `kept` and write the result. The caller holds the lock."""
        loop = asyncio.get_running_loop()
        if len(self._renewals) == MAX_RENEWALS and loop.time() - self._renewals[0] < RENEWALS_S:
            raise SignInFailed(
                f"it was renewed {MAX_RENEWALS} times within {RENEWALS_S:g} s, and ends at once each time"
            )
        self._renewals.append(loop.time())
        try:
            renewed = await _Client(kept.url, _Held()).renew(kept)
        except SignInRefused as refused:
            renewed = _marked(kept, str(refused))
            log.warning("MCP server %s does not renew its sign-in: %s", self._definition.name, refused)
        try:
            await self._file.write(renewed)
        except GatewayError as failure:  # use it anyway: the server may no longer accept the previous token
            log.error(
                "MCP server %s: its sign-in as it is now is not stored: %s", self._definition.name, failure.message
            )
            self._unstored = renewed
        return renewed


def _marked(kept: McpSignIn, why: str) -> McpSignIn:
    return replace(kept, refused=why)


def _words(failure: BaseException) -> str:
    """The exception's text without the value that pydantic quotes, which may be a token."""
    return " ".join(str(failure).partition("[type=")[0].split()) or type(failure).__name__


def _with(request: httpx2.Request, kept: McpSignIn | None) -> httpx2.Request:
    if kept is not None:
        request.headers["authorization"] = f"Bearer {kept.access_token}"
    return request
