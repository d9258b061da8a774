"""An opening of the Agent API -> what the SDK is asked to send: words and pictures, tools, model, the system prompt as
such or in front of the words, and the conversation so far as a checkpoint with every blob that it leads to. Pure.

The SDK reads all blobs of a conversation before it sends anything, so all that can be reached are given to it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from ...core.request import TurnRequest
from ...wire.blobs import blob_id
from ...wire.messages import pb
from ..agent_api.arguments import plain_value
from ..agent_api.compose import Opening, tool_rule

INSTRUCTIONS: Final = "<instructions>\n{}\n</instructions>"
GO_ON: Final = "Continue with the results of the tools above."
ID_BYTES: Final = 32
MAX_DEPTH: Final = 4
LENGTH_DELIMITED: Final = 2

Lookup = Callable[[bytes], bytes | None]


class SdkOpening(msgspec.Struct, frozen=True):
    """What a run of the SDK is opened with, but for the account and its habits."""

    words: dict[str, Any]
    """Text, pictures, model, tools, workspace."""
    system: str
    """The instructions, with the rule about tools."""
    rule: str
    """The rule about tools alone."""
    fresh: bool
    state: bytes
    """ConversationStateStructure of what was before; empty: nothing was."""

    def frame(self, *, custom: bool, lookup: Lookup) -> dict[str, Any]:
        """`custom`: the account may have a system prompt of its own."""
        root = blob_id(self.state).hex() if self.state else None
        blobs = [[key.hex(), data] for key, data in reachable(self.state, lookup).items()]
        frame = self.words | {"root": root, "blobs": blobs}
        if custom:
            frame["system"] = self.system
        elif said := self.system if self.fresh else self.rule:
            frame["text"] = f"{INSTRUCTIONS.format(said)}\n\n{self.words['text']}"
        return frame


def sdk_opening(opening: Opening, request: TurnRequest, allowed: str, workspace: str | None) -> SdkOpening:
    said = pb.UserMessage.FromString(opening.words or b"")
    _, _, rule, _ = opening.context
    parameters = [{"id": name, "value": value} for name, value in request.parameters]
    asked: dict[str, Any] = {"id": request.model, "params": parameters}
    if request.choice.max_mode:
        asked["maxMode"] = True
    pictures = said.selected_context.selected_images
    words = {
        "text": said.text or GO_ON,
        "images": [{"data": picture.data, "mimeType": picture.mime_type} for picture in pictures],
        "model": asked,
        "tools": tools_json(opening.tools),
        "allowed": allowed.split(",") if allowed else [],
        "workspace": workspace,
    }
    system = pb.RequestContext.FromString(rule).cloud_rule
    return SdkOpening(words, system, tool_rule(request), opening.fresh, opening.state)


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


# ---- blobs


def reachable(state: bytes, lookup: Lookup) -> dict[bytes, bytes]:
    """A state and every blob that it leads to, also through fields that nobody here knows. Those that are gone are
    left out: when Cursor asks for one, it says so."""
    found = {blob_id(state): state} if state else {}
    waiting = [state]
    while waiting:
        for key in ids_in(waiting.pop()):
            if key not in found and (data := lookup(key)) is not None:
                found[key] = data
                if not data.startswith(b"{"):  # a message as JSON leads nowhere
                    waiting.append(data)
    return found


def ids_in(data: bytes, depth: int = 0) -> list[bytes]:
    """What may be a blob's id in a serialised message: every field of 32 bytes, at any depth."""
    try:
        told: Any = UnknownFieldSet(Empty.FromString(data))
    except DecodeError:
        return []  # it is no message
    fields = [each.data for each in told if each.wire_type == LENGTH_DELIMITED]
    ids = [value for value in fields if len(value) == ID_BYTES]
    if depth < MAX_DEPTH:
        ids += [key for value in fields if len(value) > ID_BYTES for key in ids_in(value, depth + 1)]
    return ids
