"""Fingerprints: what clients change when they resend does not count, and everything else does."""

from typing import Final

import pytest
from msgspec.structs import replace

from caretway.core.fold import Reply
from caretway.core.request import (
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    TurnRequest,
    last_answer,
)
from caretway.sessions.transcript import (
    MAX_REMEMBERED,
    Chain,
    ConversationIds,
    SessionNames,
    answer_message,
    fingerprint,
    tools_key,
)

from .played import ask

SUMMARY = "Here is what happened so far. " * 20
U, A = Role.USER, Role.ASSISTANT


def saying(*words: tuple[Role, str], hint: str = "s1", tools: str = "bash") -> TurnRequest:
    messages = tuple(Message(role, (Text(text),)) for role, text in ((Role.SYSTEM, "You help."), *words))
    return TurnRequest("m", messages, tools=(ToolSpec(tools),), hint=hint)


LONG = saying((U, "one"), (A, "1"), (U, "two"), (A, "2"), (U, "three"), (A, "3"), (U, "four"))
CASES = [
    ("a summary alone, as Claude Code does", saying((U, SUMMARY)), True),
    (
        "a summary and an answer, as OpenCode does",
        saying((U, "What did we do?"), (A, SUMMARY), (U, "go on")),
        True,
    ),
    (
        "the user's words and a summary, as Codex does",
        saying((U, "one"), (U, "two"), (U, SUMMARY), (U, "go on")),
        True,
    ),
    ("back to an earlier point", saying((U, "one"), (A, "1"), (U, "another two")), False),
    ("a new first prompt", saying((U, "uno")), False),
    ("a new first prompt, and words of the system", saying((U, "uno"), (Role.SYSTEM, SUMMARY)), False),
    (
        "the next message",
        saying(*((m.role, m.text) for m in LONG.messages[1:]), (A, "4"), (U, "five")),
        False,
    ),
    ("another session", saying((U, SUMMARY), hint="s2"), False),
    ("no name", saying((U, SUMMARY), hint=""), False),
    ("a side call without these tools", saying((U, SUMMARY), tools="title"), False),
]


