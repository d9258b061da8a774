"""Messages that are looked at before they are decoded: none that passes loses anything, and none of them is dear."""

from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis import strategies as st

from caretway.cursor.wire.heavy import (
    MAX_ASKED_BYTES,
    MAX_ASKED_FIELDS,
    MAX_FIELDS,
    MAX_PARTIAL_BYTES,
    NO_CHECKPOINT,
    PIECE_BYTES,
    TEXT,
    THINKING,
    Oversized,
    TooMuch,
    informs,
    lighten,
    read_delta,
)
from caretway.cursor.wire.messages import pb

from .recordings import Run, all_runs


def written(kind: int, words: str) -> bytes:
    update = (
        pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text=words))
        if kind == TEXT
        else pb.InteractionUpdate(thinking_delta=pb.ThinkingDeltaUpdate(text=words))
    )
    return bytes(pb.AgentServerMessage(interaction_update=update).SerializeToString())


def slowly(payload: bytes) -> tuple[int, str] | None:
    """What the real decoder finds, when it is a delta of words and nothing else."""
    try:
        message = pb.AgentServerMessage.FromString(payload)
    except DecodeError:
        return None
    update = message.interaction_update
    match update.WhichOneof("message"):
        case "text_delta":
            found = (TEXT, str(update.text_delta.text))
        case "thinking_delta":
            found = (THINKING, str(update.thinking_delta.text))
        case _:
            return None
    return found if written(*found) == payload else None


@given(some.sampled_from([TEXT, THINKING]), some.text(max_size=140))
def test_deltas_are_read_as_the_decoder_reads_them(kind: int, words: str) -> None:
    payload = written(kind, words)
    short = len(payload) < 130 and words != ""
    assert read_delta(payload) == ((kind, words) if short else None)


@given(some.text(min_size=1, max_size=20), some.data())
def test_a_changed_byte_is_read_as_the_decoder_reads_it_or_left_to_it(words: str, data: some.DataObject) -> None:
    payload = bytearray(written(TEXT, words))
    at = data.draw(some.integers(0, len(payload) - 1))
    payload[at] = data.draw(some.integers(0, 255))
    found = read_delta(bytes(payload))
    assert found is None or found == slowly(bytes(payload))


@given(some.binary(max_size=140))
def test_any_bytes(payload: bytes) -> None:
    found = read_delta(payload)
    assert found is None or found == slowly(payload)


OTHERS = [
    pb.InteractionUpdate(heartbeat=pb.HeartbeatUpdate()),
    pb.InteractionUpdate(token_delta=pb.TokenDeltaUpdate(tokens=7)),
    pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text="notice", is_server_notice=True)),
    pb.InteractionUpdate(turn_ended=pb.TurnEndedUpdate(input_tokens=1)),
]


@pytest.mark.parametrize("update", OTHERS, ids=lambda update: str(update.WhichOneof("message")))
def test_everything_else_is_left_to_the_decoder(update: pb.InteractionUpdate) -> None:
    assert read_delta(pb.AgentServerMessage(interaction_update=update).SerializeToString()) is None


def update(**fields: object) -> bytes:
    return pb.AgentServerMessage(interaction_update=pb.InteractionUpdate(**fields)).SerializeToString()  # type: ignore[arg-type]  # by name


def text(words: str) -> bytes:
    return update(text_delta=pb.TextDeltaUpdate(text=words))


def read(payloads: list[bytes]) -> list[pb.AgentServerMessage]:
    return [pb.AgentServerMessage.FromString(each) for each in payloads]


