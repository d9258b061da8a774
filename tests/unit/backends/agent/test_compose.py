"""The opening of a run is the message that protobuf would write; what is the same in many of them is written once."""

import struct
from typing import Any, Literal
from uuid import UUID

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from caretway.backends.agent import wire_calls
from caretway.backends.agent.compose import (
    GO_ON_WITH_RESULTS,
    Composer,
    RunContext,
    picture_size,
    picture_warning,
    read_snapshot,
    with_unread,
    write_state,
)
from caretway.backends.agent.wire_calls import MAX_UNREAD_CHARS, OfferedTools
from caretway.backends.builtin_tools import execs
from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolResult, ToolSpec, TurnRequest
from caretway.core.turn import Snapshot
from caretway.cursor.wire.blobs import blob_id
from caretway.cursor.wire.messages import pb


@pytest.mark.parametrize(
    "unread", ["", "a\nb", "\U0001f600" * MAX_UNREAD_CHARS, "\ud800"], ids=["", "ab", "much", "half"]
)
def test_round_trip(unread: str) -> None:
    snapshot = Snapshot("agent", write_state("id/key", b"\n\x00checkpoint", unread))
    assert read_snapshot(snapshot) == ("id/key", b"\n\x00checkpoint")
    told = [Message(Role.USER, (Text("a"),)), Message(Role.ASSISTANT, (Text("b"),)), Message(Role.USER, (Text("c"),))]
    messages = with_unread(TurnRequest("m", tuple(told)), snapshot).messages
    assert messages == ((*told[:2], Message(Role.USER, (Text(unread),)), told[2]) if unread else tuple(told))


def test_what_older_versions_kept_is_read() -> None:
    assert read_snapshot(Snapshot("agent", b"\x00\x02idcheckpoint")) == ("id", b"checkpoint")


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 300, 20)
JPEG = b"\xff\xd8" + struct.pack(">BBH14x", 0xFF, 0xE0, 16) + struct.pack(">BBHBHH", 0xFF, 0xC2, 17, 8, 20, 300)
SIZES = [
    ("png", PNG, (300, 20)),
    ("gif", b"GIF89a" + struct.pack("<HH", 300, 20), (300, 20)),
    ("jpeg", JPEG, (300, 20)),
    ("webp, lossy", b"RIFF????WEBPVP8 " + bytes(10) + struct.pack("<HH", 300, 20), (300, 20)),
    ("webp, lossless", b"RIFF????WEBPVP8L????\x2f" + struct.pack("<I", 299 | 19 << 14), (300, 20)),
    ("webp, extended", b"RIFF????WEBPVP8X" + bytes(8) + b"\x2b\x01\x00\x13\x00\x00", (300, 20)),
    ("webp, of another kind", b"RIFF????WEBPVP9 " + bytes(20), None),
    ("a jpeg without a size", b"\xff\xd8" + struct.pack(">BBH", 0xFF, 0xE0, 2) * 10_000, None),
    ("no segment", b"\xff\xd8" + bytes(20), None),
    ("cut short", PNG[:18], None),
    ("a cut jpeg", JPEG[:-3], None),
    ("nothing", b"", None),
    ("text", b"hello", None),
]


@pytest.mark.parametrize(("name", "data", "size"), SIZES, ids=[row[0] for row in SIZES])
def test_the_size_stands_in_the_head(name: str, data: bytes, size: tuple[int, int] | None) -> None:
    assert picture_size(data) == size


def test_only_so_much_is_told() -> None:
    many = [Image(bytes(300 * 1024), "image/png")] * 50
    assert picture_warning(many, "m", sees=True).count("picture") == 5
    assert picture_warning(many, "m", sees=False) == "m takes text only and may not see the image"
    assert picture_warning([], "m", sees=False) == ""
    assert picture_warning([Image(PNG, "image/png")], "m", sees=None) == ""


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2.5, None, True]}}}
TOOLS = (ToolSpec("add", "adds", SCHEMA), ToolSpec("now", "", {}))
SYSTEM, ASKED = Message(Role.SYSTEM, (Text("be kind"),)), Message(Role.USER, (Text("hello"),))
ANSWERED = (
    Message(Role.ASSISTANT, (Text("well"), ToolCall("c", "add", "{}"))),
    Message(Role.TOOL, (ToolResult("c", (Text("3"),)),)),
)
CHECKPOINT = pb.ConversationStateStructure(root_prompt_messages_json=[b"1" * 32]).SerializeToString()


def context(system: str, tools: tuple[ToolSpec, ...], workspace: str | None = None) -> pb.RequestContext:
    made = pb.RequestContext(
        web_search_enabled=False,
        web_fetch_enabled=False,
        rules_info_complete=True,
        env_info_complete=True,
        mcp_info_complete=True,
    )
    made.env.os_version = "linux"
    made.tools.extend(definition(tool) for tool in tools)
    if system:
        made.cloud_rule = system
    if workspace:
        made.env.workspace_paths.append(workspace)
        made.env.process_working_directory = workspace
    return made


