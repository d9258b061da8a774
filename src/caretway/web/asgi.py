"""The little of ASGI that the gateway needs: a request's head, and whole responses."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