@settings(max_examples=50)
@given(st.text(min_size=1), st.integers(1, 3))
def test_a_long_delta_goes_on_in_pieces(words: str, kind: int) -> None:
    words = words * (3 * PIECE_BYTES // len(words))
    if kind == 1:
        pieces = read(lighten(update(thinking_delta=pb.ThinkingDeltaUpdate(text=words))))
        assert "".join(each.interaction_update.thinking_delta.text for each in pieces) == words
    else:
        pieces = read(lighten(text(words)))
        assert "".join(each.interaction_update.text_delta.text for each in pieces) == words
    assert all(each.ByteSize() <= PIECE_BYTES + 16 for each in pieces)


def test_bytes_that_are_no_text_are_left_to_the_decoder() -> None:
    broken = b"\x0a" + b"\x80\x80\x04" + b"\x0a\xfc\xff\x03" + b"\x0a\xf8\xff\x03" + b"\x80" * 65528
    assert b"".join(lighten(broken)).count(b"\x80") >= 65000


@pytest.mark.parametrize("run", all_runs(), ids=str)
def test_recorded_messages_pass_as_they_are(run: Run) -> None:
    for row in run.heard:
        payload = row.payload or b""
        assert b"".join(lighten(payload)) == payload


def _ids(count: int) -> bytes:
    state = pb.ConversationStateStructure(root_prompt_messages_json=[bytes(32)] * count)
    return pb.AgentServerMessage(conversation_checkpoint_update=state).SerializeToString()


def _asked(values: int = 0, size: int = 0) -> bytes:
    args = pb.McpArgs(name="x")
    for _ in range(values):
        args.args["list"].list_value.values.add().null_value = 0  # type: ignore[assignment]  # an enum
    args.args["text"].string_value = "x" * size
    return pb.AgentServerMessage(exec_server_message=pb.ExecServerMessage(id=1, mcp_args=args)).SerializeToString()


def _arguments(count: int) -> bytes:
    args = pb.McpArgs(name="x")
    for number in range(count):
        args.args[str(number)].string_value = "x" * 10
    return pb.AgentServerMessage(exec_server_message=pb.ExecServerMessage(id=1, mcp_args=args)).SerializeToString()


def _blob(size: int) -> bytes:
    args = pb.SetBlobArgs(blob_id=bytes(32), blob_data=bytes(size))
    return pb.AgentServerMessage(kv_server_message=pb.KvServerMessage(id=1, set_blob_args=args)).SerializeToString()


def _completed(size: int) -> bytes:
    call = pb.ToolCall(tool_call_id="x" * size)
    return update(tool_call_completed=pb.ToolCallCompletedUpdate(call_id="1", tool_call=call))


PASS: dict[str, Callable[[], bytes]] = {  # made when they are needed: they are large
    "a large piece": lambda: _blob(15 << 20),
    "a checkpoint of large texts": lambda: pb.AgentServerMessage(
        conversation_checkpoint_update=pb.ConversationStateStructure(root_prompt_messages_json=[bytes(1 << 20)] * 15)
    ).SerializeToString(),
    "a checkpoint of many ids": lambda: _ids(MAX_FIELDS - 10),
    "a call with a long argument": lambda: _asked(size=MAX_ASKED_BYTES - 200),
    "a call with many values": lambda: _asked(values=MAX_ASKED_FIELDS // 2 - 100),
    "a call that was done, with much output": lambda: _completed(8 << 20),
    "no message at all": lambda: bytes(1 << 20),
}
REFUSED: dict[str, Callable[[], bytes]] = {
    "a call with more arguments than can be counted": lambda: _arguments(MAX_FIELDS + 1),
    "a question with too much in it": lambda: pb.AgentServerMessage(
        interaction_query=pb.InteractionQuery(
            id=1, web_search_request_query=pb.WebSearchRequestQuery(args=pb.WebSearchArgs(search_term="x" * (1 << 20)))
        )
    ).SerializeToString(),
    "a delta with something else in it": lambda: text("x" * MAX_ASKED_BYTES)[:-1] + b"\x0a" + b"\x08\x01" * 300_000,
    "pieces within pieces": lambda: b"\x22\x80\x80\x40" + b"\x12\x00" * (1 << 19),
    "groups": lambda: b"\x1b\x1c" * 100_000,
    "a tool call's end behind news": lambda: b"\x0a\x00" * 600_000,
}


@pytest.mark.parametrize("name", PASS)
def test_what_is_cheap_passes(name: str) -> None:
    payload = PASS[name]()
    assert lighten(payload) == [payload]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_dear_is_refused(name: str) -> None:
    with pytest.raises(TooMuch):
        lighten(REFUSED[name]())


@pytest.mark.parametrize("size", [{"size": MAX_ASKED_BYTES}, {"values": MAX_ASKED_FIELDS}], ids=["bytes", "values"])
def test_a_call_that_is_too_large_is_told_without_its_arguments(size: dict[str, int]) -> None:
    (bare,) = lighten(_asked(**size))
    assert type(bare) is Oversized
    left = pb.AgentServerMessage.FromString(bare).exec_server_message
    assert left == pb.ExecServerMessage(id=1, mcp_args=pb.McpArgs(name="x"))


def test_so_is_a_built_in_tool_that_is_asked_for_too_much() -> None:
    args = pb.WriteArgs(path="a.txt", tool_call_id="c1", file_text="x" * MAX_ASKED_BYTES)
    asked = pb.ExecServerMessage(id=700, exec_id="e", write_args=args)
    (bare,) = lighten(pb.AgentServerMessage(exec_server_message=asked).SerializeToString())
    asked.write_args.ClearField("file_text")
    assert (type(bare), pb.AgentServerMessage.FromString(bare).exec_server_message) == (Oversized, asked)


def _part(words: int, values: int) -> pb.PartialToolCallUpdate:
    call = pb.ToolCall(mcp_tool_call=pb.McpToolCall(args=pb.McpArgs(name="x", tool_call_id="1")))
    for _ in range(values):
        call.mcp_tool_call.args.args["list"].list_value.values.add()
    return pb.PartialToolCallUpdate(call_id="1", tool_call=call, args_text_delta="x" * words)


def test_a_part_of_a_call_keeps_its_text_as_long_as_that_can_be_worked_on() -> None:
    for words, values, left in (
        (MAX_PARTIAL_BYTES - 100, 0, MAX_PARTIAL_BYTES - 100),
        (1_000, MAX_ASKED_FIELDS, 1_000),
        (MAX_PARTIAL_BYTES + 1, 0, 0),
    ):
        (message,) = read(lighten(update(partial_tool_call=_part(words, values))))
        assert message.interaction_update.partial_tool_call == _part(left, 0)


def test_a_checkpoint_with_too_much_in_it_is_not_kept() -> None:
    assert lighten(_ids(MAX_FIELDS + 1)) == [NO_CHECKPOINT]
    (read_back,) = read([NO_CHECKPOINT])
    assert read_back.HasField("conversation_checkpoint_update")
    assert not read_back.conversation_checkpoint_update.SerializeToString()


def test_an_update_that_only_informs_may_be_left_out() -> None:
    call = pb.ToolCall(mcp_tool_call=pb.McpToolCall(args=pb.McpArgs(name="x")))
    for _ in range(MAX_FIELDS):
        call.mcp_tool_call.args.args["list"].list_value.values.add()
    assert lighten(update(tool_call_completed=pb.ToolCallCompletedUpdate(call_id="1", tool_call=call))) == []


def test_news_are_told_from_questions() -> None:
    assert informs(text("word"))
    assert informs(text("long " * 100))
    assert not informs(_blob(3))
    assert not informs(b"\x0a\x00" + _blob(3))
    assert not informs(b"")