@pytest.mark.parametrize(("request_", "compacted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_counts(request_: TurnRequest, compacted: bool) -> None:
    names = SessionNames()
    names.remember("key", LONG, "c1")
    assert names.compacted("key", request_) == ("c1" if compacted else None)
    assert names.compacted("another key", request_) is None


def test_the_next_request_is_compared_with_the_short_history() -> None:
    names = SessionNames()
    short = saying((U, SUMMARY))
    names.remember("key", LONG, "c1")
    names.remember("key", short, "c1")
    assert names.compacted("key", saying((U, SUMMARY), (A, "ok"), (U, "more"))) is None


def test_a_side_call_s_few_messages_are_no_long_conversation() -> None:
    names = SessionNames()
    names.remember("key", saying((U, "Give it a title."), (U, "one"), tools="none"), "c1")
    assert names.compacted("key", saying((U, SUMMARY), tools="none")) is None


def test_compacted_what_is_remembered_is_bounded() -> None:
    names = SessionNames()
    for i in range(MAX_REMEMBERED + 1):
        names.remember("key", replace(LONG, hint=f"s{i}"), "c")
    assert names.compacted("key", saying((U, SUMMARY), hint="s0")) is None
    assert names.compacted("key", saying((U, SUMMARY), hint="s1")) == "c"


def said(*words: str) -> tuple[Message, ...]:
    roles = (Role.USER, Role.ASSISTANT)
    return tuple(Message(roles[number % 2], (Text(text),)) for number, text in enumerate(words))


def test_a_replay_belongs_to_the_conversation_that_opened_alike() -> None:
    ids = ConversationIds()
    first = ids.fresh("key", ask(*said("hi")))
    assert ids.replayed("key", ask(*said("hi", "hello", "go on"))) == first
    assert ids.replayed("other key", ask(*said("hi", "hello", "go on"))) != first
    assert ids.replayed("key", ask(*said("hi there", "hello", "go on"))) != first
    newer = ids.fresh("key", ask(*said("hi")))
    assert newer != first, "two chats that open alike are two conversations"
    assert ids.replayed("key", ask(*said("hi", "hello"))) == newer


def test_a_replay_of_something_unknown_is_known_from_then_on() -> None:
    ids = ConversationIds()
    instructions = Message(Role.SYSTEM, (Text("be brief"),))
    once = ids.replayed("", ask(instructions, *said("hi", "hello", "more")))
    assert ids.replayed("", ask(*said("hi", "hello", "more", "yes", "and more"))) == once
    assert ids.replayed("", ask(instructions)) != once


def test_what_is_remembered_is_bounded() -> None:
    ids = ConversationIds()
    first = ids.fresh("", ask(*said("first")))
    for number in range(MAX_REMEMBERED):
        ids.fresh("", ask(*said(f"chat {number}")))
    assert ids.replayed("", ask(*said("first"))) != first


TOOLS: Final = tools_key(())
PNG: Final = Image(b"png", "image/png")


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (Text(text),))


def user(*parts: Part | str) -> Message:
    return Message(Role.USER, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part | str) -> Message:
    return Message(Role.ASSISTANT, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def result(text: str, call: str = "c", *, failed: bool = False) -> Message:
    return Message(Role.TOOL, (ToolResult(call, (Text(text),), failed),))


def call(arguments: str = "{}", name: str = "read", call_id: str = "c") -> ToolCall:
    return ToolCall(call_id, name, arguments)


SAME: Final[list[tuple[str, list[Message], list[Message]]]] = [
    ("white space at the ends of the user's words", [user("  hi \n")], [user("hi")]),
    ("white space at the ends of the system prompt", [system("\nbe good\n")], [system("be good")]),
    ("white space at the ends of our answer", [assistant("\n\nhello ")], [assistant("hello")]),
    ("white space at the ends of a result", [result("done\n")], [result("done")]),
    ("no content and empty content", [assistant(call())], [assistant("", call())]),
    ("blank content beside a call", [assistant(" \n", call())], [assistant(call())]),
    ("an empty message and none", [user("hi"), assistant(), user("you")], [user("hi"), user("you")]),
    ("a message of nothing but blank text", [user("hi"), assistant("  ")], [user("hi")]),
    ("text in parts", [user("he", "llo")], [user("hello")]),
    ("reasoning left out", [assistant(Reasoning("hm", "sig"), "yes")], [assistant("yes")]),
    ("nothing but reasoning left out", [user("hi"), assistant(Reasoning("hm"))], [user("hi")]),
    ("reasoning between two pieces of text", [assistant("a", Reasoning("hm"), "b")], [assistant("ab")]),
    ("text behind a call", [assistant(call(), "so")], [assistant("so", call())]),
    ("key order in arguments", [assistant(call('{"a": 1, "b": 2}'))], [assistant(call('{"b":2,"a":1}'))]),
    (
        "key order deep in arguments",
        [assistant(call('[{"a":{"c":1,"b":2}}]'))],
        [assistant(call('[{"a":{"b":2,"c":1}}]'))],
    ),
    ("white space in arguments", [assistant(call(' {"a" : [1, 2]}\n'))], [assistant(call('{"a":[1,2]}'))]),
    ("escapes in arguments", [assistant(call('{"a":"\\u00e9\\/"}'))], [assistant(call('{"a":"é/"}'))]),
    (
        "whole numbers as JavaScript writes them",
        [assistant(call('{"a":1.0,"b":1e3}'))],
        [assistant(call('{"a":1,"b":1000}'))],
    ),
    ("no arguments", [assistant(call(""))], [assistant(call("{}"))]),
    ("blank arguments", [assistant(call("  "))], [assistant(call("{}"))]),
    ("white space around arguments that are no JSON", [assistant(call("{oops "))], [assistant(call(" {oops"))]),
]

DIFFERENT: Final[list[tuple[str, list[Message], list[Message]]]] = [
    ("other words", [user("hi")], [user("ho")]),
    ("other case", [user("hi")], [user("Hi")]),
    ("white space within", [user("a b")], [user("a  b")]),
    ("line breaks within", [user("a\nb")], [user("a b")]),
    ("another role", [user("hi")], [assistant("hi")]),
    ("another system prompt", [system("a"), user("hi")], [system("b"), user("hi")]),
    ("no system prompt", [system("a"), user("hi")], [user("hi")]),
    ("one message more", [user("hi")], [user("hi"), user("hi")]),
    ("other order", [user("a"), user("b")], [user("b"), user("a")]),
    ("messages joined", [user("a"), user("b")], [user("ab")]),
    ("a word moved to the next message", [user("a b"), user("c")], [user("a"), user("b c")]),
    ("an image more", [user("hi")], [user("hi", PNG)]),
    ("another image", [user(PNG)], [user(Image(b"jpg", "image/png"))]),
    ("another kind of image", [user(PNG)], [user(Image(b"png", "image/gif"))]),
    ("an image elsewhere in the text", [user("left", PNG, "right")], [user("leftright", PNG)]),
    ("two images in other order", [user(PNG, Image(b"b", "image/png"))], [user(Image(b"b", "image/png"), PNG)]),
    ("another call id", [assistant(call(call_id="a"))], [assistant(call(call_id="b"))]),
    ("another tool", [assistant(call(name="read"))], [assistant(call(name="write"))]),
    ("other arguments", [assistant(call('{"a":1}'))], [assistant(call('{"a":2}'))]),
    ("a number and a text", [assistant(call('{"a":1}'))], [assistant(call('{"a":"1"}'))]),
    ("a number and a truth", [assistant(call('{"a":1}'))], [assistant(call('{"a":true}'))]),
    ("order in a list", [assistant(call("[1,2]"))], [assistant(call("[2,1]"))]),
    ("numbers that differ a little", [assistant(call('{"a":1.5}'))], [assistant(call('{"a":1}'))]),
    ("numbers too large to compare", [assistant(call("[1e400]"))], [assistant(call("[1e401]"))]),
    (
        "neighbours beyond what a double can tell",
        [assistant(call("[9007199254740993]"))],
        [assistant(call("[9007199254740992]"))],
    ),
    ("null and nothing in arguments", [assistant(call('{"a":null}'))], [assistant(call("{}"))]),
    ("a call more", [assistant(call())], [assistant(call(), call(call_id="d"))]),
    ("two calls in other order", [assistant(call("1"), call("2"))], [assistant(call("2"), call("1"))]),
    ("a call told as text", [assistant(call())], [assistant("call c read {}")]),
    ("another result", [result("a")], [result("b")]),
    ("a result of another call", [result("a", "c")], [result("a", "d")]),
    ("a result that failed", [result("a")], [result("a", failed=True)]),
    ("a result with an image", [result("a")], [Message(Role.TOOL, (ToolResult("c", (Text("a"), PNG)),))]),
    ("an empty result and none", [user("a"), result("")], [user("a")]),
    ("a result told by the user", [result("a")], [user("result", "c", "ok", "a")]),
]


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
def test_the_same(one: list[Message], other: list[Message]) -> None:
    assert fingerprint(TOOLS, one) == fingerprint(TOOLS, other)


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in DIFFERENT], ids=[case[0] for case in DIFFERENT])
def test_different(one: list[Message], other: list[Message]) -> None:
    assert fingerprint(TOOLS, one) != fingerprint(TOOLS, other)


