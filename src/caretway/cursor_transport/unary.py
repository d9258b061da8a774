"""The answer to one unary call, gathered up to a size limit: an end without a response is an error, and `late` is the
timeout's error. For both transports."""

import asyncio
from collections.abc import Mapping

from ..core.errors import ErrorKind, GatewayError
from .faults import HINTS, broke_protocol
from .ports import UnaryResponse


class UnaryAnswer:
    """Told by a carrier, awaited as `response`."""

    def __init__(self, max_bytes: int) -> None:
        self.response: asyncio.Future[UnaryResponse] = asyncio.get_running_loop().create_future()
        self.heard = False
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._body = bytearray()
        self._max_bytes = max_bytes

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.heard = True
        self._status, self._headers = status, headers

    def on_data(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._max_bytes:
            raise broke_protocol(f"the answer to a call is larger than {self._max_bytes} bytes")

    def on_end(self, error: GatewayError | None) -> None:
        if self.response.done():
            return
        if error is None and not self.heard:
            error = broke_protocol("a call ended without a response")
        if error is not None:
            self.response.set_exception(error)
        else:
            self.response.set_result(UnaryResponse(self._status, self._headers, bytes(self._body)))


def late(path: str, timeout_s: float) -> GatewayError:
    return GatewayError(
        ErrorKind.TIMEOUT, f"Cursor did not answer {path} within {timeout_s:g} s", hint=HINTS[ErrorKind.TIMEOUT]
    )
