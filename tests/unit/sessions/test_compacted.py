"""A client compacts its conversation: noticed by its own name for the session, never by that alone."""

import pytest
from msgspec.structs import replace

from caretway.core.request import Message, Role, Text, ToolSpec, TurnRequest
from caretway.sessions.compacted import MAX_REMEMBERED, SessionNames

SUMMARY = "Here is what happened so far. " * 20
U, A = Role.USER, Role.ASSISTANT


def said(*words: tuple[Role, str], hint: str = "s1", tools: str = "bash") -> TurnRequest:
    messages = tuple(Message(role, (Text(text),)) for role, text in ((Role.SYSTEM, "You help."), *words))
    return TurnRequest("m", messages, tools=(ToolSpec(tools),), hint=hint)


LONG = said((U, "one"), (A, "1"), (U, "two"), (A, "2"), (U, "three"), (A, "3"), (U, "four"))
CASES = [
    ("a summary alone, as Claude Code does", said((U, SUMMARY)), True),
    ("a summary and an answer, as OpenCode does", said((U, "What did we do?"), (A, SUMMARY), (U, "go on")), True),
    ("the user's words and a summary, as Codex does", said((U, "one"), (U, "two"), (U, SUMMARY), (U, "go on")), True),
    ("back to an earlier point", said((U, "one"), (A, "1"), (U, "another two")), False),
    ("a new first prompt", said((U, "uno")), False),
    ("a new first prompt, and words of the system", said((U, "uno"), (Role.SYSTEM, SUMMARY)), False),
    ("the next message", said(*((m.role, m.text) for m in LONG.messages[1:]), (A, "4"), (U, "five")), False),
    ("another session", said((U, SUMMARY), hint="s2"), False),
    ("no name", said((U, SUMMARY), hint=""), False),
    ("a side call without these tools", said((U, SUMMARY), tools="title"), False),
]


@pytest.mark.parametrize(("request_", "compacted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_counts(request_: TurnRequest, compacted: bool) -> None:
    names = SessionNames()
    names.remember("key", LONG, "c1")
    assert names.compacted("key", request_) == ("c1" if compacted else None)
    assert names.compacted("another key", request_) is None


def test_the_next_request_is_compared_with_the_short_history() -> None:
    names = SessionNames()
    short = said((U, SUMMARY))
    names.remember("key", LONG, "c1")
    names.remember("key", short, "c1")
    assert names.compacted("key", said((U, SUMMARY), (A, "ok"), (U, "more"))) is None


def test_a_side_call_s_few_messages_are_no_long_conversation() -> None:
    names = SessionNames()
    names.remember("key", said((U, "Give it a title."), (U, "one"), tools="none"), "c1")
    assert names.compacted("key", said((U, SUMMARY), tools="none")) is None


def test_what_is_remembered_is_bounded() -> None:
    names = SessionNames()
    for i in range(MAX_REMEMBERED + 1):
        names.remember("key", replace(LONG, hint=f"s{i}"), "c")
    assert names.compacted("key", said((U, SUMMARY), hint="s0")) is None
    assert names.compacted("key", said((U, SUMMARY), hint="s1")) == "c"
