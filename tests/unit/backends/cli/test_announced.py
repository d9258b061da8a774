"""The order of a step's calls: as they were announced, in whichever order they arrive."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from caretway.backends.cli.announced import Announcements


@dataclass(frozen=True)
class Made:
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    number: object = None


def announce(seen: Announcements, call_id: str, title: str, raw: object = None, **more: Any) -> bool:
    update = {"sessionUpdate": "tool_call", "toolCallId": call_id, "title": title, "status": "pending", **more}
    return seen.hear(update | ({"rawInput": raw} if raw is not None else {}))


def titled(name: str, values: Mapping[str, Any]) -> tuple[str, object]:
    return f"caretway-{name}: {name}", values


def provided(name: str, values: Mapping[str, Any]) -> tuple[str, object]:
    return "a tool", {"providerIdentifier": "caretway", "toolName": name, "args": values}


def without_arguments(name: str, values: Mapping[str, Any]) -> tuple[str, object]:
    return f"caretway: {name}", {}


STEP = [
    Made("look", {"key": "a"}, 4),
    Made("look", {"key": "b"}, 5),
    Made("find", {}, 6),
    Made("look", {"key": "a"}, 7),
]


@pytest.mark.parametrize("shape", [titled, provided, without_arguments])
def test_every_order_of_arrival_is_the_announced_one(shape: Any) -> None:
    for arrived in itertools.permutations(STEP):
        seen = Announcements()
        for number, call in enumerate(STEP):
            assert announce(seen, f"c{number}", *shape(call.name, call.values))
        assert seen.in_order(arrived) == (STEP, True)


def test_announcements_that_name_nothing_leave_the_programs_own_numbers() -> None:
    for arrived in itertools.permutations(STEP):
        seen = Announcements()
        for number in range(4):
            assert not announce(seen, f"c{number}", "MCP tool", kind="other")
        assert seen.in_order(arrived) == (STEP, True)


def test_a_step_is_whole_when_every_call_is_announced_and_here() -> None:
    seen, look, find = Announcements(), STEP[0], STEP[2]
    assert seen.in_order([look]) == ([look], False), "nobody has spoken of it"
    announce(seen, "1", "read a file", kind="read")
    assert seen.in_order([look]) == ([look], False), "what the program does itself is no word of it"
    announce(seen, "2", *titled("find", {}))
    announce(seen, "3", *titled("look", {"key": "a"}))
    assert seen.in_order([look]) == ([look], False), "the first one is still to come"
    assert seen.in_order([look, find]) == ([find, look], True)
    seen.hear({"sessionUpdate": "tool_call_update", "toolCallId": "2", "status": "failed"})
    assert seen.in_order([look]) == ([look], True), "it was rejected, and will not come"


def test_arguments_may_come_after_the_announcement() -> None:
    seen = Announcements()
    first, second = Made("look", {"key": "z"}), Made("look", {"key": "a"})
    announce(seen, "1", "caretway-look: look")
    announce(seen, "2", "caretway-look: look", {"key": "a"})
    seen.hear({"sessionUpdate": "tool_call_update", "toolCallId": "1", "rawInput": {"key": "z"}})
    assert seen.in_order([second, first]) == ([first, second], True)


def test_the_next_step_begins_anew() -> None:
    seen, again = Announcements(), Made("look", {"key": "a"}, 9)
    announce(seen, "1", *titled("look", {"key": "a"}))
    seen.shown([STEP[0]])
    assert seen.in_order([again]) == ([again], False)
    announce(seen, "2", *titled("look", {"key": "a"}))
    assert seen.in_order([again]) == ([again], True)
