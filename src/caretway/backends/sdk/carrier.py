"""Presents a run of the SDK as a stream of the Agent API: sends the opening, returns answers, reports the end of each
attempt, follows the SDK's own reconnection, and retries without a system prompt if the account may not set one.

The SDK resumes a broken run itself. The turn learns that an attempt was lost, decides by its own rules whether to
continue, and opens the next attempt, which is the same run of the SDK. A run that was refused before any output is
sent again. A run that ended after output cannot be resumed from outside.
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.recovery import Fact, Loss, Remedy, Situation, holding, remedy
from ...core.request import TurnRequest
from ...cursor.transport.faults import cut
from ...cursor.transport.ports import RunHandler, RunStream
from ...cursor.wire.blobs import Lookup, blob_id, reachable
from ...cursor.wire.envelope import End
from ...cursor.wire.messages import pb
from ...processes.tasks import spawn
from ..agent.arguments import plain_value
from ..agent.compose import GO_ON_WITH_RESULTS, Opening, tool_rule
from ..agent.turn import RunGone
from ..builtin_tools.policy import ToolRules
from .bridge import Bridges, SdkBridge
from .frames import Frame, SdkMessage, bridge_lost, end_of, exec_answer, fault_of

# ---- Converts an opening of the Agent API into the SDK's request: text and images, tools, model, the system prompt
# (separate or before the text), and the conversation as a checkpoint with every reachable blob. Pure.
#
# The SDK reads all blobs of a conversation before it sends anything, so it needs every reachable blob.

OPENING: Final = b"{}"
"""Placeholder for the first message of an attempt, which the SDK writes itself."""
INSTRUCTIONS: Final = "<instructions>\n{}\n</instructions>"


@dataclass(slots=True)
class SdkAccount:
    api_key: str
    custom_system: bool
    """The account may set a system prompt, as far as is known."""


class SdkOpening(Opening, frozen=True, kw_only=True):
    """The opening of a run that the SDK writes itself."""

    blob_key: str
    """The key with which Cursor encrypts the conversation's blobs. It is secret."""
    asked: dict[str, Any]
    """Text, images, model, tools, workspace."""
    system: str
    """The instructions, including the rule about tools."""
    rule: str
    """Only the rule about tools."""
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
    """The tools of an AgentRunRequest as the SDK's custom tools. Cached, because an agent's tools rarely change."""
    tools = [
        {
            "name": tool.tool_name,
            "description": tool.description or tool.tool_name,
            "inputSchema": plain_value(tool.input_schema) or {"type": "object"},
        }
        for tool in pb.AgentRunRequest.FromString(offered).mcp_tools.mcp_tools
    ]
    return msgspec.Raw(msgspec.json.encode(tools))


log = logging.getLogger(__name__)

DETACHED_S: Final = 5.0
"""Seconds that a reconnecting run waits for its turn: longer than any pause between two attempts."""
HEARD: Final = frozenset({"text-delta", "thinking-delta", "tool-call-started", "partial-tool-call"})
NO_SYSTEM: Final = "system prompt"
"""Text in the refusal if the account may not set a system prompt."""


@dataclass(slots=True)
class SdkOpener:
    """Opens the attempts of one turn."""

    bridges: Bridges
    opening: SdkOpening
    account: SdkAccount
    run: "SdkRun | None" = None

    def open_now(self, handler: RunHandler) -> RunStream | None:
        return None

    async def open(self, handler: RunHandler, *, refused: bool, alone: bool) -> RunStream:
        if self.run is not None and self.run.attach(handler):
            return self.run
        if self.run is not None and self.run.heard:
            raise RunGone(self.run.lost)
        self.run = SdkRun(self, await self.bridges.lease(), handler)
        return self.run

    async def move(self, *, sure: bool) -> bool:
        return False


