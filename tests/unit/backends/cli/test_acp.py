"""ACP without a process: messages, answers to the agent's questions, updates."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from caretway.backends.cli.acp_agent import UNKNOWN_METHOD, Rpc, RpcError, answer
from caretway.backends.cli.acp_translate import AcpTranslator
from caretway.core.errors import ErrorKind
from caretway.core.events import (
    AgentActivity,
    ReasoningDelta,
    StopReason,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    Usage,
    UsageReported,
)


class Peer:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.rpc = Rpc(lambda line: self.sent.append(json.loads(line)), self)

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        self.notes.append(method)

    def asked(self, method: str, params: Mapping[str, Any]) -> object:
        if method == "known":
            return {"ok": True}
        raise RpcError(UNKNOWN_METHOD, "no")

    def hear(self, message: object) -> bool:
        return self.rpc.feed(json.dumps(message).encode())


async def test_requests_and_their_answers() -> None:
    peer = Peer()
    first, second = peer.rpc.request("a", {"x": 1}), peer.rpc.request("b", {})
    assert peer.sent[0] == {"jsonrpc": "2.0", "id": 1, "method": "a", "params": {"x": 1}}
    assert peer.hear({"id": 2, "error": {"code": -32603, "message": "bad", "data": {"details": "why"}}})
    assert peer.hear({"id": 1, "result": 5})
    assert peer.hear({"id": 1, "result": 6})  # answered before
    assert peer.hear({"id": 99, "result": 6})  # never asked
    assert await first == 5
    with pytest.raises(RpcError, match="bad"):
        await second
    lost = peer.rpc.request("c", {})
    peer.rpc.fail(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await lost


async def test_every_request_with_an_id_is_answered() -> None:
    peer = Peer()
    for number in (0, "text", None):
        peer.hear({"id": number, "method": "known", "params": {}})
        peer.hear({"id": number, "method": "other"})
    assert [message["id"] for message in peer.sent] == [0, 0, "text", "text", None, None]
    assert peer.sent[0]["result"] == {"ok": True}
    assert peer.sent[1]["error"]["code"] == UNKNOWN_METHOD
    peer.hear({"method": "told"})
    assert peer.notes == ["told"]


async def test_what_is_no_message() -> None:
    peer = Peer()
    assert not peer.rpc.feed(b"Update available")
    assert not peer.rpc.feed(b"[1]")
    await asyncio.sleep(0)


OPTIONS = [
    {"optionId": "allow-once", "kind": "allow_once"},
    {"optionId": "allow-always", "kind": "allow_always"},
    {"optionId": "reject-once", "kind": "reject_once"},
]


def test_permissions_follow_the_policy() -> None:
    ask = {"options": OPTIONS}
    allowed, refused = (answer("session/request_permission", ask, allow=allow) for allow in (True, False))
    assert allowed == {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
    assert refused == {"outcome": {"outcome": "selected", "optionId": "reject-once"}}
    assert answer("session/request_permission", {}, allow=True) == {"outcome": {"outcome": "cancelled"}}
    assert answer("session/request_permission", {"options": OPTIONS[:2]}, allow=False) == {
        "outcome": {"outcome": "cancelled"}
    }


def test_other_questions() -> None:
    assert answer("cursor/ask_question", {}, allow=True) == {"outcome": {"outcome": "skipped"}}
    assert answer("cursor/create_plan", {}, allow=True) == {"outcome": {"outcome": "cancelled"}}
    assert answer("cursor/whatever", {}, allow=True) == {}
    with pytest.raises(RpcError) as refused:
        answer("fs/read_text_file", {}, allow=True)
    assert refused.value.code == UNKNOWN_METHOD


def chunk(kind: str, text: str) -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def test_updates_become_events() -> None:
    reading = AcpTranslator(showing="hidden")
    assert reading.update(chunk("agent_thought_chunk", "Hm")) == [TurnStarted(), ReasoningDelta("Hm")]
    assert reading.update(chunk("agent_message_chunk", "Hi")) == [TextDelta("Hi")]
    assert reading.update(chunk("user_message_chunk", "me")) == []
    assert reading.update({"sessionUpdate": "plan", "entries": []}) == []
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "`ls`", "kind": "execute", "status": "pending"}
    assert reading.update(call) == [AgentActivity("bash `ls`")]
    assert reading.tool_open
    assert reading.update({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"}) == []
    assert not reading.tool_open
    assert reading.result({"stopReason": "end_turn"}) == [UsageReported(Usage(1, 1, estimated=True)), TurnEnded()]
    assert reading.update(chunk("agent_message_chunk", "late")) == []
    assert reading.succeeded


def test_a_plan_is_told_as_activity() -> None:
    entries = [{"content": "look", "status": "completed"}, {"content": "act"}, "odd"]
    plan = {"sessionUpdate": "plan", "entries": entries}
    assert AcpTranslator(showing="hidden").update(plan) == [TurnStarted(), AgentActivity("plan of 2 steps")]
    shown = AcpTranslator(showing="reasoning").update(plan)
    assert shown[-1] == ReasoningDelta("\n[completed] look\n[pending] act\n")


REASONS = [("max_tokens", StopReason.LENGTH), ("refusal", StopReason.REFUSAL), ("something new", StopReason.END)]


@pytest.mark.parametrize(("reason", "stop"), REASONS)
def test_stop_reasons(reason: str, stop: StopReason) -> None:
    assert AcpTranslator(showing="hidden").result({"stopReason": reason})[-1] == TurnEnded(stop)


def test_cancelled_by_the_agent_is_no_success() -> None:
    reading = AcpTranslator(showing="hidden")
    (failed,) = reading.result({"stopReason": "cancelled"})
    assert isinstance(failed, TurnFailed)
    assert failed.error.kind is ErrorKind.CANCELLED
    assert not reading.succeeded


PLAN = {"name": "Two steps", "overview": "Look, then mend.", "plan": "1. look\n2. mend"}


def test_subagents_plans_and_questions_are_told() -> None:
    """Cursor's own messages come as requests or as notes; either way somebody learns of them."""
    reading = AcpTranslator(showing="reasoning")
    task = {"sessionUpdate": "cursor/task", "sessionId": "s", "description": "find the cause", "prompt": "Look ..."}
    assert reading.update(task) == [
        TurnStarted(),
        AgentActivity("task find the cause"),
        ReasoningDelta("\n[cursor-agent ran task find the cause]\n"),
    ]
    assert reading.update({"sessionUpdate": "cursor/ask_question", "title": "Which one?"})[0] == AgentActivity(
        "ask_question Which one?"
    )
    assert reading.update({"sessionUpdate": "cursor/create_plan", **PLAN}) == [
        AgentActivity("createPlan Two steps"),
        TextDelta("\n\nTwo steps\n\nLook, then mend.\n\n1. look\n2. mend\n\n"),
    ]
    todos = {"sessionUpdate": "cursor/update_todos", "todos": [{"content": "look", "status": "completed"}]}
    assert reading.update(todos)[0] == AgentActivity("plan of 1 steps")
