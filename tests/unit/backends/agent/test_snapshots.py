"""What a finished conversation is kept as, and the words that go to its next turn."""

import pytest

from caretway.backends.agent.snapshots import MAX_UNREAD_CHARS, read_snapshot, with_unread, write_state
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.core.turn import Snapshot


@pytest.mark.parametrize(
    "unread", ["", "a\nb", "\U0001f600" * MAX_UNREAD_CHARS, "\ud800"], ids=["", "ab", "much", "half"]
)
def test_round_trip(unread: str) -> None:
    snapshot = Snapshot("agent", write_state("id/key", b"\n\x00checkpoint", unread))
    assert read_snapshot(snapshot) == ("id/key", b"\n\x00checkpoint")
    told = [Message(Role.USER, (Text("a"),)), Message(Role.ASSISTANT, (Text("b"),)), Message(Role.USER, (Text("c"),))]
    messages = with_unread(TurnRequest("m", tuple(told)), snapshot).messages
    assert messages == ((*told[:2], Message(Role.USER, (Text(unread),)), told[2]) if unread else tuple(told))


def test_what_older_versions_kept_is_read() -> None:
    assert read_snapshot(Snapshot("agent", b"\x00\x02idcheckpoint")) == ("id", b"checkpoint")
