"""Reading a request's body: bounded in size and time, and bounded for all clients together."""

import asyncio
from dataclasses import dataclass

from ..core.errors import ErrorKind, GatewayError, bad_request
from .asgi import HttpRequest, HungUp, Receive


@dataclass(frozen=True, slots=True)
class BodyLimits:
    size: int = 32 * 2**20
    in_all: int = 256 * 2**20
    """Bytes of bodies that are not complete yet, all clients together."""
    idle: float = 30.0
    total: float = 300.0


class BodyReader:
    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._held = 0

    async def read(self, request: HttpRequest, receive: Receive) -> bytes:
        """The whole body; raises GatewayError, or HungUp."""
        limits = self._limits
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > limits.size:
            raise _too_large(limits.size)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise bad_request(
                "Compressed request bodies are not accepted.", hint="Send the body without content-encoding."
            )
        loop = asyncio.get_running_loop()
        end = loop.time() + limits.total
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                try:
                    async with asyncio.timeout_at(min(end, loop.time() + limits.idle)):
                        message = await receive()
                except TimeoutError:
                    raise _too_slow(limits) from None
                if message["type"] == "http.disconnect":
                    raise HungUp
                chunk = message.get("body", b"")
                size += len(chunk)
                self._held += len(chunk)
                if size > limits.size:
                    raise _too_large(limits.size)
                if self._held > limits.in_all:
                    raise GatewayError(ErrorKind.OVERLOADED, "Too many large requests are arriving at once.")
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
        finally:
            self._held -= size


def _too_large(limit: int) -> GatewayError:
    return GatewayError(
        ErrorKind.TOO_LARGE,
        f"The request body is larger than {limit} bytes.",
        hint="Raise `max_body_bytes` if that is intended.",
    )


def _too_slow(limits: BodyLimits) -> GatewayError:
    return GatewayError(
        ErrorKind.SLOW_REQUEST,
        f"The request body did not arrive in time: at most {limits.idle:g} s of silence, {limits.total:g} s in all.",
    )
