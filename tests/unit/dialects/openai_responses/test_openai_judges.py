"""OpenAI's own library as a foreign judge: its models and its stream accumulator read our bytes. No sockets."""

import json
from typing import Any

import httpx2
import pytest
from openai import APIError, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from caretway.core.events import Event
from caretway.core.fold import fold

from .turns import BODY, FAILED, META, WHOLE, dialect, frames, stream

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE_IS_WHOLE = [name for name, events in WHOLE.items() if name != "an estimate"]
"""The library's types know no usage without its details; its clients live with it (they do not validate)."""


def client(body: bytes, kind: str) -> OpenAI:
    """The real client, with our bytes where the network would be."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": kind})

    transport = httpx2.MockTransport(answer)
    return OpenAI(api_key="k", base_url="http://gateway/v1", http_client=httpx2.Client(transport=transport))


def streaming(raw: bytes) -> Any:
    return client(raw, "text/event-stream").responses.stream(model="m", input="hi", tools=BODY["tools"])


@pytest.mark.parametrize("name", USAGE_IS_WHOLE)
def test_strict_models_accept_every_event_and_the_answer(name: str) -> None:
    made = dialect()
    for payload in frames(stream(WHOLE[name])):
        EVENT.validate_python(payload)
    Response.model_validate_json(made.render(fold(WHOLE[name]), made.decode(BODY, {}), META))


@pytest.mark.parametrize("name", WHOLE)
def test_their_stream_helper_rebuilds_the_answer(name: str) -> None:
    made = dialect()
    whole = made.render(fold(WHOLE[name]), made.decode(BODY, {}), META)
    answer = client(whole, "application/json").responses.create(model="m", input="hi")
    with streaming(stream(WHOLE[name])) as events:
        seen = list(events)
    if answer.status == "completed":
        rebuilt = events.get_final_response()
        assert _plain(rebuilt) == _plain(answer)
        assert rebuilt.output_text == fold(WHOLE[name]).text
    else:
        assert seen[-1].type == "response.incomplete"
        assert _plain(seen[-1].response) == _plain(answer)


@pytest.mark.parametrize("name", WHOLE)
def test_their_snapshots_grow_to_the_same_text(name: str) -> None:
    snapshots: dict[int, str] = {}
    final: dict[int, str] = {}
    with streaming(stream(WHOLE[name])) as events:
        for event in events:
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                snapshots[event.output_index] = event.snapshot
            elif event.type == "response.output_text.done":
                final[event.output_index] = event.text
            elif event.type == "response.function_call_arguments.done":
                final[event.output_index] = event.arguments
    assert snapshots == final


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_arrives_as_one(name: str) -> None:
    with streaming(stream(FAILED[name])) as events:
        seen = list(events)
    assert seen[-1].type == "response.failed"
    assert seen[-1].response.error.message == str(_failure(FAILED[name]))
    with pytest.raises((RuntimeError, APIError)):
        events.get_final_response()


def test_keep_alives_change_nothing() -> None:
    """Between any two events, and before the first."""
    made = dialect()
    for name, turn in WHOLE.items():
        encoder = made.encoder(made.decode(BODY, {}), META)
        raw = b"".join(encoder.keep_alive + encoder.feed([event]) for event in turn)
        with streaming(raw) as events:
            seen = list(events)
        assert sum(event.type == "response.in_progress" for event in seen) >= len(turn) - 1, name
        if seen[-1].type == "response.completed":
            with streaming(stream(turn)) as quiet:
                quiet.until_done()
            assert _plain(events.get_final_response()) == _plain(quiet.get_final_response())


def _failure(events: list[Event]) -> Any:
    return fold(events).error


def _plain(response: Any) -> Any:
    """Without what the helper adds when it parses arguments."""
    plain = json.loads(response.model_dump_json(exclude_unset=True, warnings=False))
    for item in plain["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content", ()):
            part.pop("parsed", None)
    return plain
