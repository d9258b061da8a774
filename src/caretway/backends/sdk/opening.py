"""An opening of the Agent API -> what the SDK is asked to send: words and pictures, tools, model, the system prompt as
such or in front of the words, and the conversation so far as a checkpoint with every blob that it leads to. Pure.

The SDK reads all blobs of a conversation before it sends anything, so all that can be reached are given to it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from ...core.request import TurnRequest
from ...cursor.wire.blobs import Lookup, blob_id, reachable
from ...cursor.wire.messages import pb
from ..agent.arguments import plain_value
from ..agent.compose import GO_ON_WITH_RESULTS, Opening, tool_rule
from ..builtin_tools.policy import ToolRules

OPENING: Final = b"{}"
"""Stands for the first message of an attempt, which the SDK writes by itself."""
INSTRUCTIONS: Final = "<instructions>\n{}\n</instructions>"


@dataclass(slots=True)
class SdkAccount:
    api_key: str
    custom_system: bool
    """It may have a system prompt of its own, as far as is known."""


class SdkOpening(Opening, frozen=True, kw_only=True):
    """One that is not written out: the SDK does it."""

    blob_key: str
    """With it Cursor encrypts the blobs of the conversation on its side. Nobody else is told."""
    asked: dict[str, Any]
    """Text, pictures, model, tools, workspace."""
    system: str
    """The instructions, with the rule about tools."""
    rule: str
    """The rule about tools alone."""
    older: Lookup
    """Finds blobs of earlier turns."""

    @property
    def kept_as(self) -> str:
        return f"{self.conversation_id}/{self.blob_key}"

    def run_request(self, checkpoint: bytes | None = None, model: int = 0) -> bytes:
        return OPENING

    def frame(self, account: SdkAccount) -> dict[str, Any]:
        frame = self.asked | {
            "key": account.api_key,
            "agent": self.conversation_id,
            "blobKey": self.blob_key,
            "root": blob_id(self.state).hex() if self.state else None,
            "blobs": [[key.hex(), data] for key, data in reachable(self.state, self._blob).items()],
        }
        if account.custom_system:
            frame["system"] = self.system
        elif said := self.system if self.fresh else self.rule:
            frame["text"] = f"{INSTRUCTIONS.format(said)}\n\n{self.asked['text']}"
        return frame

    def _blob(self, key: bytes) -> bytes | None:
        return self.blobs[key] if key in self.blobs else self.older(key)


def sdk_opening(opening: Opening, request: TurnRequest, rules: ToolRules, blob_key: str, older: Lookup) -> SdkOpening:
    said = pb.UserMessage.FromString(opening.words or b"")
    _, _, rule, _ = opening.context
    model: dict[str, Any] = {
        "id": request.model,
        "params": [{"id": name, "value": value} for name, value in request.parameters],
    }
    if request.choice.max_mode:
        model["maxMode"] = True
    pictures = said.selected_context.selected_images
    asked = {
        "text": said.text or GO_ON_WITH_RESULTS,
        "images": [{"data": picture.data, "mimeType": picture.mime_type} for picture in pictures],
        "model": model,
        "tools": tools_json(opening.tools),
        "allowed": rules.allowed.split(",") if rules.allowed else [],
        "workspace": rules.workspace,
    }
    return SdkOpening(
        **msgspec.structs.asdict(opening),
        blob_key=blob_key,
        asked=asked,
        system=pb.RequestContext.FromString(rule).cloud_rule,
        rule=tool_rule(request),
        older=older,
    )


@lru_cache(maxsize=16)
def tools_json(offered: bytes) -> msgspec.Raw:
    """The tools of an AgentRunRequest, as the SDK wants custom ones. An agent offers the same in every turn."""
    tools = [
        {
            "name": tool.tool_name,
            "description": tool.description or tool.tool_name,
            "inputSchema": plain_value(tool.input_schema) or {"type": "object"},
        }
        for tool in pb.AgentRunRequest.FromString(offered).mcp_tools.mcp_tools
    ]
    return msgspec.Raw(msgspec.json.encode(tools))
