"""Lines of the bridge as messages of the Agent API, and answers as values for the SDK."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.builtin_tools import execs
from caretway.backends.sdk.frames import (
    Frame,
    end_of,
    exec_answer,
    fault_of,
    plain,
    read_frame,
    sdk_unfit,
    server_message,
)
from caretway.core.errors import ErrorKind
from caretway.core.request import Image, Text, ToolResult
from caretway.cursor.wire.envelope import read_end
from caretway.cursor.wire.heavy import TEXT, THINKING, read_delta
from caretway.cursor.wire.messages import pb
from caretway.processes.lines import TooLong


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"message": "Invalid API key", "http": 401, "name": "AuthenticationError"}, ErrorKind.SIGNED_OUT),
        ({"message": "[unknown] Invalid API key"}, ErrorKind.SIGNED_OUT),
        ({"message": "no", "http": 403}, ErrorKind.FORBIDDEN),
        ({"message": "no", "code": "usage_limit_exceeded", "http": 429}, ErrorKind.QUOTA),
        ({"message": "no", "http": 429}, ErrorKind.RATE_LIMITED),
        ({"message": "Cannot use this model: nope", "name": "ConfigurationError"}, ErrorKind.MODEL_UNKNOWN),
        ({"message": "no", "code": "invalid_model"}, ErrorKind.MODEL_UNKNOWN),
        ({"message": "[unavailable] Service unavailable"}, ErrorKind.UPSTREAM_DOWN),
        ({"message": "[deadline_exceeded] too slow"}, ErrorKind.TIMEOUT),
        ({"message": "[permission_denied] your team does not allow this"}, ErrorKind.FORBIDDEN),
        ({"message": "connect ECONNREFUSED 127.0.0.1:1"}, ErrorKind.UPSTREAM_DOWN),
        ({"message": "Network request failed", "name": "NetworkError"}, ErrorKind.UPSTREAM_DOWN),
        ({"message": "Agent busy", "code": "agent_busy"}, ErrorKind.TURN_GONE),
        ({"message": "[whatever] new\nlines"}, ErrorKind.UPSTREAM_ERROR),
        ({"message": ""}, ErrorKind.UPSTREAM_ERROR),
    ],
)
def test_exceptions(told: dict[str, object], kind: ErrorKind) -> None:
    fault = fault_of(Frame("over", thrown=True, **told))  # type: ignore[arg-type]  # a table of fields
    assert fault.kind is kind
    assert "\n" not in fault.message
    assert fault.hint or kind is ErrorKind.TURN_GONE


def test_an_sdk_that_ignores_what_it_is_asked() -> None:
    unfit = sdk_unfit("systemPrompt (taken as it is)")
    assert unfit.kind is ErrorKind.UNSUPPORTED
    assert "systemPrompt" in unfit.message and "einstall" in unfit.hint


ID = b"i" * 32


def read(frame: Frame) -> pb.AgentServerMessage:
    message = server_message(frame)
    assert message is not None
    return pb.AgentServerMessage.FromString(message)


@given(st.text(), st.booleans())
def test_words_are_what_any_encoder_would_write(words: str, thinks: bool) -> None:
    words = words.encode("utf-8", "replace").decode()
    message = server_message(Frame("update", kind="thinking-delta" if thinks else "text-delta", s=words))
    assert message is not None
    update = pb.AgentServerMessage.FromString(message).interaction_update
    assert (update.thinking_delta if thinks else update.text_delta).text == words
    assert read_delta(message) in (None, (THINKING if thinks else TEXT, words))


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (Frame("update", kind="token-delta", c=7), "token_delta"),
        (Frame("update", kind="tool-call-started"), "tool_call_started"),
        (Frame("update", kind="partial-tool-call"), "tool_call_delta"),
        (Frame("update", kind="tool-call-completed", call="c"), "tool_call_completed"),
        (Frame("update", kind="tool-requests-listed", c=2), "tool_requests_listed"),
        (Frame("update", kind="something-new"), "step_started"),
        (Frame("beat"), "heartbeat"),
        (Frame("update", kind="turn-ended"), "turn_ended"),
    ],
)
def test_updates(frame: Frame, kind: str) -> None:
    assert read(frame).interaction_update.WhichOneof("message") == kind


@pytest.mark.parametrize("kind", ["over", "again", "refused", "ready", "new"])
def test_what_is_no_message_of_a_run(kind: str) -> None:
    assert server_message(Frame(kind)) is None


def test_the_end_with_its_counts() -> None:
    usage: dict[str, Any] = {"inputTokens": 9, "outputTokens": 2, "cacheReadTokens": 0, "totalTokens": 11, "new": "x"}
    ended = read(Frame("update", kind="turn-ended", usage=usage)).interaction_update.turn_ended
    assert (ended.input_tokens, ended.output_tokens, ended.cache_read_tokens) == (9, 2, 0)
    assert ended.HasField("cache_read_tokens") and not ended.HasField("cache_write_tokens")


def test_a_call_and_an_exec() -> None:
    called = read(Frame("call", id=3, name="look", call="a\nb", args={"k": 1, "deep": {"list": [None, True, "x"]}}))
    args = called.exec_server_message.mcp_args
    assert (called.exec_server_message.id, args.tool_name, args.tool_call_id) == (3, "look", "a\nb")
    assert args.args["deep"].struct_value.fields["list"].list_value.values[2].string_value == "x"
    asked = pb.ReadArgs(path="/etc/passwd").SerializeToString()
    exec_ = read(Frame("exec", id=4, kind="read", data=asked)).exec_server_message
    assert (exec_.id, exec_.WhichOneof("message"), exec_.read_args.path) == (4, "read_args", "/etc/passwd")
    assert read(Frame("exec", id=5, kind="ls")).exec_server_message.WhichOneof("message") == "ls_args"


def test_what_is_stored() -> None:
    blob = read(Frame("set", key=ID.hex(), data=b"piece")).kv_server_message.set_blob_args
    assert (blob.blob_id, blob.blob_data) == (ID, b"piece")
    state = pb.ConversationStateStructure(turns=[ID])
    assert read(Frame("state", data=state.SerializeToString())).conversation_checkpoint_update == state


@pytest.mark.parametrize(
    ("frame", "code", "message"),
    [
        (Frame("over", message="[unavailable] Try\nlater"), "unavailable", "Try\nlater"),
        (Frame("over", message="It broke", code="internal"), "internal", "It broke"),
        (Frame("over", message="It broke", code=None), "unknown", "It broke"),
        (Frame("refused", end={"error": {"code": "not_found", "message": "gone"}}), "not_found", "gone"),
    ],
)
def test_ends(frame: Frame, code: str, message: str) -> None:
    error = read_end(end_of(frame))
    assert error is not None
    assert (error.code, error.message) == (code, message)


def test_results_of_custom_tools() -> None:
    result = ToolResult("c", (Text("done"), Image(b"cat", "image/png")), is_error=True)
    assert exec_answer(execs.answer(execs.mcp_result(7, result))) == (
        7,
        {
            "content": [
                {"type": "text", "text": "done"},
                {"type": "image", "data": b"cat", "mimeType": "image/png"},
            ],
            "isError": True,
        },
    )
    empty = exec_answer(execs.answer(execs.mcp_result(7, ToolResult("c", ()))))
    assert empty == (7, {"content": [{"type": "text", "text": ""}], "isError": False})
    missing = exec_answer(execs.answer(execs.tool_not_found(8, "nope", ["left"])))
    assert missing is not None and "`nope`" in str(missing[1]) and "left" in str(missing[1])
    assert exec_answer(execs.throw(9, "broken")) == (
        9,
        {"content": [{"type": "text", "text": "broken"}], "isError": True},
    )


@pytest.mark.parametrize(
    "message", [execs.stream_close(1), execs.heartbeat(1), pb.AgentClientMessage().SerializeToString()]
)
def test_what_the_sdk_does_by_itself(message: bytes) -> None:
    assert exec_answer(message) is None


def test_values_in_the_shape_of_the_sdks_library() -> None:
    success = pb.ReadSuccess(path="a", total_lines=1, file_size=2**40, content="text", output_blob_id=b"\0")
    assert plain(pb.ReadResult(success=success)) == {
        "result": {
            "case": "success",
            "value": {
                "path": "a",
                "totalLines": 1,
                "fileSize": {"$int": str(2**40)},
                "outputBlobId": {"$bytes": b"\0"},
                "output": {"case": "content", "value": "text"},
            },
        }
    }
    many = pb.ConversationStateStructure(turns=[ID], read_paths=["x"])
    many.file_states["f"] = ID
    assert plain(many) == {"turns": [{"$bytes": ID}], "readPaths": ["x"], "fileStates": {"f": {"$bytes": ID}}}


UNREADABLE = {
    "half a character": rb'{"n":7,"t":"refused","end":{"error":{"message":"\ud800"}}}',
    "another type": b'{"n":7,"t":"over","status":"error","http":"many"}',
    "an answer that is no JSON": b'{"t":"reply","n":7,"value":}',
    "an argument nested too deeply": b'{"n":7,"t":"call","args":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    "a number beyond all numbers": b'{"n":7,"t":"update","kind":"token-delta","c":99999999999}',
    "the id of a blob that is none": b'{"n":7,"t":"set","key":"none"}',
    "a checkpoint that is none": b'{"n":7,"t":"state","data":"////"}',
    "a line that is too long": TooLong(b'{"n":7,"t":"state","data":"AAAA', 31),
}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_the_end_of_its_run(line: bytes | TooLong) -> None:
    frame, message = read_frame(line)
    assert (frame.t, frame.n, frame.thrown, message) == ("over", 7, True, None)
    fault = fault_of(frame)
    assert fault.kind is ErrorKind.UPSTREAM_PROTOCOL and "cannot be read" in fault.message


@pytest.mark.parametrize("line", [b"nonsense", b"[]", rb'{"t":"ready","s":"\ud800"}', TooLong(b'{"t":"ready"', 12)])
def test_what_is_nobodys_cannot_be_read_at_all(line: bytes | TooLong) -> None:
    with pytest.raises(ValueError):
        read_frame(line)
