"""What the official client says in each situation, as a table drawn from the recordings.

The order of the client's messages is the client's own; the moments at which it is asked something are our script's.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pytest

from caretway.cursor.wire.blobs import blob_id
from caretway.cursor.wire.messages import pb

from .recordings import Run, all_runs, runs

SHORT: Final = {
    "run_request": "run",
    "exec_client_message.request_context_result": "context",
    "exec_client_control_message.stream_close": "close",
    "exec_client_message.mcp_result": "tool result",
    "kv_client_message.set_blob_result": "blob stored",
    "kv_client_message.get_blob_result": "blob sent",
}


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    recordings: tuple[str, ...]
    stream: str
    said: str
    """The client's messages in order; `xN` for N in a row."""
    action: str = "user_message_action"

    def __str__(self) -> str:
        return self.name


STORIES: Final = [
    Story("text", ("text-h1", "text-h2"), "r1", "run, context, close, blob stored x8"),
    Story(
        "one tool",
        ("tool-h1", "tool-h2"),
        "r1",
        "run, context, close, blob stored x5, tool result, close, blob stored x7",
    ),
    Story(
        "two tools at once",
        ("parallel-tools-h1",),
        "r1",
        "run, context, close, blob stored x3, tool result, close, tool result, close, blob stored x9",
    ),
    Story(
        "first of two turns",
        ("second-turn-h1",),
        "r1",
        "run, context, close, blob stored x3, tool result, close, blob stored x7",
    ),
    Story("second turn", ("second-turn-h1",), "r2", "run, blob sent x9, context, close, blob stored x5"),
    Story(
        "cut before a checkpoint",
        ("drop-resume-h1", "drop-resume-h2"),
        "r1",
        "run, context, close, blob stored x3",
    ),
    Story(
        "the same action again",
        ("drop-resume-h1", "drop-resume-h2"),
        "r2",
        "run, context, close, blob stored x6",
    ),
    Story(
        "cut after a checkpoint",
        ("drop-resume-h1", "drop-resume-h2"),
        "r3",
        "run, blob sent x6, context, close, blob stored x2, tool result, close, blob stored x4",
    ),
    Story(
        "resumed",
        ("drop-resume-h1", "drop-resume-h2"),
        "r4",
        "run, blob sent x12, context, close, blob stored x3",
        action="resume_action",
    ),
    Story("image", ("image-h1",), "r1", "run, context, close, blob stored x6"),
]


def run_of(recording: str, stream: str) -> Run:
    return next(run for run in runs(recording) if run.stream == stream)


def said(run: Run) -> list[pb.AgentClientMessage]:
    return [pb.AgentClientMessage.FromString(row.payload or b"") for row in run.said]


def heard(run: Run) -> list[pb.AgentServerMessage]:
    return [pb.AgentServerMessage.FromString(row.payload or b"") for row in run.heard]


def opening(run: Run) -> pb.AgentRunRequest:
    return said(run)[0].run_request


def checkpoints(run: Run) -> list[bytes]:
    return [
        message.conversation_checkpoint_update.SerializeToString()
        for message in heard(run)
        if message.HasField("conversation_checkpoint_update")
    ]


def in_words(run: Run) -> str:
    counted = ((kind, len(list(group))) for kind, group in groupby(SHORT[row.kind] for row in run.said))
    return ", ".join(kind if count == 1 else f"{kind} x{count}" for kind, count in counted)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story(story: Story) -> None:
    for recording in story.recordings:
        run = run_of(recording, story.stream)
        assert in_words(run) == story.said
        assert opening(run).action.WhichOneof("action") == story.action


def test_native_execs_are_answered_by_their_own_kind() -> None:
    (run,) = runs("native-execs-h1")
    asked = {
        row.exec_server_message.id: row.exec_server_message for row in heard(run) if row.HasField("exec_server_message")
    }
    answers: dict[int, list[str]] = {}
    for message in said(run):
        if message.HasField("exec_client_message"):
            answer = message.exec_client_message
            answers.setdefault(answer.id, []).append(answer.WhichOneof("message") or "")
    assert {(asked[number].WhichOneof("message"), *kinds) for number, kinds in answers.items()} == {
        ("request_context_args", "request_context_result"),
        ("read_args", "read_result"),
        ("ls_args", "ls_result"),
        ("grep_args", "grep_result"),
        ("write_args", "write_result"),
        ("delete_args", "delete_result"),
        ("shell_args", "shell_result"),
        ("shell_stream_args", "shell_stream", "shell_stream", "shell_stream", "shell_stream"),
        ("diagnostics_args", "diagnostics_result"),
        ("fetch_args", "fetch_result"),
    }


def test_shell_stream_has_a_start_and_an_exit() -> None:
    (run,) = runs("native-execs-h1")
    events = [
        message.exec_client_message.shell_stream.WhichOneof("event")
        for message in said(run)
        if message.exec_client_message.WhichOneof("message") == "shell_stream"
    ]
    assert events == ["start", "stdout", "stderr", "exit"]


@pytest.mark.parametrize("run", all_runs(), ids=str)
def test_run_request_fields(run: Run) -> None:
    request = opening(run)
    assert [field.name for field, _ in request.ListFields()] == [
        "conversation_state",  # present on the first turn too, as an empty message
        "action",
        "mcp_tools",
        "conversation_id",
        "requested_model",
        "run_id",
        "next_interaction_query_id",
    ]
    assert request.run_id == run.request.headers["x-original-request-id"]
    assert request.next_interaction_query_id == 0


