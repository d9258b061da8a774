"""What one read brought, sorted: bytes gathered before the end, windows, and who is left when the peer leaves."""

from typing import Final, cast

from caretway.cursor.transport.h2_connection import H2Connection
from caretway.cursor.transport.h2_frames import (
    Code,
    DataReceived,
    GoAway,
    HeadReceived,
    PingAnswered,
    SettingsChanged,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from caretway.cursor.transport.h2_stream import H2Stream, Unprocessed, gather
from caretway.cursor.transport.ports import NOBODY

NO_CONNECTION: Final = cast(H2Connection, None)
"""Sorting asks nothing of it."""


def streams(*numbers: int) -> dict[int, H2Stream]:
    return {number: H2Stream(NO_CONNECTION, number, NOBODY, complete=True) for number in numbers}


def test_bytes_are_gathered_and_those_of_nobody_only_counted() -> None:
    known = streams(1, 3)
    head = HeadReceived(1, 200, {})
    pieces = [DataReceived(1, b"a", 9), DataReceived(7, b"", 5), DataReceived(1, b"b", 1)]
    news = gather([head, *pieces, StreamEnded(1)], known, "host")
    assert (news.size, news.heads, news.touched) == (15, [(known[1], head)], {known[1]: None})
    assert (known[1].unread, known[1].ended, known[1].arrived) == (10, True, [b"a", b"b"])


def test_a_reset_after_the_end_is_none() -> None:
    known = streams(1, 3)
    news = gather([StreamEnded(1), StreamReset(1, Code.CANCEL), StreamReset(3, Code.CANCEL)], known, "host")
    assert news.touched[known[1]] is None
    assert "CANCEL" in str(news.touched[known[3]])


def test_windows_settings_and_pings() -> None:
    known = streams(1)
    news = gather([WindowOpened(1), WindowOpened(5), PingAnswered(b"12345678")], known, "host")
    assert (news.opened, news.all_opened, news.settings, news.pings) == ([known[1]], False, False, [b"12345678"])
    news = gather([WindowOpened(0), SettingsChanged()], known, "host")
    assert (news.opened, news.all_opened, news.settings) == ([], True, True)


def test_a_peer_that_leaves_names_what_it_did_not_take() -> None:
    known = streams(1, 3, 5)
    news = gather([StreamEnded(5), GoAway(1)], known, "host")
    assert news.leaving
    assert [type(news.touched.get(stream)) for stream in known.values()] == [type(None), Unprocessed, type(None)]