def definition(tool: ToolSpec) -> pb.McpToolDefinition:
    schema = ParseDict(dict(tool.schema) or {"type": "object"}, Value())
    names = {"name": tool.name, "tool_name": tool.name, "provider_identifier": "caretway"}
    return pb.McpToolDefinition(description=tool.description, input_schema=schema, **names)


@pytest.mark.parametrize("replay", ["message", "resume"])
@pytest.mark.parametrize("workspace", [None, "/work"])
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("messages", [(ASKED,), (SYSTEM, ASKED), (SYSTEM, ASKED, *ANSWERED)], ids=len)
def test_what_is_sent(
    messages: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    workspace: str | None,
    replay: Literal["message", "resume"],
) -> None:
    request = TurnRequest("model", messages, tools=tools, parameters=(("effort", "high"),))
    composer = Composer(RunContext(os_version="linux", replay_action=replay))
    opening = composer.compose(request, conversation_id="conv", run_id="run", workspace=workspace)

    said = context("be kind" if SYSTEM in messages else "", tools, workspace)
    run = pb.AgentRunRequest(conversation_id="conv", run_id="run", next_interaction_query_id=0)
    run.requested_model.model_id = "model"
    run.requested_model.parameters.add(id="effort", value="high")
    run.mcp_tools.mcp_tools.extend(said.tools)
    run.mcp_tools.SetInParent()
    run.conversation_state.root_prompt_messages_json.extend(map(blob_id, opening.blobs.values()))
    run.conversation_state.SetInParent()
    if messages[-1] is ASKED or replay == "message":
        said_last = "hello" if messages[-1] is ASKED else GO_ON_WITH_RESULTS
        run.action.user_message_action.user_message.text = said_last
        run.action.user_message_action.request_context.CopyFrom(said)
    else:
        run.action.resume_action.request_context.CopyFrom(said)
    assert pb.AgentClientMessage.FromString(opening.run_request()).run_request == run

    run.action.resume_action.request_context.CopyFrom(said)
    run.conversation_state.ParseFromString(CHECKPOINT)
    assert pb.AgentClientMessage.FromString(opening.run_request(CHECKPOINT)).run_request == run

    reply = pb.AgentClientMessage.FromString(execs.context_answer(7, b"".join(opening.context))).exec_client_message
    assert (reply.id, reply.request_context_result.success.request_context) == (7, said)


def test_pictures_have_ids_of_their_own() -> None:
    picture = Image(b"\x89PNG", "image/png")
    request = TurnRequest("model", (Message(Role.USER, (Text("see"), picture, picture)),))

    def ids() -> list[str]:
        opening = Composer(RunContext()).compose(request, conversation_id="conv", run_id="run")
        sent = pb.AgentClientMessage.FromString(opening.run_request()).run_request.action.user_message_action
        return [image.uuid for image in sent.user_message.selected_context.selected_images]

    assert ids() == ids()
    assert len(set(ids())) == 2
    assert all(str(UUID(one, version=4)) == one for one in ids())


def test_tools_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real = wire_calls._definition

    def counted(tool: ToolSpec) -> bytes:
        written.append(tool.name)
        return real(tool)

    monkeypatch.setattr(wire_calls, "_definition", counted)
    tools = OfferedTools()
    first = tools.offer(TOOLS)
    assert tools.offer(tuple(ToolSpec(tool.name, tool.description, dict(tool.schema)) for tool in TOOLS)) is first
    assert tools.offer((ToolSpec("add", "adds", {**SCHEMA, "required": []}),)) != first
    assert written == ["add", "now", "add"]


def test_what_is_remembered_of_tools_has_a_limit() -> None:
    def named(number: int) -> tuple[ToolSpec, ...]:
        return (ToolSpec(f"tool{number}", "d" * 1000),)

    tools = OfferedTools(max_bytes=10_000)
    kept = tools.offer(named(0))
    for number in range(1, 20):
        tools.offer(named(number))
        assert tools.offer(named(0)) is kept, "what is used stays"
    assert len(tools._known) == 3
    large = (ToolSpec("large", "d" * 20_000),)
    assert tools.offer(large) == tools.offer(large)
    assert (tools._known, tools._bytes) == ({}, 0)


@pytest.mark.parametrize("odd", [2**70, float("nan"), {"deep": [2**64]}])
def test_schemas_that_are_no_json(odd: Any) -> None:
    assert OfferedTools().offer((ToolSpec("t", "", {"default": odd}),)).in_run
