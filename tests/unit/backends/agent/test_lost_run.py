"""Which results a checkpoint holds."""

import msgspec
import pytest

from caretway.backends.agent.lost_run import held_results
from caretway.cursor.wire.messages import pb

REAL = "call-7f4d-1\nfc_7f4d_1"  # as the service writes them: long, and with a line break


def message(*parts: dict[str, object], role: str = "tool") -> bytes:
    return msgspec.json.encode({"role": role, "content": list(parts)})


def outcome(call: str) -> dict[str, object]:
    return {"type": "tool-result", "toolCallId": call, "toolName": "t", "result": "ok"}


def asked(call: str) -> dict[str, object]:
    return {"type": "tool-call", "toolCallId": call, "toolName": "t", "args": {}}


def with_roots(*ids: bytes) -> pb.ConversationStateStructure:
    return pb.ConversationStateStructure(root_prompt_messages_json=ids)


@pytest.mark.seed("E12")
@pytest.mark.parametrize("call", ["c1", REAL, "über"])
def test_a_result_in_the_messages(call: str) -> None:
    held = held_results(
        with_roots(b"a", b"b"), {b"a": message(asked(call), role="assistant"), b"b": message(outcome(call))}
    )
    assert held(call) is True
    assert held("other") is False


def test_a_call_without_its_result_is_not_held() -> None:
    held = held_results(with_roots(b"a"), {b"a": message(asked("c1"), role="assistant"), b"b": message(outcome("c1"))})
    assert held("c1") is False, "what was stored and is not named by the checkpoint does not count"


def test_a_result_in_the_newest_turn() -> None:
    done = pb.McpToolCall(args=pb.McpArgs(tool_call_id="c1"))
    done.result.success.SetInParent()
    waiting = pb.McpToolCall(args=pb.McpArgs(tool_call_id="c2"))
    steps = {
        b"s1": pb.ConversationStep(tool_call=pb.ToolCall(mcp_tool_call=done)).SerializeToString(),
        b"s2": pb.ConversationStep(tool_call=pb.ToolCall(mcp_tool_call=waiting)).SerializeToString(),
    }
    turn = pb.ConversationTurnStructure()
    turn.agent_conversation_turn.steps.extend(steps)
    state = pb.ConversationStateStructure(turns=[b"old", b"t"])
    held = held_results(state, {b"t": turn.SerializeToString(), **steps})
    assert (held("c1"), held("c2")) == (True, False)


def test_without_a_checkpoint_nothing_is_held() -> None:
    assert held_results(None, {b"b": message(outcome("c1"))})("c1") is False


def test_what_cannot_be_known() -> None:
    assert held_results(with_roots(b"gone"), {})("c1") is None
    assert held_results(with_roots(b"a"), {b"a": b"not json"})("exec_1_4") is None


def test_odd_pieces_are_no_results() -> None:
    odd = [b"\xff", b"[]", b"{}", b'{"content":"c1"}', b'{"content":["c1",{"toolCallId":"c1"}]}']
    pieces = {bytes([number]): piece for number, piece in enumerate(odd)}
    assert held_results(with_roots(*pieces), pieces)("c1") is False


def test_what_is_older_is_not_looked_at_again() -> None:
    pieces = {b"a": message(outcome("c1")), b"b": message(outcome("c2"))}
    held = held_results(with_roots(*pieces), pieces, older={b"a"})
    assert (held("c1"), held("c2")) == (False, True)
    assert held_results(with_roots(b"a"), pieces, older={b"a"})("c2") is False, "it can be read, and is not there"
