"""Events -> the frames of a Responses stream and the whole answer: from the same table, each judged by the other."""

from typing import Any

import msgspec
import pytest

from caretway.core.errors import RETRYABLE, ErrorKind, GatewayError
from caretway.core.events import EventOrder, TextDelta, TurnEnded, TurnFailed, TurnStarted
from caretway.core.fold import Reply, fold
from caretway.core.request import ToolCall, TurnRequest

from .turns import BODY, FAILED, META, WHOLE, dialect, frames, stream

ALL = WHOLE | FAILED


def whole(name: str, **more: Any) -> Any:
    made = dialect()
    return msgspec.json.decode(made.render(fold(WHOLE[name]), made.decode({**BODY, **more}, {}), META))


def types(payloads: list[Any]) -> list[str]:
    return [payload["type"].removeprefix("response.") for payload in payloads]


@pytest.mark.parametrize("name", ALL)
def test_the_turns_could_happen(name: str) -> None:
    order = EventOrder()
    for event in ALL[name]:
        order.check(event)


# ---- the stream says what the whole answer says


@pytest.mark.parametrize("summary", ["auto", None])
@pytest.mark.parametrize("name", WHOLE)
def test_the_stream_ends_with_the_whole_answer(name: str, summary: str | None) -> None:
    asked = {"reasoning": {"summary": summary}}
    assert frames(stream(WHOLE[name], **asked))[-1]["response"] == whole(name, **asked)


@pytest.mark.parametrize("name", ALL)
def test_drip_fed_streams_are_the_same(name: str) -> None:
    made = dialect()
    encoder = made.encoder(made.decode(BODY, {}), META)
    assert b"".join(encoder.feed([event]) for event in ALL[name]) == stream(ALL[name])


@pytest.mark.parametrize("name", ALL)
def test_numbers_rise_and_items_begin_and_end_once(name: str) -> None:
    payloads = frames(stream(ALL[name]))
    assert [payload["sequence_number"] for payload in payloads] == list(range(len(payloads)))
    assert types(payloads)[:2] == ["created", "in_progress"]
    added = [payload for payload in payloads if payload["type"] == "response.output_item.added"]
    done = [payload for payload in payloads if payload["type"] == "response.output_item.done"]
    assert [payload["output_index"] for payload in added] == list(range(len(added)))
    output = payloads[-1]["response"]["output"]
    if name in WHOLE:
        assert sorted(payload["output_index"] for payload in done) == list(range(len(added)))
        assert [payload["item"] for payload in sorted(done, key=lambda one: one["output_index"])] == output
        assert [(item["id"], item["type"]) for item in output] == [
            (one["item"]["id"], one["item"]["type"]) for one in added
        ]
    for payload in payloads:
        if "item_id" in payload:
            assert payload["item_id"] == added[payload["output_index"]]["item"]["id"]


