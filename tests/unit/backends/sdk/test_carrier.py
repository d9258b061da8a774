"""What the SDK is asked to send, and which blobs go with it."""

from typing import Any

import msgspec
from msgspec.structs import replace

from caretway.backends.agent.compose import Composer, RunContext, no_blobs
from caretway.backends.builtin_tools.execs import Refuse
from caretway.backends.builtin_tools.policy import ToolRules
from caretway.backends.sdk.carrier import SdkAccount, SdkOpening, sdk_opening
from caretway.core.request import Image, Message, ModelChoice, Role, Text, ToolChoice, ToolSpec, TurnRequest
from caretway.cursor.wire.messages import pb

RULES = ToolRules(lambda _: Refuse("no"), "mcp_tool_call,read", workspace="/work")
SYSTEM = Message(Role.SYSTEM, (Text("Be brief."),))
ASK = Message(Role.USER, (Text("Look."), Image(b"cat", "image/png")))
TOOLS = (ToolSpec("look", "Looks.", {"type": "object", "properties": {"n": {"type": "integer"}}}), ToolSpec("bare"))


def opened(request: TurnRequest, checkpoint: bytes | None = None) -> SdkOpening:
    composed = Composer(RunContext()).compose(request, conversation_id="c", run_id="r", checkpoint=checkpoint)
    return sdk_opening(composed, request, RULES, "blob key", no_blobs)


def frame(opening: SdkOpening, *, custom: bool = True) -> dict[str, Any]:
    return opening.frame(SdkAccount("key", custom))


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
        "key": "key",
        "agent": "c",
        "blobKey": "blob key",
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
    sent = frame(sdk_opening(composed, request, replace(RULES, allowed=""), "blob key", no_blobs))
    blobs = {bytes.fromhex(key): data for key, data in sent["blobs"]}
    state = pb.ConversationStateStructure.FromString(blobs[bytes.fromhex(sent["root"])])
    assert [b"One." in blobs[key] for key in state.root_prompt_messages_json] == [True, False]
    assert (sent["text"], sent["allowed"]) == ("Look.", [])


def test_results_without_a_question() -> None:
    composed = Composer(RunContext()).compose(TurnRequest("m", (ASK,)), conversation_id="c", run_id="r")
    silent = msgspec.structs.replace(composed, words=None)
    sent = frame(sdk_opening(silent, TurnRequest("m", (ASK,)), RULES, "blob key", no_blobs), custom=False)
    assert sent["text"] == "Continue with the results of the tools above."
