"""Answers on their way out, told as stories: what came from the turn, what the client did, what was written then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from caretway.api.answer import Answer, Pace, StreamedAnswer, WholeAnswer, send_error
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import TextDelta, TurnEnded, TurnFailed, TurnStarted
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.dialects import ResponseMeta
from caretway.dialects.anthropic_messages import AnthropicMessages
from caretway.dialects.in_turn import one_line
from caretway.dialects.openai_chat import OpenAIChat
from caretway.processes.tasks import spawn
from caretway.server.exchange import ResponseWriter
from unit.api.parts import Told, Written, writer

OPENAI_CHAT = OpenAIChat()
ANTHROPIC_MESSAGES = AnthropicMessages()

K = ErrorKind
AGAIN: list[tuple[GatewayError, bytes, bytes | None]] = [
    (GatewayError(K.BAD_REQUEST, "no"), b"false", None),
    (GatewayError(K.RATE_LIMITED, "no", retry_after=7.4), b"true", b"7"),
    (GatewayError(K.RATE_LIMITED, "no", retry_after=0.01), b"true", b"1"),
    (GatewayError(K.RATE_LIMITED, "no"), b"true", None),
    (GatewayError(K.OVERLOADED, "no"), b"true", b"1"),
    (GatewayError(K.UPSTREAM_DOWN, "no"), b"true", b"1"),
    (GatewayError(K.UPSTREAM_DOWN, "no", repeatable=False), b"false", None),
    (GatewayError(K.QUOTA, "no", retry_after=1_314_830.0), b"false", None),
    (GatewayError(K.WRONG_PROTOCOL, "no"), b"false", None),
]


@pytest.mark.parametrize(("error", "again", "after"), AGAIN)
def test_whether_asking_again_helps(error: GatewayError, again: bytes, after: bytes | None) -> None:
    written, response = writer()
    given = [(b"x-a", b"1")]
    send_error(response, OPENAI_CHAT, error, given)
    assert b"x-should-retry: " + again in written.head
    waits = [line for line in written.head if line.startswith(b"retry-after: ")]
    assert waits == ([b"retry-after: " + after] if after else [])
    assert b"x-a: 1" in written.head
    assert given == [(b"x-a", b"1")]


def test_the_words_are_the_dialects() -> None:
    error = GatewayError(K.OVERLOADED, "no")
    statuses = []
    for dialect in (OPENAI_CHAT, ANTHROPIC_MESSAGES):
        written, response = writer()
        send_error(response, dialect, error, ())
        statuses.append(written.status)
        assert (written.status, written.body) == dialect.error(error)
    assert statuses == [429, 529]


REQUEST = TurnRequest("m", (Message(Role.USER, (Text("hi"),)),), stream=True)
SPENT = GatewayError(ErrorKind.QUOTA, "spent")
AT_ONCE, NEVER = 0.0, 1e9


class Story:
    def __init__(self, kind: type[Answer], pace: Pace) -> None:
        self.told = Told(REQUEST)
        self.written = Written()
        self.writer = ResponseWriter(self.written, keep_alive=True, chunked=True)
        meta = ResponseMeta("id", 0, "m")
        self.answer = kind(OPENAI_CHAT, cast(Any, self.told), meta, [(b"x-a", b"1")], self.writer, pace)
        self.task = spawn(self.answer.run_to_end(), "answer")

    def time_passes(self) -> None:
        """The moment has come for which the answer asked last."""
        wake = self.written.wakes[-1][1]
        assert wake is not None
        wake()

    @property
    def data(self) -> bytes:
        return self.written.data


@asynccontextmanager
async def story(
    kind: type[Answer] = StreamedAnswer, keep_alive: float = NEVER, patience: float = NEVER, total: float = NEVER
) -> AsyncIterator[Story]:
    made = Story(kind, Pace(keep_alive, patience, total))
    await asyncio.sleep(0)  # it listens now
    try:
        yield made
    finally:
        made.answer.stop()
        made.task.cancel()
        await asyncio.wait([made.task])


async def test_a_stream_begins_with_its_first_real_event() -> None:
    async with story() as it:
        it.told.tell(TurnStarted())
        assert it.data == b""
        it.told.tell(TextDelta("one"))
        assert it.written.status == 200
        assert b"x-caretway-session: fresh" in it.written.head
        assert b"x-a: 1" in it.written.head
        assert b'"content":"one"' in it.data
        it.told.tell(TextDelta("two"))
        assert b'"content":"two"' in it.data
        it.told.tell(TurnEnded())
        await it.task
        assert it.data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert it.answer.first_at is not None


async def test_a_failure_before_the_first_real_event_is_a_status() -> None:
    async with story() as it:
        it.told.tell(TurnStarted(), TurnFailed(SPENT))
        await it.task
        assert it.written.status == 402


async def test_a_failure_after_it_is_an_event() -> None:
    async with story() as it:
        it.told.tell(TextDelta("half"))
        it.told.tell(TurnFailed(SPENT))
        await it.task
        assert it.written.status == 200
        assert b"spent" in it.data


async def test_a_client_that_does_not_take_holds_the_turn_back() -> None:
    async with story() as it:
        it.told.tell(TextDelta("one"))
        it.writer.pause()
        before = it.data
        it.told.tell(TextDelta("two"), TextDelta("three"))
        assert (it.data, it.told.untaken) == (before, 2)
        it.writer.resume()
        assert it.told.untaken == 0
        assert b"three" in it.data


async def test_a_stream_is_opened_without_an_event_after_a_while() -> None:
    async with story(patience=AT_ONCE) as it:
        it.time_passes()
        assert it.written.status == 200
        it.told.tell(TurnFailed(SPENT))
        await it.task
        assert b"spent" in it.data


async def test_a_silent_stream_gets_signs_of_life() -> None:
    async with story(keep_alive=AT_ONCE) as it:
        it.told.tell(TextDelta("one"))
        for count in (1, 2):
            it.time_passes()
            assert it.data.count(b": keep-alive") == count
        it.writer.pause()
        it.time_passes()
        assert it.data.count(b": keep-alive") == 2, "its silence is not upstream's"


async def test_silence_counts_from_the_last_word() -> None:
    async with story(keep_alive=NEVER) as it:
        it.told.tell(TextDelta("one"))
        it.time_passes()
        assert b"keep-alive" not in it.data


async def test_an_answer_may_not_take_for_ever() -> None:
    async with story(total=AT_ONCE) as it:
        it.time_passes()
        await it.task
        assert (it.written.status, it.answer.late) == (504, True)
    async with story(WholeAnswer, total=AT_ONCE) as it:
        it.told.tell(TextDelta("one"))
        it.time_passes()
        await it.task
        assert (it.written.status, it.answer.late) == (504, True)


async def test_a_stream_that_takes_too_long_says_so_in_its_words() -> None:
    async with story(total=AT_ONCE) as it:
        it.told.tell(TextDelta("one"))
        it.time_passes()
        await it.task
        assert it.written.status == 200
        assert b"response_timeout" in it.data


@pytest.mark.parametrize("failed", [False, True])
async def test_a_whole_answer(failed: bool) -> None:
    async with story(WholeAnswer) as it:
        it.told.tell(TurnStarted(), TextDelta("one "))
        it.told.tell(TextDelta("two"))
        assert it.data == b""
        it.told.tell(TurnFailed(SPENT) if failed else TurnEnded())
        await it.task
        body = msgspec.json.decode(it.written.body)
        assert it.written.status == (402 if failed else 200)
        assert failed or body["choices"][0]["message"]["content"] == "one two"


@pytest.mark.parametrize("kind", [StreamedAnswer, WholeAnswer])
async def test_a_bug_ends_the_answer_and_not_the_callback(kind: type[Answer]) -> None:
    async with story(kind) as it:
        it.told.bug = RuntimeError("bug")
        it.told.tell(TextDelta("one"))
        with pytest.raises(RuntimeError, match="bug"):
            await it.task


async def test_whoever_calls_it_after_the_end_finds_an_empty_shell() -> None:
    it = Story(StreamedAnswer, Pace(NEVER, NEVER))
    await asyncio.sleep(0)
    it.told.tell(TextDelta("one"), TurnEnded())
    await it.task
    written, asked = it.data, len(it.written.wakes)
    it.answer.stop()
    it.told.tell(TextDelta("two"))
    it.writer.resume()
    it.answer._check_deadline()
    assert (it.data, len(it.written.wakes)) == (written, asked)


@pytest.mark.parametrize(("raw", "escaped"), [("\u2028", b"\\u2028"), ("\u2029", b"\\u2029"), ("\u0085", b"\\u0085")])
async def test_events_hold_no_separator_of_lines(raw: str, escaped: bytes) -> None:
    assert one_line(f"a{raw}b".encode()) == b"a" + escaped + b"b"
    async with story() as it:
        for word in ("first", "é, and later"):
            it.told.tell(TextDelta(f"{word}{raw}."))
        it.told.tell(TextDelta(f"last{raw}."), TurnEnded())
        await it.task
        assert raw.encode() not in it.data
        assert it.data.count(escaped) == 3
        assert "é".encode() in it.data