@pytest.mark.parametrize("name", WHOLE)
def test_an_item_is_done_before_the_next_one_begins(name: str) -> None:
    """agno loses a call when another begins before it is done."""
    spans = [
        (payload["type"], payload["output_index"])
        for payload in frames(stream(WHOLE[name]))
        if payload["type"].startswith("response.output_item.")
    ]
    kinds = ("response.output_item.added", "response.output_item.done")
    assert spans == [(kind, index) for index in range(len(spans) // 2) for kind in kinds]


@pytest.mark.parametrize("name", WHOLE)
def test_the_deltas_join_to_the_items(name: str) -> None:
    joined: dict[int, str] = {}
    payloads = frames(stream(WHOLE[name]))
    for payload in payloads:
        if payload["type"].endswith(".delta"):
            joined[payload["output_index"]] = joined.get(payload["output_index"], "") + payload["delta"]
    for index, item in enumerate(payloads[-1]["response"]["output"]):
        match item["type"]:
            case "message":
                text = item["content"][0]["text"]
            case "reasoning":
                text = item["summary"][0]["text"]
            case "function_call":
                text = item["arguments"]
            case "tool_search_call":
                continue  # it has no deltas
            case _:
                text = item["input"]
        assert joined[index] == text


# ---- sequences, one by one


def test_text() -> None:
    payloads = frames(stream(WHOLE["text"]))
    assert types(payloads)[2:] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert payloads[2]["item"] == {
        "id": "msg_abc_0",
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    assert payloads[4] == {
        "type": "response.output_text.delta",
        "sequence_number": 4,
        "item_id": "msg_abc_0",
        "output_index": 0,
        "content_index": 0,
        "delta": "PO",
        "logprobs": [],
    }
    assert payloads[6]["text"] == 'PONG\n"é\u2028'


def test_reasoning_is_a_summary_if_asked_for() -> None:
    payloads = frames(stream(WHOLE["reasoning, then text"]))
    assert types(payloads)[2:9] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert payloads[8]["item"] == {
        "id": "rs_abc_0",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
    }
    hidden = frames(stream(WHOLE["both in turns"], reasoning={"effort": "low"}))
    assert [item["content"][0]["text"] for item in hidden[-1]["response"]["output"]] == ["ad"]


def test_calls() -> None:
    payloads = frames(stream(WHOLE["one call"]))
    assert types(payloads)[-7:] == [
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert payloads[-6]["item"]["arguments"] == ""
    assert payloads[-2]["item"] == {
        "id": "fc_abc_1",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_a",
        "name": "shell",
        "arguments": '{"command": "ls"}',
    }
    output = frames(stream(WHOLE["parallel calls interleave"]))[-1]["response"]["output"]
    assert [(item["type"], item.get("namespace"), item.get("name")) for item in output] == [
        ("function_call", None, "shell"),
        ("function_call", "crm", "find"),
        ("message", None, None),
    ]


def test_custom_tools_get_their_text() -> None:
    payloads = frames(stream(WHOLE["a custom tool"]))
    assert types(payloads)[2:6] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    first, second = payloads[-1]["response"]["output"]
    assert (first["type"], first["name"], first["call_id"], first["input"]) == (
        "custom_tool_call",
        "patch",
        "call_a",
        "a\nb",
    )
    assert second["input"] == "not JSON"


def test_a_tool_search_goes_back_as_its_own_item() -> None:
    payloads = frames(stream(WHOLE["a tool search"]))
    assert types(payloads)[2:6] == ["output_item.added", "output_item.done"] * 2
    item = {"id": "tsc_abc_0", "type": "tool_search_call", "call_id": "call_a", "execution": "client"}
    assert payloads[2]["item"] == item | {"status": "in_progress", "arguments": {}}
    assert payloads[3]["item"] == item | {"status": "completed", "arguments": {"query": "x"}}
    assert payloads[-1]["response"]["output"][1]["arguments"] == "not JSON"


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("text", "completed", None),
        ("one call", "completed", None),
        ("cut off", "incomplete", "max_output_tokens"),
        ("refused", "incomplete", "content_filter"),
    ],
)
def test_status(name: str, status: str, reason: str | None) -> None:
    last = frames(stream(WHOLE[name]))[-1]
    assert last["type"] == f"response.{status}"
    assert last["response"]["status"] == status
    assert last["response"]["incomplete_details"] == (reason and {"reason": reason})
    if reason:
        assert last["response"]["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("at once", "not_authenticated", []),
        ("after text", "upstream_error", ["PART"]),
        ("in a call", "rate_limit_exceeded", []),
    ],
)
def test_a_failure_is_the_last_word(name: str, code: str, said: list[str]) -> None:
    made = dialect()
    encoder = made.encoder(made.decode(BODY, {}), META)
    last = frames(encoder.feed(FAILED[name]))[-1]
    assert last["type"] == "response.failed"
    response = last["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", code)
    assert [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"] == said
    assert not [item for item in response["output"] if item["type"] == "function_call"]
    assert encoder.feed([TextDelta("x"), TurnEnded()]) == b""
    assert encoder.keep_alive == b""


def test_every_kind_of_failure_has_a_code() -> None:
    for kind in ErrorKind:
        failed = frames(stream([TurnStarted(), TurnFailed(GatewayError(kind, "x"))]))[-1]["response"]["error"]
        assert failed["code"]
        assert failed["message"] == "x"
        assert failed["should_retry"] is (kind in RETRYABLE)


# ---- beside the items


def test_usage_is_what_is_known() -> None:
    assert whole("text")["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    assert whole("an estimate")["usage"] == {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 3,
        "estimated": True,
    }
    assert whole("half a count")["usage"] is None
    assert whole("nothing")["usage"] is None


def test_the_request_is_repeated() -> None:
    response = whole("a note", previous_response_id=None, tool_choice="auto", text={"verbosity": "low"}, user="u")
    assert response["id"] == "resp_abc"
    assert response["created_at"] == 1_700_000_000
    assert response["model"] == 'm"1'
    assert response["instructions"] == "be brief"
    assert response["metadata"] == {"k": "v"}
    assert response["tools"] == BODY["tools"]
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert response["reasoning"] == {"effort": "low", "summary": "auto"}
    assert (response["store"], response["user"], response["parallel_tool_calls"]) == (True, "u", True)
    assert response["caretway"] == {"response_format": "valid"}


def test_a_reply_without_an_order_is_shown_in_the_usual_one() -> None:
    made = dialect()
    reply = Reply(text="x", reasoning="h", calls=(ToolCall("c", "shell", "{}"),), paused=True)
    response = msgspec.json.decode(made.render(reply, made.decode(BODY, {}), META))
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]


def test_a_request_that_this_dialect_did_not_decode() -> None:
    made = dialect()
    response = msgspec.json.decode(made.render(Reply(text="x"), TurnRequest("m", ()), META))
    assert response["tools"] == []


# ---- keep-alive


def test_keep_alive_is_a_numbered_event_and_opens_a_stream_that_has_not_begun() -> None:
    made = dialect()
    encoder = made.encoder(made.decode(BODY, {}), META)
    raw = encoder.feed([]) + encoder.keep_alive + encoder.feed([TurnStarted(), TextDelta("a")])
    raw += encoder.keep_alive + encoder.keep_alive + encoder.feed([TurnEnded()])
    payloads = frames(raw)
    assert [payload["sequence_number"] for payload in payloads] == list(range(len(payloads)))
    assert types(payloads) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "in_progress",
        "in_progress",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert encoder.keep_alive == b""
