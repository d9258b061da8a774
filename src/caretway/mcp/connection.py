"""One connection to one MCP server through the SDK: stdio, or streamable HTTP with SSE as the fallback. Reads all pages
of tools/list and sets a flag after tools/list_changed or a lost transport; `servers.py` acts on the flag.

The SDK is an optional extra and slow to import, so it is imported only when there is a server to reach.
"""

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from .. import __version__
from ..installation import install_command
from ..processes.child import Child
from ..processes.tasks import spawn
from .definitions import BridgeLimits, Process, Remote, ServerDefinition, is_loopback
from .sign_ins import SignInFile, SignInState
from .stdio import server_environment, stdio_streams
from .tools import ListedTool

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp.client._transport import TransportStreams
    from mcp_types import CallToolResult, Tool

    from .oauth import ServerSignIn

log = logging.getLogger(__name__)

_FOREVER: Final = 86_400.0
"""Read timeout of a remote server's stream: an idle stream stays open, and calls have their own time limits."""

Progress = Callable[[], None]


Connector = Callable[[ServerDefinition], AbstractAsyncContextManager["McpConnection"]]


class Unreachable(Exception):
    """A server cannot be used; the text says why."""


class McpConnection:
    def __init__(self, limits: BridgeLimits, auth: "ServerSignIn | None" = None) -> None:
        self._auth = auth
        self.news = asyncio.Event()
        """Set if the list of tools may have changed or the connection may be lost."""
        self.lost: str | None = None
        self.left_out: Mapping[str, str] = {}
        """Unusable tools of the newest list -> the reason."""
        self._limits = limits
        self._client: Client | None = None

    @property
    def sign_in(self) -> SignInState:
        return self._auth.state if self._auth is not None else ""

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise a failure for lack of a sign-in as `SignInNeeded`, and hide tokens in other failures."""
        try:
            yield
        except Exception as failure:
            if self._auth is not None:
                if (problem := self._auth.problem()) is not None:
                    raise problem from failure
                if (hidden := self._auth.hide(words(failure))) != words(failure):
                    raise Unreachable(hidden) from None
            raise

    def use(self, client: "Client") -> None:
        self._client = client

    def ended(self, reason: str) -> None:
        self.lost = self.lost or reason
        self.news.set()

    async def notified(self, message: object) -> None:
        """Receives notifications and transport errors. The supervisor then asks for the list again."""
        if isinstance(message, Exception) or getattr(message, "method", "") == "notifications/tools/list_changed":
            self.news.set()

    def passes(self, item: Any) -> None:
        """Remove invalid tools from a message before the SDK reads it: one such tool would fail the whole list."""
        result = getattr(getattr(item, "message", None), "result", None)
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
            return
        result["tools"], left_out = sift(result["tools"])
        if left_out and left_out != self.left_out:
            log.warning("tools of an MCP server are left out: %s", "; ".join(f"{k}: {v}" for k, v in left_out.items()))
        self.left_out = left_out

    async def tools(self) -> list[ListedTool]:
        assert self._client is not None
        listed: dict[str, ListedTool] = {}
        cursor: str | None = None
        for _ in range(self._limits.max_pages):
            with self.explained():
                page = await self._client.list_tools(cursor=cursor)
            listed |= {tool.name: _listed(tool) for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None or len(listed) > self._limits.max_tools:
                break
        if len(listed) > self._limits.max_tools:
            log.warning("an MCP server lists more than %d tools; the rest is left out", self._limits.max_tools)
            self.left_out = {**self.left_out, "others": f"more than {self._limits.max_tools} tools"}
        return list(listed.values())[: self._limits.max_tools]

    async def call(self, tool: str, arguments: dict[str, Any], progressed: Progress) -> "CallToolResult":
        assert self._client is not None

        async def note(progress: float, total: float | None, message: str | None) -> None:
            progressed()

        with self.explained():
            return await self._client.call_tool(tool, arguments, progress_callback=note)

    async def follow_changes(self) -> None:
        """Subscribe to changes of the tool list, which newer servers report only to subscribers."""
        assert self._client is not None
        try:
            async with self._client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.news.set()
        except Exception as failure:  # without a subscription the list is requested from time to time
            log.debug("no subscription to changes of an MCP server: %s", failure)


def sift(tools: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """(usable tools, name of each unusable tool -> reason). A schema without a type becomes one of an object."""
    kept: list[Any] = []
    left_out: dict[str, str] = {}
    for number, tool in enumerate(tools, 1):
        schema = tool.get("inputSchema") if isinstance(tool, dict) else None
        if isinstance(schema, dict) and "type" not in schema:
            tool = {**tool, "inputSchema": {"type": "object", **schema}}
        reason = _problem(tool)
        if reason is None:
            kept.append(tool)
        else:
            name = tool.get("name") if isinstance(tool, dict) else None
            left_out[name if isinstance(name, str) and name else f"tool {number}"] = reason
    return kept, left_out


def _problem(tool: Any) -> str | None:
    """Why the tool cannot be used: the SDK would refuse it, or its schemas are not of objects."""
    from mcp_types import Tool
    from pydantic import ValidationError

    if not isinstance(tool, dict):
        return "it is not an object"
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        return "it has no name"
    if tool.get("inputSchema") is None:
        return "it has no inputSchema"
    for name in ("inputSchema", "outputSchema"):
        if tool.get(name) is not None and (problem := _schema_problem(tool[name])):
            return f"its {name} {problem}"
    try:
        Tool.model_validate(tool, by_name=False)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False)[0]
        return f"its {'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return None


def _schema_problem(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "is not an object"
    if schema.get("type") != "object":
        return "is not of type object"
    if not isinstance(schema.get("properties", {}), dict):
        return "has properties that are not an object"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        return "requires something that is not a list of names"
    return ""


def _listed(tool: "Tool") -> ListedTool:
    annotations = tool.annotations.model_dump(by_alias=True) if tool.annotations is not None else {}
    hints = tuple((name, value) for name, value in annotations.items() if isinstance(value, bool))
    return ListedTool(tool.name, tool.description or tool.title or "", tool.input_schema, hints)


def connector(
    environ: Mapping[str, str], limits: BridgeLimits, children: set[Child], open_sign_in: Callable[[str], SignInFile]
) -> Connector:
    """A function that opens connections with the SDK. Server processes get a small part of `environ`. `children`
    collects the running processes; `open_sign_in` opens the file with the sign-in for a URL."""
    sign_ins: dict[str, ServerSignIn] = {}

    def sign_in(definition: ServerDefinition, url: str) -> "ServerSignIn":
        from .oauth import ServerSignIn

        if definition.name not in sign_ins:
            sign_ins[definition.name] = ServerSignIn(definition, open_sign_in(url))
        return sign_ins[definition.name]

    @asynccontextmanager
    async def connect(definition: ServerDefinition) -> AsyncIterator[McpConnection]:
        await _load_sdk()
        reached = definition.reached
        if isinstance(reached, Process):
            connection = McpConnection(limits)
            environment = server_environment(reached, environ)
            streams = stdio_streams(reached, environment, limits, connection.ended, children)
            async with _session(connection, streams):
                yield connection
            return
        refusals: list[str] = []
        auth = sign_in(definition, reached.url) if reached.signs_in else None
        for transport in ("http", "sse") if reached.transport == "auto" else (reached.transport,):
            connection = McpConnection(limits, auth)
            stack = AsyncExitStack()
            try:
                await stack.enter_async_context(_session(connection, _remote(reached, transport, limits, auth)))
            except Exception as failure:  # the other transport fails in its own way if the server is not there at all
                if auth is not None and (problem := auth.problem()) is not None:
                    raise problem from failure
                refusals.append(f"{transport}: {auth.hide(words(failure)) if auth is not None else words(failure)}")
                continue
            async with stack:
                yield connection
            return
        raise Unreachable("; ".join(refusals))

    return connect


async def _load_sdk() -> None:
    """Import the SDK in a thread: the import takes about a second, and streams must continue meanwhile."""
    try:
        await asyncio.to_thread(importlib.import_module, "mcp.client.client")
    except ImportError as missing:
        raise Unreachable(
            f"the `mcp` package is not installed, or is too old: run `{install_command('mcp')}`"
        ) from missing


@asynccontextmanager
async def _session(
    connection: McpConnection, streams: AbstractAsyncContextManager["TransportStreams"]
) -> AsyncIterator[None]:
    from mcp.client import Client
    from mcp_types import Implementation
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    client = Client(
        cast(Any, _Watched(streams, connection)),
        client_info=Implementation(name="caretway", version=__version__),
        message_handler=connection.notified,
        cache=None,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(client)
        except Exception as failure:  # raised again, or replaced by the process's own message
            if connection.lost is not None:  # more exact than "connection closed"
                raise Unreachable(connection.lost) from failure
            raise
        connection.use(client)
        following: asyncio.Task[None] | None = None
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            following = spawn(connection.follow_changes(), "mcp-changes")
        try:
            yield
        finally:
            if following is not None:
                following.cancel()


class _Watched:
    """A transport that reports its end; the SDK alone would not report it until the next call."""

    def __init__(self, streams: AbstractAsyncContextManager["TransportStreams"], connection: McpConnection) -> None:
        self._streams = streams
        self._connection = connection

    async def __aenter__(self) -> "TransportStreams":
        read, write = await self._streams.__aenter__()
        return cast(Any, _WatchedReader(read, self._connection)), write

    async def __aexit__(self, *exc: Any) -> bool | None:
        return await self._streams.__aexit__(*exc)


class _WatchedReader:
    def __init__(self, read: Any, connection: McpConnection) -> None:
        self._read = read
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read, name)

    def __aiter__(self) -> "_WatchedReader":
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._read.__anext__()
        except StopAsyncIteration:
            self._connection.ended("it closed the connection")
            raise
        self._connection.passes(item)
        return item

    async def __aenter__(self) -> "_WatchedReader":
        await self._read.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._read.__aexit__(*exc)


@asynccontextmanager
async def _remote(
    reached: Remote, transport: str, limits: BridgeLimits, auth: "ServerSignIn | None"
) -> AsyncIterator["TransportStreams"]:
    import httpx2

    # A proxy from the environment is for the outside world, never for this machine.
    trust_env = not is_loopback(urlsplit(reached.url).hostname or "")

    async def bound(response: httpx2.Response) -> None:
        """Limit the size of an answer that is not an event stream, because the SDK reads it whole."""
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = Bounded(response.stream)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise httpx2.DecodingError("it sends compressed data that was not asked for", request=response.request)

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = limits.message_bytes
            async for part in self._stream:
                left -= len(part)
                if left < 0:
                    raise httpx2.StreamError(f"it sends more than {limits.message_bytes} bytes")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        headers = {"accept-encoding": "identity", **(headers or {})}
        hooks = {"response": [bound]}
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, trust_env=trust_env, event_hooks=hooks)

    headers = dict(reached.headers)
    if transport == "sse":
        from mcp.client.sse import sse_client

        async with sse_client(
            reached.url, headers, limits.connect_timeout, _FOREVER, httpx_client_factory=client, auth=auth
        ) as streams:
            yield streams
        return
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(limits.connect_timeout, read=_FOREVER)
    async with client(headers, timeout, auth) as http, streamable_http_client(reached.url, http_client=http) as streams:
        yield streams


def innermost(failure: BaseException) -> BaseException:
    """The first exception that is not a group: the SDK's task groups wrap exceptions."""
    while isinstance(failure, BaseExceptionGroup) and failure.exceptions:
        failure = failure.exceptions[0]
    return failure


def words(failure: BaseException) -> str:
    """The innermost cause of a failure, in one line."""
    failure = innermost(failure)
    text = " ".join(str(failure).split())
    return text[:300] if text else type(failure).__name__
