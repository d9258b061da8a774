"""RunSSE joined with BidiAppend in the simulator: appends before their RunSSE, out of order or twice, a request id used
again, bounds on what waits.

What reaches the run is in order and complete. A number that was seen is dropped, which is exactly how a client with two
counters loses an acknowledgement.
"""

from collections import OrderedDict
from typing import Final

from caretway.cursor.wire.embedding import AppendOutOfRange, AppendReader

from .exchange import SimExchange
from .run import SimRun
from .shared import Shared

MAX_WAITING_CHANNELS: Final = 1024
"""Request ids with appends and no RunSSE yet."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Of messages that came before their RunSSE, per request id."""
MAX_REMEMBERED: Final = 4096


class _Channel:
    def __init__(self) -> None:
        self.reader = AppendReader()
        self.early: list[bytes] = []
        self.early_bytes = 0
        self.run: SimRun | None = None


class ChannelBusy(ValueError):
    """A request id that already has, or had, its RunSSE."""


class Channels:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._waiting: OrderedDict[str, _Channel] = OrderedDict()
        self._open: dict[str, _Channel] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def append(self, request_id: str, seqno: int, message: bytes) -> None:
        """Raises AppendOutOfRange when the message can be neither used nor kept."""
        stats = self._shared.stats
        stats.appends += 1
        if request_id in self._ended:
            return  # a last heartbeat, too late to matter
        channel = self._open.get(request_id) or self._waiting.get(request_id) or self._wait(request_id)
        if channel.reader.seen(seqno):
            stats.appends_duplicate += 1
            return
        if not channel.reader.expected(seqno):
            stats.appends_out_of_order += 1
        for ready in channel.reader.feed(seqno, message):
            if channel.run is not None:
                channel.run.feed(ready)
                continue
            channel.early_bytes += len(ready)
            if channel.early_bytes > MAX_WAITING_BYTES:
                self._waiting.pop(request_id, None)
                raise AppendOutOfRange("too many bytes before RunSSE")
            channel.early.append(ready)

    def open(self, request_id: str, exchange: SimExchange, owner: str, *, abroad: bool = False) -> SimRun:
        if request_id in self._open or request_id in self._ended:
            raise ChannelBusy(f"request id {request_id} was used before")
        channel = self._waiting.pop(request_id, None) or _Channel()
        self._open[request_id] = channel
        run = channel.run = SimRun(self._shared, exchange, request_id, owner, abroad=abroad)
        run.task.add_done_callback(lambda _: self._close(request_id))
        early, channel.early = channel.early, []
        for message in early:
            run.feed(message)
        return run

    def _wait(self, request_id: str) -> _Channel:
        channel = self._waiting[request_id] = _Channel()
        while len(self._waiting) > MAX_WAITING_CHANNELS:
            self._waiting.popitem(last=False)
        return channel

    def _close(self, request_id: str) -> None:
        self._open.pop(request_id, None)
        self._ended[request_id] = None
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)