@pytest.mark.parametrize("run", all_runs(), ids=str)
def test_every_exec_is_closed_once_after_its_last_answer(run: Run) -> None:
    answered: list[int] = []
    closed: list[int] = []
    for message in said(run):
        if message.HasField("exec_client_message"):
            answer = message.exec_client_message
            assert answer.id not in closed
            assert answer.exec_id == "", "the official client answers by number alone"
            answered.append(answer.id)
        elif message.HasField("exec_client_control_message"):
            closed.append(message.exec_client_control_message.stream_close.id)
    assert closed == list(dict.fromkeys(answered))
    assert closed == [row.exec_server_message.id for row in heard(run) if row.HasField("exec_server_message")]


@pytest.mark.parametrize("run", all_runs(), ids=str)
def test_every_kv_request_is_answered_by_number(run: Run) -> None:
    asked = [row.kv_server_message for row in heard(run) if row.HasField("kv_server_message")]
    answers = {
        row.kv_client_message.id: row.kv_client_message for row in said(run) if row.HasField("kv_client_message")
    }
    assert answers.keys() == {request.id for request in asked}
    for request in asked:
        answer = answers[request.id]
        if request.HasField("set_blob_args"):
            assert answer.HasField("set_blob_result")  # empty, and still there: tag and length 0
            assert answer.set_blob_result.ByteSize() == 0
        else:
            assert blob_id(answer.get_blob_result.blob_data) == request.get_blob_args.blob_id


def test_second_turn_carries_the_last_checkpoint_verbatim() -> None:
    first, second = runs("second-turn-h1")
    assert opening(first).conversation_state.ByteSize() == 0
    assert opening(second).conversation_state.SerializeToString() == checkpoints(first)[-1]
    assert opening(second).conversation_id == opening(first).conversation_id
    assert opening(second).run_id != opening(first).run_id


@pytest.mark.parametrize("recording", ["drop-resume-h1", "drop-resume-h2"])
def test_what_changes_after_a_cut(recording: str) -> None:
    first, again, cut, resumed = runs(recording)
    for before, after in ((first, again), (cut, resumed)):
        assert after.request.headers["x-request-id"] != before.request.headers["x-request-id"]
        assert after.request.headers["x-original-request-id"] == before.request.headers["x-original-request-id"]
        assert opening(after).run_id == opening(before).run_id
        assert opening(after).conversation_id == opening(before).conversation_id
    assert checkpoints(first) == []
    assert opening(again) == opening(first), "without a checkpoint the same request is made again"
    assert opening(resumed).conversation_state.SerializeToString() == checkpoints(cut)[-1]
    assert opening(resumed).action.resume_action.ByteSize() == 0


def test_tools_are_declared_in_the_request_and_in_the_context() -> None:
    for recording in ("tool-h1", "tool-h2"):
        (run,) = runs(recording)
        (tool,) = opening(run).mcp_tools.mcp_tools
        context = said(run)[1].exec_client_message.request_context_result.success.request_context
        assert list(context.tools) == [tool]
        assert (tool.name, tool.provider_identifier, tool.tool_name) == (
            "custom-user-tools-add",
            "custom-user-tools",
            "add",
        )


def test_tool_results_match_calls_by_number() -> None:
    (run,) = runs("parallel-tools-h1")
    calls = {
        message.exec_server_message.id: dict(message.exec_server_message.mcp_args.args)
        for message in heard(run)
        if message.exec_server_message.WhichOneof("message") == "mcp_args"
    }
    sums = {number: args["a"].number_value + args["b"].number_value for number, args in calls.items()}
    results = {
        message.exec_client_message.id: message.exec_client_message.mcp_result.success.content[0].text.text
        for message in said(run)
        if message.exec_client_message.WhichOneof("message") == "mcp_result"
    }
    assert {number: float(text) for number, text in results.items()} == sums
    assert len(sums) == 2


def test_an_image_travels_as_raw_bytes_with_its_type() -> None:
    (run,) = runs("image-h1")
    (image,) = opening(run).action.user_message_action.user_message.selected_context.selected_images
    assert image.mime_type == "image/png"
    assert image.data.startswith(b"\x89PNG\r\n")
    assert image.uuid


HEADERS: Final = {
    "connect-protocol-version": "1",
    "x-cursor-client-type": "sdk",
    "x-cursor-client-version": "sdk-python-1.1.0",
    "x-ghost-mode": "true",
    "user-agent": "connect-es/1.6.1",
}


@pytest.mark.parametrize("run", all_runs(), ids=str)
def test_headers(run: Run) -> None:
    for row in run.rows:
        if not row.headers:
            continue
        assert HEADERS.items() <= row.headers.items()
        assert "x-cursor-checksum" not in row.headers
        offered = "accept-encoding" if row.seqno is not None else "connect-accept-encoding"
        assert row.headers[offered] == "gzip,br"
        assert not {"content-encoding", "connect-content-encoding"} & row.headers.keys(), "it compresses nothing itself"
        assert ("x-cursor-streaming" in row.headers) is run.recording.endswith("h1")
        assert row.headers["x-request-id"] == run.request.headers["x-request-id"]
    assert run.request.http == ("2" if run.recording.endswith("h2") else "1.1")
