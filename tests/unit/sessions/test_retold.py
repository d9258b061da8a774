"""Our newest answer in the client's words: where the history before it ends, and when it is another one."""

from typing import Final

import pytest

from caretway.core.request import Message, Reasoning, Role, Text, ToolCall
from caretway.sessions.retold import known_before
from caretway.sessions.transcript import Chain


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def says(*parts: str | ToolCall | Reasoning) -> Message:
    return Message(Role.ASSISTANT, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def call(ticket: str = "t1", arguments: str = '{"path":"a","lines":3}', name: str = "read") -> ToolCall:
    return ToolCall(ticket, name, arguments)


HELLO: Final = user("hello")
BEGUN: Final = says("Well,")
BOTH: Final = (call("t1"), call("t2"))
ANSWER: Final = says("Looking.", *BOTH)

ACCOUNTS: Final[dict[str, tuple[list[Message], int | None]]] = {
    "results alone": ([], 0),
    "as it was": ([HELLO, ANSWER], 1),
    "with its reasoning": ([HELLO, says(Reasoning("hm"), "Looking.", *BOTH)], 1),
    "respelled": ([user("hello\n"), says("Looking. ", call(arguments='{"lines": 3, "path": "a"}'), BOTH[1])], 1),
    "other words": ([HELLO, says("(calling tools)", *BOTH)], 1),
    "no words": ([HELLO, says(*BOTH)], 1),
    "in pieces": ([HELLO, says("Looking."), says(BOTH[0]), says(BOTH[1])], 1),
    "in pieces, after a respelled question": ([user(" hello"), says("Hm."), says(*BOTH)], 1),
    "an empty message first": ([HELLO, says(), says(*BOTH)], 1),
    "an empty message in the history": ([user(""), HELLO, says(*BOTH)], 2),
    "a value added": ([HELLO, says(call(arguments='{"path":"a","lines":3,"all":true}'), BOTH[1])], 1),
    "a value left out": ([HELLO, says(call(arguments='{"path":"a"}'), BOTH[1])], 1),
    "arguments that are no object": ([HELLO, says(call(arguments="[1]"), BOTH[1])], 1),
    "arguments that are no JSON": ([HELLO, says(call(arguments="{{"), BOTH[1])], 1),
    "another name": ([HELLO, says(call(name="invalid"), BOTH[1])], 1),
    "a value edited": ([HELLO, says(call(arguments='{"path":"b"}'), BOTH[1])], None),
    "a number edited": ([HELLO, says(call(arguments='{"path":"a","lines":4}'), BOTH[1])], None),
    "a number spelled as JavaScript does": ([HELLO, says(call(arguments='{"path":"a","lines":3.0}'), BOTH[1])], 1),
    "a call left out": ([HELLO, says(BOTH[0])], None),
    "a call more": ([HELLO, says(*BOTH, call("t3"))], None),
    "a call twice": ([HELLO, says(BOTH[0], *BOTH)], None),
    "another ticket": ([HELLO, says(BOTH[0], call("t3"))], None),
    "another question": ([user("hullo"), ANSWER], None),
    "a question more": ([HELLO, user("and?"), says(*BOTH)], None),
    "the history alone": ([HELLO], None),
    "no history": ([ANSWER], None),
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_account(name: str) -> None:
    told, expected = ACCOUNTS[name]
    assert known_before(tuple(told), (HELLO,), ANSWER, Chain(b"").add((HELLO,)).said) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([HELLO, BEGUN, ANSWER], 2),
        ([HELLO, BEGUN, says("…", *BOTH)], 2),
        ([user("hello "), BEGUN, says("…", *BOTH)], 2),
        ([HELLO, says("Well, then", *BOTH)], None),
    ],
    ids=["as it was", "other words", "respelled", "joined"],
)
def test_an_answer_that_the_client_began(told: list[Message], expected: int | None) -> None:
    history = (HELLO, BEGUN)
    assert known_before(tuple(told), history, ANSWER, Chain(b"").add(history).said) == expected
