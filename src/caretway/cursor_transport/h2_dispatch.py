"""What one read of an HTTP/2 connection means for its streams: GOAWAY (streams above its last id were not processed and
may be retried), RST_STREAM, DATA joined for each stream, ends, windows, PING answers.

In: what the codec heard, in order, and the open streams. Out: what is to be told and done. A stream's bytes are put
together in `arrived`, so that its owner hears of them once; its end is told after them.
"""

from collections.abc import Mapping
from typing import assert_never

from ..core.errors import GatewayError
from .h2_faults import reset_fault, unprocessed
from .h2_frames import (
    DataReceived,
    GoAway,
    HeadReceived,
    Heard,
    PingAnswered,
    SettingsChanged,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from .h2_stream import H2Stream


class ReadNews:
    __slots__ = ("all_opened", "heads", "leaving", "opened", "pings", "settings", "size", "touched")

    def __init__(self) -> None:
        self.size = 0
        """Bytes that count against the connection's window."""
        self.heads: list[tuple[H2Stream, HeadReceived]] = []
        self.touched: dict[H2Stream, GatewayError | None] = {}
        """Streams that have something to be told, and how they failed if they did."""
        self.opened: list[H2Stream] = []
        """Streams whose send window was opened."""
        self.all_opened = False
        """The connection's own was."""
        self.settings = False
        self.pings: list[bytes] = []
        """That were answered."""
        self.leaving = False
        """The peer takes no new streams."""


def gather(heard: list[Heard], streams: Mapping[int, H2Stream], host: str) -> ReadNews:
    news = ReadNews()
    touched = news.touched
    for event in heard:
        stream = streams.get(event.stream_id)
        # Every run has these, and a class pattern takes ten times as long.
        if type(event) is DataReceived:
            news.size += event.size
            if stream is not None:
                stream.unread += event.size
                if event.data:
                    stream.arrived.append(event.data)
                touched.setdefault(stream, None)
            continue
        if type(event) is WindowOpened:
            if not event.stream_id:
                news.all_opened = True
            elif stream is not None:
                news.opened.append(stream)
            continue
        if type(event) is HeadReceived:
            if stream is not None:
                news.heads.append((stream, event))
            continue
        if type(event) is StreamEnded:
            if stream is not None:
                stream.ended = True
                touched.setdefault(stream, None)
            continue
        match event:
            case StreamReset():
                if stream is not None and not stream.ended:
                    stream.ended = True
                    touched[stream] = reset_fault(host, event.code)
            case SettingsChanged():
                news.settings = True
            case PingAnswered():
                news.pings.append(event.payload)
            case GoAway():
                news.leaving = True
                for each in streams.values():
                    if each.id > event.last_stream_id and not each.ended:
                        each.ended = True
                        touched[each] = unprocessed(host, "is closing and did not take the request")
            case _:
                assert_never(event)
    return news
