"""What is more than Cursor takes: refused with its numbers, or told in fewer messages."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from caretway.backends.agent.compose import Composer, RunContext
from caretway.backends.agent.replayed_history import root_messages
from caretway.backends.agent.sent_limits import (
    BLOCK,
    BLOCK_BYTES,
    KEPT,
    MAX_ROOTS,
    MAX_TOOL_BYTES,
    MAX_TOOLS,
    MAX_USER_BYTES,
    check_tools,
    check_user_text,
    fit_history,
)
from caretway.backends.agent.wire_calls import OfferedTools
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolResult, ToolSpec, TurnRequest
from caretway.cursor.wire.messages import pb

MODEL = "claude-fable-5"


def user(words: str) -> Message:
    return Message(Role.USER, (Text(words),))


def assistant(words: str, *calls: str) -> Message:
    return Message(Role.ASSISTANT, (Text(words), *(ToolCall(call, "look", "{}") for call in calls)))


def results(*calls: str) -> list[Message]:
    return [Message(Role.TOOL, (ToolResult(call, (Text(f"seen {call}"),)),)) for call in calls]


def chat(count: int) -> list[Message]:
    return [user(f"u{n}") if n % 2 == 0 else assistant(f"a{n}") for n in range(count)]


def steps(count: int, calls: int = 1) -> list[Message]:
    """Tool steps: an assistant with calls, and a result for each."""
    told: list[Message] = [user("go")]
    for step in range(count):
        names = [f"c{step}_{n}" for n in range(calls)]
        told += [assistant("", *names), *results(*names)]
    return told


@dataclass(frozen=True)
class Limit:
    count: int
    size: int
    code: str | None


TOOLS = [
    Limit(0, 0, None),
    Limit(MAX_TOOLS, MAX_TOOL_BYTES, None),
    Limit(MAX_TOOLS + 1, 10, "too_many_tools"),
    Limit(3, MAX_TOOL_BYTES + 1, "too_many_tools"),
]


@pytest.mark.parametrize("limit", TOOLS, ids=str)
def test_l2_tools(limit: Limit) -> None:
    if limit.code is None:
        check_tools(limit.count, limit.size)
        return
    with pytest.raises(GatewayError) as refused:
        check_tools(limit.count, limit.size)
    error = refused.value
    assert (error.kind, error.code, error.param) == (ErrorKind.BAD_REQUEST, limit.code, "tools")
    for number in (limit.count, limit.size, MAX_TOOLS, MAX_TOOL_BYTES):
        assert f"{number:,}" in error.message


@pytest.mark.parametrize(
    ("letter", "count", "more", "size"),
    [
        ("a", MAX_USER_BYTES, "", None),
        ("a", MAX_USER_BYTES, "a", MAX_USER_BYTES + 1),
        ("é", MAX_USER_BYTES // 2, "", None),
        ("é", MAX_USER_BYTES // 2, "a", MAX_USER_BYTES + 1),
        ("😀", MAX_USER_BYTES // 4, "😀", MAX_USER_BYTES + 4),
        ("\ud800", MAX_USER_BYTES // 3, "\ud800", MAX_USER_BYTES // 3 * 3 + 3),
    ],
    ids=["full", "one more", "two bytes each", "and one", "four bytes each", "half a pair"],
)
def test_l3_the_newest_message(letter: str, count: int, more: str, size: int | None) -> None:
    text = letter * count + more
    if size is None:
        check_user_text(text)
        return
    with pytest.raises(GatewayError) as refused:
        check_user_text(text)
    error = refused.value
    assert (error.kind, error.code) == (ErrorKind.TOO_LARGE, "message_too_large")
    assert str(size) in error.message and str(MAX_USER_BYTES) in error.message


HISTORIES: dict[str, Callable[[], list[Message]]] = {
    "short": lambda: chat(10),
    "full": lambda: chat(MAX_ROOTS),
    "one more": lambda: chat(MAX_ROOTS + 1),
    "long": lambda: chat(1000),
    "very long": lambda: chat(9999),
    "steps": lambda: steps(400),
    "steps with ten calls": lambda: steps(60, calls=10),
    "one step with a thousand calls": lambda: steps(1, calls=1000),
    "large": lambda: [user("x" * BLOCK_BYTES) if n % 2 == 0 else assistant("y") for n in range(250)],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_l4_everything_is_told_and_it_fits(name: str) -> None:
    history = HISTORIES[name]()
    fitted = fit_history(history, MODEL)
    assert len(fitted) <= MAX_ROOTS
    if len(history) <= MAX_ROOTS:
        assert fitted is history
    whole = b"".join(root_messages(fitted)).decode()
    for message in history:
        for part in message.parts:
            match part:
                case Text(text=text):
                    assert text in whole
                case ToolResult(content=(Text(text=text),)):
                    assert text in whole
    called: set[str] = set()
    for message in fitted:
        called |= {part.id for part in message.parts if isinstance(part, ToolCall)}
        for part in message.parts:
            assert not isinstance(part, ToolResult) or part.call_id in called, "a result without its call"


def test_l4_the_newest_stay_as_they_are() -> None:
    history = chat(1000)
    assert list(fit_history(history, MODEL))[-KEPT:] == history[-KEPT:]


def test_l4_blocks_stay_while_the_history_grows() -> None:
    history = chat(600)
    changed = 0
    before = fit_history(history[: MAX_ROOTS + 1], MODEL)
    for count in range(MAX_ROOTS + 2, 601):
        after = fit_history(history[:count], MODEL)
        same = sum(1 for one, other in zip(before, after, strict=False) if one == other)
        changed += same < len(before)
        before = after
    # Only when a block is full does anything before the newest message change.
    assert changed <= 600 // BLOCK


def test_l4_cursors_own_models_have_no_such_limit() -> None:
    history = chat(1000)
    assert fit_history(history, "composer-2.5") is history


def test_l4_pictures_stay() -> None:
    picture = Image(b"png", "image/png")
    history = [Message(Role.USER, (Text("look"), picture)), *chat(300)]
    first = fit_history(history, MODEL)[0]
    assert picture in first.parts
    assert [type(part) for part in first.parts] == [Text, Image, Text]


def request(tools: int = 0, newest: str = "hi") -> TurnRequest:
    offered = tuple(ToolSpec(f"tool_{n}", "d", {"type": "object"}) for n in range(tools))
    return TurnRequest(MODEL, (*chat(300), user(newest)), tools=offered)


def test_an_opening_is_checked_unless_the_settings_say_otherwise() -> None:
    checked, unchecked = (
        partial(Composer(RunContext(), check_limits=check).compose, conversation_id="c", run_id="r")
        for check in (True, False)
    )
    assert len(checked(request()).blobs) <= MAX_ROOTS
    assert len(unchecked(request()).blobs) == 300
    for refused in (request(tools=331), request(newest="a" * (MAX_USER_BYTES + 1))):
        with pytest.raises(GatewayError):
            checked(refused)
        assert len(unchecked(refused).blobs) == 300


def test_the_size_of_tools_is_that_of_the_message() -> None:
    opening = Composer(RunContext()).compose(request(tools=5), conversation_id="c", run_id="r")
    sent = pb.AgentRunRequest.FromString(opening.tools).mcp_tools
    assert OfferedTools().offer(request(tools=5).tools).size == sent.ByteSize()
