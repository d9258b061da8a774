"""The recorded server, played to our conversation: it must answer with the same messages as the official client did.

The recordings hold what the official SDK said to a scripted server. Here the server's half is fed to our own client
code, which has the same tools; what it answers to each KV and exec request is compared with the recorded answer.
"""

from collections.abc import Iterable

import pytest

from caretway.backends.agent.compose import Composer, RunContext
from caretway.backends.agent.conversation import Conversation, RunPhase
from caretway.backends.builtin_tools.execs import Refuse
from caretway.core.events import ToolCallReady
from caretway.core.request import Message, Role, Text, ToolResult, ToolSpec, TurnRequest
from caretway.cursor.wire.messages import pb
from unit.cursor.wire.recordings import Run, runs

from .stories import LIMITS, kind_of

PLAYED = [run for name in ("text-h1", "text-h2", "tool-h1", "tool-h2", "parallel-tools-h1") for run in runs(name)]
NOT_COMPARED = ("client_heartbeat", "run_request", "exec_client_control_message.heartbeat")


def play(run: Run) -> list[str]:
    """Every message our client sends, as kind and id, tool results taken from the recording."""
    said = [pb.AgentClientMessage.FromString(row.payload or b"") for row in run.said]
    recorded = next(message.run_request for message in said if message.HasField("run_request"))
    results = {
        message.exec_client_message.id: message.exec_client_message.mcp_result.success.content[0].text.text
        for message in said
        if message.exec_client_message.HasField("mcp_result")
    }
    tools = tuple(ToolSpec(tool.tool_name) for tool in recorded.mcp_tools.mcp_tools)
    prompt = recorded.action.user_message_action.user_message.text
    request = TurnRequest("sim", (Message(Role.USER, (Text(prompt),)),), tools=tools)
    opening = Composer(RunContext()).compose(request, conversation_id=recorded.conversation_id, run_id="run")
    conversation = Conversation(
        opening,
        request,
        policy=lambda _: Refuse("no"),
        limits=LIMITS,
        fetch_blob=lambda _: None,
    )
    now = 0.0
    conversation.open(now)
    by_call: dict[str, int] = {}
    for row in run.heard:
        server = pb.AgentServerMessage.FromString(row.payload or b"")
        if server.exec_server_message.HasField("mcp_args"):
            by_call[server.exec_server_message.mcp_args.tool_call_id] = server.exec_server_message.id
        if conversation.phase is RunPhase.RUNNING and server.interaction_update.HasField("tool_call_completed"):
            now += LIMITS.sibling_quiet
            conversation.tick(now)
        if conversation.phase is RunPhase.PAUSED:
            calls = [event.id for event in conversation.events if isinstance(event, ToolCallReady)]
            answers = [ToolResult(call, (Text(results[by_call[call]]),)) for call in calls]
            conversation.submit(answers, (), now)
        conversation.feed([row.payload or b""], now)
    return named(pb.AgentClientMessage.FromString(message) for message in conversation.outgoing)


def named(messages: Iterable[pb.AgentClientMessage]) -> list[str]:
    names = []
    for message in messages:
        kind = kind_of(message)
        if kind not in NOT_COMPARED:
            number = (
                message.kv_client_message.id
                or message.exec_client_message.id
                or message.exec_client_control_message.stream_close.id
            )
            names.append(f"{kind} {number}")
    return names


@pytest.mark.parametrize("run", PLAYED, ids=str)
def test_same_answers_as_the_official_client(run: Run) -> None:
    official = named(pb.AgentClientMessage.FromString(row.payload or b"") for row in run.said)
    # The order across channels is free (the official client answers KV and execs concurrently); the set is not.
    assert sorted(play(run)) == sorted(official)
