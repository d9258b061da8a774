"""One append and its clock, told as stories: what is seen at which second, and what follows."""

from dataclasses import dataclass, replace

import pytest

from caretway.cursor.transport.http1_transport import AppendState, AppendVerdict, AppendWatch
from caretway.cursor.transport.ports import TransportLimits

LIMITS = TransportLimits(append_timeout_s=60.0, append_silence_s=10.0, slowest_bytes_per_s=64 * 1024)
SENT = AppendState(sent_at=0.0, heard=False, repeated=False, unsent=0, run_heard_at=0.0, under_way=1000)
MIB = 1024 * 1024


@dataclass(frozen=True)
class Story:
    name: str
    state: AppendState
    beats: bool = False
    """The run's own connection is heard all the time."""
    pace: int = 0
    """Bytes a second that the system takes of what is unsent."""
    ends: AppendVerdict = AppendVerdict.LATE
    at: float = 60.0


STORIES = [
    Story("nothing is heard at all", SENT, ends=AppendVerdict.SILENT, at=10.0),
    Story("the run speaks, the append is not answered", SENT, beats=True, ends=AppendVerdict.RESEND, at=10.0),
    Story("nobody reads the run", replace(SENT, run_heard_at=None), ends=AppendVerdict.RESEND, at=10.0),
    Story("the second connection", replace(SENT, repeated=True), beats=True, ends=AppendVerdict.UNANSWERED, at=20.0),
    Story("its answer has begun", replace(SENT, heard=True), beats=True),
    Story("no connection can be had", replace(SENT, sent_at=None), beats=True),
    Story("much is under way", replace(SENT, under_way=MIB), beats=True, ends=AppendVerdict.RESEND, at=26.0),
    Story("a large one that does not move", replace(SENT, unsent=9 * MIB, under_way=10 * MIB), beats=True),
    Story(
        "a large one on a slow line has its time from its last progress on",
        replace(SENT, unsent=20 * MIB, under_way=20 * MIB),
        beats=True,
        pace=256 * 1024,
        at=140.0,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_what_becomes_of_an_append(story: Story) -> None:
    watch, now, state = AppendWatch(LIMITS, 0.0), 0.0, story.state
    looks = 0
    while True:
        if story.beats and state.run_heard_at is not None:
            state = replace(state, run_heard_at=now)
        state = replace(state, unsent=max(0, story.state.unsent - int(story.pace * now)))
        verdict, again = watch.look(now, state)
        looks += 1
        if verdict is not AppendVerdict.WAIT:
            break
        assert again > now
        now = again
    assert verdict is story.ends
    assert now == pytest.approx(story.at, abs=0.2)
    assert looks <= now / LIMITS.append_silence_s + 3, "it is not looked at all the time"
