"""The way in and out of the application: who may enter, how often, and, when asked for, a record of what passed.

An ASGI application around another one. The decisions are `access` and `admission`; the words of a refusal are those of
the API that lives at the path.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from ..core.errors import GatewayError
from ..dialects import Dialect
from ..observe.trace import Trace
from .access import Access, admit, preflight
from .admission import Admission
from .asgi import Header, HttpRequest, Receive, Scope, Send, read_head, send_whole
from .respond import send_error


class App(Protocol):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Door:
    def __init__(
        self,
        inside: App,
        *,
        access: Access,
        admission: Admission,
        dialect: Callable[[str], Dialect],
        trace: Trace | None = None,
    ) -> None:
        self._inside = inside
        self._access = access
        self._admission = admission
        self._dialect = dialect
        self._trace = trace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = read_head(scope)
        if self._trace is not None:
            receive, send = _recorded(self._trace, http, receive, send)
        headers: Sequence[Header] = ()
        try:
            asked = preflight(self._access, http.method, scope["scheme"], http.headers)
            if asked is not None:
                await send_whole(send, 204, b"", asked)
                return
            admitted = admit(self._access, http.method, http.path, scope["scheme"], http.headers)
            headers = admitted.headers
            with self._admission.request(admitted.caller):
                await self._inside(scope, receive, _adding(headers, send) if headers else send)
        except GatewayError as error:
            told = [(b"x-request-id", f"req_{uuid.uuid4().hex}".encode()), *headers]
            await send_error(send, self._dialect(http.path), error, told)


def _adding(headers: Sequence[Header], send: Send) -> Send:
    async def sending(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sending


# ---- recording


def _recorded(trace: Trace, http: HttpRequest, receive: Receive, send: Send) -> tuple[Receive, Send]:
    number = trace.number()
    redact = trace.redact
    trace.write(
        "request", exchange=number, method=http.method, path=http.path, headers=redact.headers(http.headers.items())
    )
    body: list[bytes] = []

    async def receiving() -> dict[str, Any]:
        message = await receive()
        if message["type"] == "http.disconnect":
            trace.write("hung up", exchange=number)
        elif message.get("body") or body:
            body.append(message.get("body", b""))
            if not message.get("more_body"):
                whole = b"".join(body)
                body.clear()
                trace.write("request body", exchange=number, bytes=len(whole), json=_shape(trace, whole))
        return message

    async def sending(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            head = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            trace.write("response", exchange=number, status=message["status"], headers=redact.headers(head))
        else:
            data = message.get("body", b"")
            trace.write(
                "response body",
                exchange=number,
                bytes=len(data),
                json=_events(trace, data),
                end=not message.get("more_body", False),
            )
        await send(message)

    return receiving, sending


def _shape(trace: Trace, data: bytes) -> object:
    try:
        return trace.redact.value(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return trace.redact.digest(data.decode("latin-1"))


def _events(trace: Trace, data: bytes) -> object:
    """What one write held: an object, or the events of a stream (a write never cuts one)."""
    lines = data.split(b"\n")
    events = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    if not events:
        return _shape(trace, data) if data.startswith(b"{") else None
    return [_shape(trace, event) if event.startswith(b"{") else event.decode("latin-1") for event in events]
