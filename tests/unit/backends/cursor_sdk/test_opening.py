"""What the SDK is asked to send, and which blobs go with it."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.agent_api.compose import Composer, RunContext
from caretway.backends.cursor_sdk.opening import SdkOpening, ids_in, reachable, sdk_opening
from caretway.core.request import Image, Message, ModelChoice, Role, Text, ToolChoice, ToolSpec, TurnRequest
from caretway.wire.blobs import blob_id
from caretway.wire.messages import pb

SYSTEM = Message(Role.SYSTEM, (Text("Be brief."),))
ASK = Message(Role.USER, (Text("Look."), Image(b"cat", "image/png")))
TOOLS = (ToolSpec("look", "Looks.", {"type": "object", "properties": {"n": {"type": "integer"}}}), ToolSpec("bare"))


def opened(request: TurnRequest, checkpoint: bytes | None = None) -> SdkOpening:
    composed = Composer(RunContext()).compose(request, conversation_id="c", run_id="r", checkpoint=checkpoint)
    return sdk_opening(composed, request, "mcp_tool_call,read", "/work")


def frame(opening: SdkOpening, *, custom: bool = True) -> dict[str, Any]:
    return opening.frame(custom=custom, lookup=lambda _: None)


def test_all_of_a_request() -> None:
    request = TurnRequest(
        "m", (SYSTEM, ASK), TOOLS, parameters=(("effort", "high"),), choice=ModelChoice(max_mode=True)
    )
    sent = msgspec.json.decode(msgspec.json.encode(frame(opened(request))))
    assert sent == {
        "text": "Look.",
        "images": [{"data": "Y2F0", "mimeType": "image/png"}],
        "model": {"id": "m", "params": [{"id": "effort", "value": "high"}], "maxMode": True},
        "tools": [
            {
                "name": "look",
                "description": "Looks.",
                "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
            },
            {"name": "bare", "description": "bare", "inputSchema": {"type": "object"}},
        ],
        "allowed": ["mcp_tool_call", "read"],
        "workspace": "/work",
        "root": None,
        "blobs": [],
        "system": "Be brief.",
    }


def test_instructions_of_an_account_that_may_not_have_its_own() -> None:
    must = ToolChoice("required")
    fresh = opened(TurnRequest("m", (SYSTEM, ASK), TOOLS, must))
    sent = frame(fresh, custom=False)
    assert "system" not in sent
    assert sent["text"].startswith("<instructions>\nBe brief.\n\nYou must call") and sent["text"].endswith("\n\nLook.")
    known = pb.ConversationStateStructure(read_paths=["x"]).SerializeToString()
    later = opened(TurnRequest("m", (SYSTEM, ASK), TOOLS, must), known)
    assert "Be brief." not in frame(later, custom=False)["text"]
    assert "You must call" in frame(later, custom=False)["text"]
    assert frame(later)["system"].startswith("Be brief.")
    assert frame(opened(TurnRequest("m", (ASK,))), custom=False)["text"] == "Look."


def test_a_history_goes_with_its_messages() -> None:
    talk = (Message(Role.USER, (Text("One."),)), Message(Role.ASSISTANT, (Text("1"),)), ASK)
    request = TurnRequest("m", talk)
    composed = Composer(RunContext()).compose(request, conversation_id="c", run_id="r")
    sent = sdk_opening(composed, request, "", None).frame(custom=True, lookup=composed.blobs.get)
    blobs = {bytes.fromhex(key): data for key, data in sent["blobs"]}
    state = pb.ConversationStateStructure.FromString(blobs[bytes.fromhex(sent["root"])])
    assert [b"One." in blobs[key] for key in state.root_prompt_messages_json] == [True, False]
    assert (sent["text"], sent["allowed"]) == ("Look.", [])


def test_results_without_a_question() -> None:
    opening = SdkOpening({"text": "x"}, "", "", True, b"")
    assert frame(opening, custom=False)["text"] == "x"


# ---- blobs


def kept(store: dict[bytes, bytes], data: bytes) -> bytes:
    store[blob_id(data)] = data
    return blob_id(data)


def test_every_blob_that_a_state_leads_to() -> None:
    store: dict[bytes, bytes] = {}
    user = kept(store, pb.UserMessage(text="hello " * 40).SerializeToString())
    step = kept(store, b"step")
    inner = pb.AgentConversationTurnStructure(user_message=user, steps=[step, b"g" * 32], request_id="r" * 32)
    turn = kept(store, pb.ConversationTurnStructure(agent_conversation_turn=inner).SerializeToString())
    root = kept(store, b'{"content":"%b"}' % step)
    newer = kept(store, b"of a field that nobody knows")
    state = pb.ConversationStateStructure(root_prompt_messages_json=[root], turns=[turn]).SerializeToString()
    state += b"\xfa\x3e\x20" + newer
    assert reachable(state, store.get) == {blob_id(state): state, **store}
    assert reachable(b"", store.get) == {}


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_lead_nowhere_and_break_nothing(data: bytes) -> None:
    assert all(len(key) == 32 for key in ids_in(data))
