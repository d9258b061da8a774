"""One request to a dialect: what is decoded and opened, the headers that tell of it, and the record at the end."""

import asyncio
import base64
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from caretway.api.answer import Pace
from caretway.api.respond import Responder, decode_large, decode_parsed
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import TextDelta, TurnEnded, TurnFailed, TurnPaused
from caretway.core.records import RequestOrigin, TurnRecord
from caretway.core.request import TurnRequest
from caretway.dialects.openai_chat import OpenAIChat
from caretway.processes.tasks import spawn
from caretway.server.exchange import HttpRequest
from caretway.server.shape import ShapeLimits
from unit.api.parts import Models, Told, Written, writer

OPENAI_CHAT = OpenAIChat()

LIMITS = ShapeLimits(text=50_000)


def body(text: str, image: bytes = b"") -> bytes:
    url = "data:image/png;base64," + base64.b64encode(image).decode()
    parts: list[object] = [{"type": "text", "text": text}]
    parts += [{"type": "image_url", "image_url": {"url": url}}] if image else []
    return msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": parts}]})


def test_what_was_read_aside_is_marked() -> None:
    request = decode_large(OPENAI_CHAT, body("hi"), {}, LIMITS)
    assert request.large
    assert request.messages[0].text == "hi"


def test_images_do_not_count_as_text() -> None:
    assert decode_large(OPENAI_CHAT, body("hi", b"\x89PNG" + b"x" * 300_000), {}, LIMITS).large


@pytest.mark.parametrize("image", [b"", b"\x89PNG" + b"x" * 300_000])
def test_too_much_text(image: bytes) -> None:
    with pytest.raises(GatewayError) as caught:
        decode_large(OPENAI_CHAT, body("x" * 60_000, image), {}, LIMITS)
    assert (caught.value.kind, caught.value.code) == (ErrorKind.TOO_LARGE, "too_much_text")


def test_what_was_parsed_before() -> None:
    parsed = msgspec.json.decode(body("hi"))
    assert decode_parsed(OPENAI_CHAT, parsed, 100, {}, LIMITS).large


BODY = {"model": "asked", "messages": [{"role": "user", "content": "hi"}], "logit_bias": {"1": 1}}


class Fitting(Models):
    async def fit(self, request: TurnRequest) -> TurnRequest:
        return replace(request, model="given")


class Engine:
    """Sessions and observer in one."""

    def __init__(self) -> None:
        self.opened: list[Told] = []
        self.records: list[TurnRecord] = []
        self.origins: list[RequestOrigin] = []

    async def open(self, request: TurnRequest, origin: RequestOrigin, gone: str) -> Told:
        self.opened.append(Told(request))
        self.origins.append(origin)
        return self.opened[-1]

    def response_ended(self, record: TurnRecord) -> None:
        self.records.append(record)


class Asked:
    def __init__(self, total: float = 1e9, **fields: object) -> None:
        self.engine = Engine()
        self.request = HttpRequest("POST", "/v1/chat/completions", {"x-secret": "s"})
        self.request.body = msgspec.json.encode(BODY | fields)
        self.written: Written
        self.written, response = writer()
        responder = Responder(
            cast(Any, self.engine),
            Fitting(),
            cast(Any, self.engine),
            prepare=lambda request: request,
            backend="sim",
            pace=Pace(1e9, 1e9, total),
        )
        self.task = spawn(responder.answer(OPENAI_CHAT, self.request, response, "req_1", []), "answer")

    async def opened(self) -> Told:
        async with asyncio.timeout(10):
            while not self.engine.opened:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.engine.opened[0]


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (TurnEnded(), "end"),
        (TurnPaused(), "paused"),
        (TurnFailed(GatewayError(ErrorKind.QUOTA, "spent")), "quota"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_and_its_record(last: Any, outcome: str, stream: bool) -> None:
    asked = Asked(stream=stream)
    told = await asked.opened()
    told.tell(TextDelta("one"), last)
    await asked.task
    (record,) = asked.engine.records
    assert (record.outcome, record.model, record.stream, record.request_id) == (outcome, "given", stream, "req_1")
    assert record.first_event_ms is not None
    assert (record.asked, record.variant, record.run, record.conversation) == ("asked", "given", "run", "conversation")
    assert (record.error, record.started_at > 0) == ("quota" if outcome == "quota" else "", True)
    (origin,) = asked.engine.origins
    assert (origin.request_id, origin.dialect, origin.model) == ("req_1", "openai_chat", "asked")
    assert origin.caller == record.caller == asked.request.caller
    assert told.closed
    assert told.repeats == (OPENAI_CHAT.repeats if stream else 0)
    if outcome != "quota":
        assert b"x-caretway-model: given" in asked.written.head
        assert any(line.startswith(b"x-caretway-ignored: ") and b"logit_bias" in line for line in asked.written.head)


async def test_what_was_read_is_not_held() -> None:
    asked = Asked()
    told = await asked.opened()
    assert (asked.request.body, dict(asked.request.headers)) == (b"", {})
    told.tell(TurnEnded())
    await asked.task


async def test_a_client_that_hangs_up() -> None:
    asked = Asked(stream=True)
    told = await asked.opened()
    told.tell(TextDelta("one"))
    asked.task.cancel()
    await asyncio.wait([asked.task])
    assert told.closed
    assert [record.outcome for record in asked.engine.records] == ["hung up"]


async def test_an_answer_that_took_too_long() -> None:
    asked = Asked(total=0.0)
    await asked.opened()
    wake = asked.written.wakes[-1][1]
    assert wake is not None
    wake()
    await asked.task
    assert [record.outcome for record in asked.engine.records] == ["timeout"]


async def test_a_body_that_is_refused_opens_nothing() -> None:
    asked = Asked(messages=[])
    with pytest.raises(GatewayError) as caught:
        await asked.task
    assert caught.value.kind is ErrorKind.BAD_REQUEST
    assert (asked.engine.opened, asked.engine.records) == ([], [])


async def test_a_large_body_is_read_aside() -> None:
    asked = Asked(messages=[{"role": "user", "content": "x" * 2**21}])
    told = await asked.opened()
    assert told.request.large
    told.tell(TurnEnded())
    await asked.task
