"""The interface between a connection and the owner of one request: `on_head`, `on_data`, `on_end` (exactly once). What
an owner raises ends its own request only."""

from collections.abc import Mapping
from typing import Final, Protocol

from ..core.errors import GatewayError


class StreamSink(Protocol):
    """The owner of one request. `on_end` is called exactly once, and nothing after the owner's own `close()`. What
    `on_head` and `on_data` raise ends this request only: a GatewayError as it is, anything else as a bug of ours."""

    def on_head(self, status: int, headers: Mapping[str, str]) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_end(self, error: GatewayError | None) -> None: ...


class _Nobody:
    def on_head(self, status: int, headers: Mapping[str, str]) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_end(self, error: GatewayError | None) -> None: ...


NOBODY: Final[StreamSink] = _Nobody()