class SdkRun:
    """One run of the SDK, which serves as the RunStream of each attempt."""

    def __init__(self, opener: SdkOpener, bridge: SdkBridge, handler: RunHandler) -> None:
        self.heard = False
        """The model has produced output."""
        self.lost = cut("the run was given up in the middle, and the SDK cannot go on with it.")
        """The error if the run cannot continue."""
        self._opener = opener
        self._bridge = bridge
        self._handler: RunHandler | None = handler
        self._custom = False  # a system prompt was sent
        self._number = -1
        self._opened = self._paused = False
        self._leased = True
        self._end: Frame | None = None
        self._healing = False
        self._held: list[SdkMessage] = []
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, handler: RunHandler) -> bool:
        """Begin the next attempt of this run. Returns False if the run is over."""
        if not self._healing:
            return False
        self._healing = False
        if self._timer is not None:
            self._timer.cancel()
        self._handler = handler
        return True

    # ---- RunStream

    def send(self, message: bytes) -> None:
        if message != OPENING:
            if (answer := exec_answer(message)) is not None:
                self._tell("answer", id=answer[0], value=answer[1])
        elif not self._opened:
            self._open()
        else:  # the SDK has already opened this attempt
            self._tell("hold" if self._paused else "go")
            asyncio.get_running_loop().call_soon(self._hear, [])

    def pause(self) -> None:
        self._paused = True
        self._tell("hold")

    def resume(self) -> None:
        self._paused = False
        self._tell("go")

    def doubt(self) -> None:
        self._tell("doubt")
        spawn(self._bridge.prove(), "sdk-bridge-ping")

    def close(self) -> None:
        self._handler = None
        if not self._healing:
            self._over("cancel")

    # ---- internals

    def _open(self) -> None:
        self._opened = True
        self._number = self._bridge.listen(self._hear)
        frame = self._opener.opening.frame(self._opener.account)
        self._custom = bool(frame.get("system"))
        self._tell("open", **frame)

    def _tell(self, operation: str, **fields: object) -> None:
        if self._number >= 0:
            self._bridge.tell({"op": operation, "n": self._number, **fields})

    def _over(self, operation: str = "") -> None:
        """End the run and release its bridge. No more messages arrive."""
        self._healing = False
        self._stop(operation)
        if self._leased:
            self._leased = False
            self._opener.bridges.release(self._bridge)

    def _stop(self, operation: str) -> None:
        if operation:
            self._tell(operation)
        self._bridge.forget(self._number)
        self._number = -1

    def _hear(self, arrived: list[SdkMessage] | None) -> None:
        if arrived is None:
            self._closed(bridge_lost())
            return
        arrived, self._held = [*self._held, *arrived] if self._held else arrived, []
        messages: list[bytes] = []
        for at, (frame, message) in enumerate(arrived):
            if frame.n != self._number:
                break  # a frame of the previous run, which `_without_system` replaced
            if self._handler is None:
                self._held = arrived[at:]
                return
            if message is not None:
                self.heard = self.heard or frame.kind in HEARD or frame.t in ("call", "exec")
                messages.append(message)
                continue
            if messages:
                said, messages = messages, []
                self._handler.on_messages(said)
            match frame.t:
                case "again":
                    self._again()
                case "refused":
                    self._refused(frame)
                case "over":
                    self._ended(frame)
        if messages and self._handler is not None:
            self._handler.on_messages(messages)

    def _again(self) -> None:
        """The SDK has opened the next attempt: end this one for the turn, and wait for the turn to continue."""
        end, self._end = self._end, None
        handler, self._handler = self._handler, None
        if handler is None:
            return
        self._healing = True
        self._tell("hold")
        self._timer = asyncio.get_running_loop().call_later(DETACHED_S, self._over, "cancel")
        if end is not None:
            handler.on_messages([End(end_of(end))])
        else:
            handler.on_closed(GatewayError(ErrorKind.UPSTREAM_DOWN, "The connection to Cursor broke."))

    def _refused(self, frame: Frame) -> None:
        """An attempt was refused. After output the SDK may continue the run; without output the run is closed."""
        self._end = frame
        if not self.heard and not self._without_system(frame):
            self._closed(None, End(end_of(frame)), "cancel")

    def _without_system(self, refusal: Frame) -> bool:
        """Open the run again if the account may not set a system prompt. Returns whether it did."""
        if NO_SYSTEM not in end_of(refusal).decode().lower():
            return False
        facts = holding((Fact.SEEN, self.heard), (Fact.NONE_LEFT, not self._custom))
        if remedy(Situation(Loss.SYSTEM, facts)).remedy is not Remedy.SYSTEM_AS_TEXT:
            return False
        log.info("the account may not have a system prompt of its own; it is sent with the message")
        self._opener.account.custom_system = False
        self._end = None
        self._stop("cancel")
        self._open()
        return True

    def _ended(self, frame: Frame) -> None:
        if frame.status == "finished":
            self._closed(None)
        elif frame.status == "cancelled":
            self._closed(GatewayError(ErrorKind.CANCELLED, "The run was cancelled."))
        elif frame.thrown:
            self._closed(fault_of(frame), operation="cancel")
        elif not self._without_system(frame):
            self._closed(None, End(end_of(self._end or frame)))

    def _closed(self, error: GatewayError | None, end: End | None = None, operation: str = "") -> None:
        handler, self._handler = self._handler, None
        self._over(operation)
        self.lost = error or self.lost
        if handler is not None and end is not None:
            handler.on_messages([end])
        elif handler is not None:
            handler.on_closed(error)
