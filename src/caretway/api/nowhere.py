"""A null connection, for responses that are not HTTP: messages of a WebSocket."""

from collections.abc import Callable
from typing import Final


class _Nowhere:
    def write(self, data: bytes) -> None: ...

    def date(self) -> bytes:
        return b""

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None: ...

    def answered(self) -> None: ...

    def abort(self) -> None: ...


NOWHERE: Final = _Nowhere()
