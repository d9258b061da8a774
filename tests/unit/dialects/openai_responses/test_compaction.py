"""A conversation shortened: what is asked, what comes back, and what a later request makes of it."""

import json
from typing import Any

import pytest
from openai.types.responses import CompactedResponse

from caretway.core.errors import GatewayError
from caretway.core.events import Event, ReasoningDelta, TextDelta, TurnEnded, TurnStarted, Usage, UsageReported
from caretway.core.fold import fold
from caretway.core.request import Role, TurnRequest
from caretway.dialects import ResponseMeta
from caretway.dialects.fields import HEADING
from caretway.dialects.openai_responses import ResponseStore, openai_compaction, openai_responses
from caretway.dialects.openai_responses.items import unwrap, wrap

META = ResponseMeta("1" * 32, 1_700_000_000, "sim-auto")
STORE = ResponseStore()
COMPACTION, RESPONSES = openai_compaction(STORE), openai_responses(STORE)
SUMMARY = "We deploy on Friday – vielleicht 明日."
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Deploy it."},
    {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "done"},
    {"role": "assistant", "content": "Deployed."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And tell me."}]},
]


def ask(**fields: object) -> TurnRequest:
    return COMPACTION.decode({"model": "m", "input": HISTORY, **fields}, {})


def answer(*events: Event, **fields: object) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        COMPACTION.render(fold([TurnStarted(), *events, TurnEnded()]), ask(**fields), META)
    )
    return body


def test_the_whole_conversation_is_told_and_a_summary_is_asked_for() -> None:
    request = ask(tools=[{"type": "function", "name": "bash"}], instructions="Be kind.")
    assert [message.role for message in request.messages][-2:] == [Role.USER, Role.USER]
    assert request.messages[-1].text.startswith("Do not go on with the task.")
    assert request.tools == ()
    assert request.system == "Be kind."


def test_the_answer_is_what_the_official_sdk_reads() -> None:
    body = answer(TextDelta(SUMMARY), UsageReported(Usage(900, 12, 800, 5, 3)))
    # The user's messages are what the API gives; the package's type knows only the assistant's, and reads them loosely.
    assert [item["type"] for item in body["output"]] == ["message", "message", "compaction"]
    read = CompactedResponse.model_validate(body | {"output": body["output"][2:]})
    assert [item.get("content") for item in body["output"][:2]] == [
        [{"type": "input_text", "text": "Deploy it."}],
        [{"type": "input_text", "text": "And tell me."}],
    ]
    assert read.usage.total_tokens == 912


def test_usage_that_is_not_told_is_estimated() -> None:
    usage = answer(TextDelta(SUMMARY))["usage"]
    assert usage["estimated"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_the_item_comes_back_as_text() -> None:
    shortened = answer(TextDelta(SUMMARY))["output"]
    request = RESPONSES.decode({"model": "m", "input": [*shortened, {"role": "user", "content": "Go on."}]}, {})
    assert [message.text for message in request.messages] == [
        "Deploy it.",
        "And tell me.",
        f"{HEADING}\n\n{SUMMARY}",
        "Go on.",
    ]
    assert request.ignored == ()


@pytest.mark.parametrize("content", ["gAAAAABopenai", "caretway1.%%%", "caretway1.gA==", "caretway1.7aCA", None, 7])
def test_an_item_of_somebody_else_is_named(content: object) -> None:
    items = [{"type": "compaction", "encrypted_content": content}, {"role": "user", "content": "Go on."}]
    assert RESPONSES.decode({"model": "m", "input": items}, {}).ignored == ("input.compaction",)


def test_a_wrapped_summary_is_found_again() -> None:
    assert unwrap(wrap(SUMMARY)) == SUMMARY


def test_a_plain_text_is_a_conversation_too() -> None:
    body = answer(TextDelta("short"), input="Hello")
    assert body["output"][0]["content"] == [{"type": "input_text", "text": "Hello"}]


def test_a_message_that_says_nothing_is_not_kept() -> None:
    body = answer(TextDelta("short"), input=[{"role": "user"}, {"role": "user", "content": "Hello"}])
    assert [item["type"] for item in body["output"]] == ["message", "compaction"]


def test_no_summary_is_an_error() -> None:
    with pytest.raises(GatewayError, match="wrote no summary"):
        answer(TextDelta("  "))


def test_a_stream_is_refused() -> None:
    with pytest.raises(GatewayError, match="answered as a whole"):
        ask(stream=True)


# ---- asked for by an item, as Codex does


TRIGGER = {"type": "compaction_trigger"}
TOOLS = [{"type": "function", "name": "bash"}]


def triggered(*events: Event, **fields: object) -> tuple[TurnRequest, list[dict[str, Any]], dict[str, Any]]:
    """The request, what is streamed, and the whole answer."""
    body = {"model": "m", "input": [*HISTORY, TRIGGER], "tools": TOOLS, "store": False, **fields}
    request = RESPONSES.decode(body, {})
    shown = [TurnStarted(), *events, TurnEnded()]
    encoder = RESPONSES.encoder(request, META)
    streamed = b"".join(encoder.feed([event]) for event in shown).decode()
    told = [json.loads(line[6:]) for line in streamed.split("\n") if line.startswith("data: ")]
    return request, told, json.loads(RESPONSES.render(fold(shown), request, META))


@pytest.mark.parametrize("at", [0, 2, len(HISTORY)])
def test_a_trigger_asks_for_the_whole_conversation_wherever_it_stands(at: int) -> None:
    items = [*HISTORY[:at], TRIGGER, *HISTORY[at:]]
    request = RESPONSES.decode({"model": "m", "input": items, "tools": TOOLS, "store": False}, {})
    assert request.messages[-1].text.startswith("Do not go on with the task.")
    assert len(request.messages) == 6
    assert (request.tools, request.ignored) == ((), ())


def test_a_trigger_is_answered_with_exactly_one_item() -> None:
    told = triggered(ReasoningDelta("hm"), TextDelta(SUMMARY[:9]), TextDelta(SUMMARY[9:]))[1]
    assert [event["type"] for event in told] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    (item,) = told[-1]["response"]["output"]
    assert told[-2]["item"] == item
    assert (item["type"], unwrap(item["encrypted_content"])) == ("compaction", SUMMARY)


def test_a_triggered_answer_is_the_same_whole_and_streamed() -> None:
    told, whole = triggered(TextDelta(SUMMARY), UsageReported(Usage(900, 12, 800, 5, 3)))[1:]
    assert whole == told[-1]["response"]


def test_a_triggered_answer_without_a_summary_is_a_failure() -> None:
    request = RESPONSES.decode({"model": "m", "input": [*HISTORY, TRIGGER]}, {})
    failed = RESPONSES.encoder(request, META).feed([TurnStarted(), TextDelta(" "), TurnEnded()]).decode()
    assert "response.failed" in failed
    assert "wrote no summary" in failed
    with pytest.raises(GatewayError, match="wrote no summary"):
        RESPONSES.render(fold([TurnStarted(), TurnEnded()]), request, META)


def test_what_follows_a_stored_summary_is_the_summary_alone() -> None:
    whole = triggered(TextDelta(SUMMARY), store=True)[2]
    request = RESPONSES.decode({"model": "m", "previous_response_id": whole["id"], "input": "Go on."}, {})
    assert [message.text for message in request.messages] == [f"{HEADING}\n\n{SUMMARY}", "Go on."]
