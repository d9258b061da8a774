"""Tools that a client added on the way: which are new, and whether one of them is wanted."""

from typing import Final

import pytest

from caretway.core.request import Message, Role, Text, ToolCall, ToolResult, ToolSpec
from caretway.sessions.late_tools import MOST_IN_ALL, MOST_OF_ONE, asked_for, grown

READ: Final = ToolSpec("read", "Reads.", {"type": "object", "properties": {"a": {}, "b": {}}})
WRITE: Final = ToolSpec("write", "Writes.")
RESPELLED: Final = ToolSpec("read", " Reads.\n", {"properties": {"b": {}, "a": {}}, "type": "object"})
NEW: Final = ("mcp__vault__reveal", "write")
HELLO: Final = Message(Role.USER, (Text("hello"),))


def called(name: str, arguments: str) -> Message:
    return Message(Role.ASSISTANT, (ToolCall("t", name, arguments),))


def came_back(text: str) -> Message:
    return Message(Role.TOOL, (ToolResult("t", (Text(text),)),))


GROWN: Final = {
    "the same": ((READ, WRITE), (READ, WRITE), ()),
    "in another order": ((READ, WRITE), (WRITE, READ), ()),
    "respelled": ((READ,), (RESPELLED,), ()),
    "one more": ((READ,), (READ, WRITE), ("write",)),
    "the first ones": ((), (READ, WRITE), ("read", "write")),
    "one less": ((READ, WRITE), (READ,), None),
    "another description": ((READ,), (ToolSpec("read", "Reads much.", READ.schema),), None),
    "another schema": ((READ,), (ToolSpec("read", "Reads.", {"type": "object"}), WRITE), None),
    "one for another": ((READ,), (WRITE,), None),
    "the same of another namespace": ((ToolSpec("read", namespace="a"),), (ToolSpec("read", namespace="b"),), None),
}


@pytest.mark.parametrize("name", GROWN)
def test_what_is_new(name: str) -> None:
    offered, now, expected = GROWN[name]
    assert grown(offered, now) == expected


ASKED: Final = {
    "named by our call": (called("find", '{"query":"select:mcp__vault__reveal"}'), "found", "mcp__vault__reveal"),
    "named by what came back": (called("find", "{}"), "Tool: mcp__vault__reveal\n", "mcp__vault__reveal"),
    "named in a list": (called("find", '{"names":"a,write,b"}'), "", "write"),
    "part of a longer name": (called("find", "{}"), "mcp__vault__reveal_all write_file re-write writes", None),
    "its server named by our call": (called("connect", '{"server":"vault"}'), "ok", "mcp__vault__reveal"),
    "its server in what came back": (called("bash", "{}"), "a vault", None),
    "not named": (called("bash", '{"command":"ls"}'), "a b c", None),
    "loaded by a tool that does not say what": (called("enable_toolset", '{"set":"files"}'), "ok", NEW[0]),
    "a search with another name of the tool": (called("ToolSearch", '{"query":"vault"}'), "write", "write"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_was_asked_for(name: str) -> None:
    answer, text, expected = ASKED[name]
    assert asked_for(NEW, answer, [came_back(text)], [HELLO]) == expected


def test_the_user_may_ask_too() -> None:
    said, ran = Message(Role.USER, (Text("now call write, please"),)), called("bash", "{}")
    assert asked_for(NEW, ran, [came_back("ok"), said], [HELLO]) == "write"
    assert asked_for(NEW, ran, [came_back("ok")], [said, ran]) == "write"
    assert asked_for(NEW, ran, [came_back("ok")], [said, ran, HELLO]) is None, "that was an earlier turn"


def test_a_long_result_is_not_read_to_its_end_and_hides_no_other() -> None:
    long = came_back("x " * MOST_OF_ONE + " write")
    assert asked_for(NEW, called("bash", "{}"), [long], []) is None
    assert asked_for(NEW, called("bash", "{}"), [long, came_back("write")], []) == "write"
    many = [came_back("x " * (MOST_OF_ONE // 2))] * (MOST_IN_ALL // MOST_OF_ONE)
    assert asked_for(NEW, called("bash", "{}"), [*many, came_back("write")], []) is None
