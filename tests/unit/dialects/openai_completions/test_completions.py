"""The old Completions API: one prompt, plain text, judged by the openai package's own types."""

import json

import msgspec
import pytest
from openai.types import Completion

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, ReasoningDelta, StopReason, TextDelta, TurnEnded, TurnFailed, TurnStarted, Usage
from caretway.core.events import UsageReported as Reported
from caretway.core.fold import fold
from caretway.core.request import Role, TurnRequest
from caretway.dialects import ResponseMeta
from caretway.dialects.openai_completions import OpenAICompletions

OPENAI_COMPLETIONS = OpenAICompletions()

META = ResponseMeta("0" * 32, 1_700_000_000, "sim-auto")
SAID: list[Event] = [TurnStarted(), ReasoningDelta("hm"), TextDelta("one "), TextDelta("two"), Reported(Usage(7, 2))]


def decode(**fields: object) -> TurnRequest:
    return OPENAI_COMPLETIONS.decode({"model": "sim-auto", **fields}, {})


@pytest.mark.parametrize("prompt", ["Say hello", ["Say hello"]])
def test_the_prompt_is_one_user_message(prompt: object) -> None:
    request = decode(prompt=prompt, stop="\n", user="me")
    assert [(message.role, message.text) for message in request.messages] == [(Role.USER, "Say hello")]
    assert (request.stop, request.ignored, request.tools) == (("\n",), (), ())


def test_what_has_no_effect_is_named() -> None:
    request = decode(prompt="a", max_tokens=16, temperature=0, logprobs=3, echo=True, best_of=1, other=1)
    assert request.ignored == ("max_tokens", "temperature", "logprobs", "echo", "other")
    assert request.max_output == 16


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": [[1, 2, 3]]}, "prompt"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "n": "1"}, "n"),
        ({"prompt": "a", "suffix": "end"}, "suffix"),
        ({"prompt": "a", "max_tokens": "many"}, "max_tokens"),
    ],
)
def test_what_cannot_be_done_is_refused(fields: dict[str, object], param: str) -> None:
    with pytest.raises(GatewayError) as caught:
        decode(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(("reason", "finish"), [(StopReason.END, "stop"), (StopReason.LENGTH, "length")])
@pytest.mark.parametrize("include", [False, True])
def test_whole_equals_streamed(reason: StopReason, finish: str, include: bool) -> None:
    request = decode(prompt="a", stream=True, stream_options={"include_usage": include})
    events = [*SAID, TurnEnded(reason)]
    whole = Completion.model_validate(json.loads(OPENAI_COMPLETIONS.render(fold(events), request, META)), strict=True)
    encoder = OPENAI_COMPLETIONS.encoder(request, META)
    drops = b"".join(encoder.feed([event]) for event in events).decode().split("\n\n")
    assert drops[-2:] == ["data: [DONE]", ""]
    # Built as the package does it: its type has no null for the finish reason that the API sends until the end.
    chunks = [Completion.construct(**json.loads(drop.removeprefix("data: "))) for drop in drops[:-2]]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text == "one two"
    assert (whole.choices[0].finish_reason, whole.id) == (finish, chunks[0].id)
    assert [chunk.usage for chunk in chunks if chunk.usage] == ([whole.usage] if include else [])
    assert whole.usage is not None
    assert whole.usage.total_tokens == 9


def test_a_failure_is_an_event_and_nothing_follows() -> None:
    encoder = OPENAI_COMPLETIONS.encoder(decode(prompt="a"), META)
    out = encoder.feed([*SAID, TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "Gone.")), TextDelta("late")])
    last, done, _ = out.decode().rsplit("\n\n", 2)
    assert msgspec.json.decode(last.rpartition("data: ")[2])["error"]["code"] == "upstream_unavailable"
    assert done == "data: [DONE]"
    assert encoder.feed([TextDelta("later")]) == b""
