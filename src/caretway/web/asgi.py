"""The little of ASGI that the gateway needs: a request with a bounded body, and whole responses."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import ErrorKind, GatewayError, bad_request

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]


class HungUp(Exception):
    """The client is gone before it had sent its request."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case; of a repeated header the last one."""


def read_head(scope: Scope) -> HttpRequest:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["path"]
    return HttpRequest(scope["method"], path.rstrip("/") or "/", headers)


async def read_body(request: HttpRequest, receive: Receive, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise bad_request("Compressed request bodies are not accepted.", hint="Send the body without content-encoding.")
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _too_large(limit: int) -> GatewayError:
    return GatewayError(
        ErrorKind.TOO_LARGE,
        f"The request body is larger than {limit} bytes.",
        hint="Raise `max_body_bytes` if that is intended.",
    )


def start(status: int, headers: Iterable[Header]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def send_whole(
    send: Send, status: int, body: bytes, headers: Iterable[Header], *, content_type: bytes = b"application/json"
) -> None:
    head = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), *headers]
    await send(start(status, head))
    await send(part(body, more=False))


def header_text(text: str) -> bytes:
    """A value that is legal in a header whatever it holds."""
    return "".join(c if " " <= c <= "~" else "?" for c in text).encode("ascii")