READ: Final = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
WRITE: Final = ToolSpec("write", "Writes a file.", {"type": "object"})
SAME_TOOLS: Final[list[tuple[str, list[ToolSpec], list[ToolSpec]]]] = [
    ("order of tools", [READ, WRITE], [WRITE, READ]),
    (
        "key order in schemas",
        [READ],
        [ToolSpec("read", "Reads a file.", {"properties": {"path": {"type": "string"}}, "type": "object"})],
    ),
    ("white space at the ends of a description", [WRITE], [ToolSpec("write", " Writes a file.\n", WRITE.schema)]),
]
OTHER_TOOLS: Final[list[tuple[str, list[ToolSpec], list[ToolSpec]]]] = [
    ("no tools", [READ], []),
    ("a tool more", [READ], [READ, WRITE]),
    ("another name", [READ], [ToolSpec("view", READ.description, READ.schema)]),
    ("another description", [READ], [ToolSpec("read", "Reads.", READ.schema)]),
    ("another schema", [READ], [ToolSpec("read", READ.description, {})]),
    ("descriptions swapped", [ToolSpec("a", "x"), ToolSpec("b", "y")], [ToolSpec("a", "y"), ToolSpec("b", "x")]),
]


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in SAME_TOOLS], ids=[case[0] for case in SAME_TOOLS])
def test_the_same_tools(one: list[ToolSpec], other: list[ToolSpec]) -> None:
    assert tools_key(one) == tools_key(other)


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in OTHER_TOOLS], ids=[case[0] for case in OTHER_TOOLS])
def test_other_tools(one: list[ToolSpec], other: list[ToolSpec]) -> None:
    assert tools_key(one) != tools_key(other)
    talk = [user("hi")]
    assert fingerprint(tools_key(one), talk) != fingerprint(tools_key(other), talk)


@pytest.mark.parametrize("odd", ["\ud800", '{"a":"\ud800"}', '{"a":"\\ud800"}', "[" * 20_000, "NaN", "\0", "{" * 500])
def test_any_text_has_a_fingerprint(odd: str) -> None:
    odd_talk = [user(odd), assistant(call(odd)), result(odd)]
    assert fingerprint(TOOLS, odd_talk) == fingerprint(TOOLS, odd_talk)
    assert fingerprint(TOOLS, odd_talk) != fingerprint(TOOLS, [user(odd), assistant(call()), result(odd)])


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], 0),
        ([user("a")], 0),
        ([user("a"), assistant("b")], 2),
        ([user("a"), assistant("b"), user("c")], 2),
        ([user("a"), assistant("b"), assistant(call()), result("d"), user("e")], 3),
    ],
)
def test_last_answer(messages: list[Message], expected: int) -> None:
    assert last_answer(messages) == expected


def test_our_answer_is_recognised_when_a_client_sends_it_back() -> None:
    reply = Reply(text="Let me see.\n", reasoning="hm", calls=(call('{"b":1,"a":2}'),))
    sent_back = assistant(Reasoning("hm"), "Let me see.", call('{"a": 2, "b": 1}'))
    assert fingerprint(TOOLS, [answer_message(reply)]) == fingerprint(TOOLS, [sent_back])


def test_an_answer_without_text_has_no_empty_part() -> None:
    assert answer_message(Reply(calls=(call(),))) == assistant(call())


def test_a_chain_that_grew_is_the_fingerprint_of_the_whole() -> None:
    talk = [user("one"), assistant("two"), user("three"), assistant(call()), result("four")]
    chain = Chain(TOOLS)
    for count, message in enumerate(talk, 1):
        assert chain.add([message]).digest() == fingerprint(TOOLS, talk[:count])
