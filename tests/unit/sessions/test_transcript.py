"""Fingerprints: what clients change when they resend does not count, and everything else does."""

from typing import Final

import pytest

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
    last_answer,
)
from caretway.sessions.transcript import Chain, answer_message, fingerprint, tools_key

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
