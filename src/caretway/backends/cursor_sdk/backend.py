"""The official SDK as a Backend: a turn of the Agent API over a run of the SDK, the API key and what is known of its
account, models and status as the SDK tells them, and where the SDK is installed.

What is sent is decided in opening.py, what a run's end means in carrier.py, what the process may do in node.py.
"""

import logging
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from ...builtin_tools.policy import ToolPolicy
from ...core.errors import KEYS_PAGE, ErrorKind, GatewayError
from ...core.model_parameters import THOUGHT_IDS
from ...core.request import TurnRequest
from ...core.turn import Abilities, BackendStatus, ModelInfo, ModelVariant, Snapshot, Standing
from ...cursor_transport.identity import new_id
from ...tasks import aside
from ..agent_api.compose import Composer, RunContext
from ..agent_api.conversation import Conversation
from ..agent_api.snapshots import blob_source, no_blobs, read_snapshot
from ..agent_api.step_end import StepPaces
from ..agent_api.turn import AgentTurn
from ..agent_api.turn_clock import ConversationLimits
from ..agent_api.unseen_tokens import UnseenTokens
from .bridge import Bridges, BridgeSetup
from .carrier import AskedOfSdk, CarriedOpening, SdkAccount, SdkOpener
from .faults import sdk_unfit
from .node import SdkInstall
from .opening import SdkOpening, sdk_opening

log = logging.getLogger(__name__)

NO_KEY: Final = GatewayError(
    ErrorKind.SIGNED_OUT,
    "The official SDK needs a Cursor API key, and there is none.",
    hint=f"Set CURSOR_API_KEY to a key from {KEYS_PAGE}, or keep it with `caretway login --api-key-stdin`.",
)


@dataclass(frozen=True, slots=True)
class SdkSetup:
    api_key: Callable[[], Awaitable[str]]
    """The key to use now; empty when there is none."""
    bridge: BridgeSetup
    limits: ConversationLimits
    surroundings: RunContext
    buffer_bytes: int
    tools: ToolPolicy
    custom_system: bool = True
    """A system prompt replaces Cursor's own, where the account may have one."""
    check_limits: bool = True


class CursorSdkBackend:
    name = "sdk"
    standing: Standing = "official"
    abilities = Abilities(client_tools="native", parks=True, continues=True, images=True, reasoning=True, usage=True)

    def __init__(self, setup: SdkSetup, beside: "CursorSdkBackend | None" = None) -> None:
        """`beside`: one of another account, in whose process this one's turns run."""
        self._setup = setup
        self._beside = beside
        self.bridges: Bridges = Bridges(setup.bridge) if beside is None else beside.bridges
        self._composer = Composer(setup.surroundings, setup.limits.max_message_bytes, check_limits=setup.check_limits)
        self._unseen = UnseenTokens()
        self._paces = StepPaces(setup.limits.sibling_quiet, setup.limits.sibling_cap)
        self._account = SdkAccount("", setup.custom_system)
        self._status: BackendStatus | None = None

    async def warm(self) -> None:
        """Have a bridge before the first request asks for one."""
        try:
            self.bridges.release(await self.bridges.lease())
        except GatewayError as failure:
            log.warning("%s", failure)

    # ---- Backend

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> AgentTurn:
        setup = self._setup
        if (key := await self._key()) != self._account.api_key:
            self._account = SdkAccount(key, setup.custom_system)
        kept, checkpoint = read_snapshot(snapshot) if snapshot is not None else (f"agent-{new_id()}", None)
        name, _, blob_key = kept.partition("/")
        blob_key = blob_key or secrets.token_hex(32)
        rules = setup.tools(request)
        place, unseen = rules.workspace, self._unseen.expected(request)

        def compose() -> tuple[CarriedOpening, SdkOpening]:
            composed = self._composer.compose(
                request, conversation_id=name, run_id=new_id(), checkpoint=checkpoint, workspace=place, unseen=unseen
            )
            opening = CarriedOpening(**msgspec.structs.asdict(composed), blob_key=blob_key)
            return opening, sdk_opening(opening, request, rules.allowed, place)

        opening, carried = await aside(compose) if request.large else compose()
        older = blob_source(snapshot) if snapshot is not None else no_blobs

        def lookup(blob: bytes) -> bytes | None:
            return opening.blobs[blob] if blob in opening.blobs else older(blob)

        conversation = Conversation(
            opening,
            request,
            policy=rules.policy,
            limits=setup.limits,
            fetch_blob=older,
            parent=snapshot.parent if snapshot is not None else None,
            unseen=unseen,
            learn=self._unseen.learner(request) if snapshot is None else None,
            pace=self._paces.of(request.model),
        )
        turn = AgentTurn(
            self.name,
            conversation,
            SdkOpener(self.bridges, AskedOfSdk(carried, name, blob_key, lookup, self._account)),
            renewable=False,
            buffer_bytes=setup.buffer_bytes,
            jobs=rules.jobs,
        )
        turn.start()
        return turn

    async def models(self) -> Sequence[ModelInfo]:
        listed = msgspec.convert(await self._call("models"), list[ListedModel], strict=False)
        return [model.info() for model in listed]

    async def status(self) -> BackendStatus:
        try:
            await self._key()
            if self._status is not None and self._status.signed_in and self.bridges.current is None:
                return self._status  # whoever watches /health starts no process that was stopped for want of work
            me = await self._call("me")
        except GatewayError as failure:
            there = failure.kind not in (ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT)
            self._status = BackendStatus(signed_in=False, detail=str(failure), reachable=there)
            return self._status
        name = me.get("apiKeyName") if isinstance(me, dict) else None
        self._status = BackendStatus(signed_in=True, detail=f"API key {name}" if name else "")
        return self._status

    async def aclose(self) -> None:
        if self._beside is None:
            await self.bridges.aclose()
        elif (bridge := self.bridges.current) is not None and self._account.api_key:
            bridge.tell({"op": "forget", "key": self._account.api_key})

    # ---- within

    async def _call(self, operation: str) -> Any:
        key = await self._key()
        bridge = await self.bridges.lease(work=operation != "me")
        try:
            return await bridge.call(operation, key)
        finally:
            self.bridges.release(bridge)

    async def _key(self) -> str:
        key = await self._setup.api_key()
        if not key:
            raise copy(NO_KEY)
        return key


def find_sdk() -> SdkInstall:
    """The node and the SDK in the wheel. Raises GatewayError."""
    import cursor_sdk

    vendor = (Path(cursor_sdk.__file__).parent / "_vendor" / "bridge").resolve()
    node = "node.exe" if sys.platform == "win32" else "node"
    install = SdkInstall(vendor / "bin" / node, vendor / "node_modules/@cursor/sdk")
    if missing := [path for path in (install.node, install.entry) if not path.is_file()]:
        raise sdk_unfit(f"it has nothing for this platform: {missing[0]} is missing")
    return install


class ListedModel(msgspec.Struct, rename="camel"):
    """A model as the SDK lists it, with its parameters and the variants that may be asked for."""

    id: str
    display_name: str = ""
    aliases: list[str] = []
    parameters: list[dict[str, Any]] = []
    variants: list[dict[str, Any]] = []

    def info(self) -> ModelInfo:
        parameters = tuple((row["id"], tuple(each["value"] for each in row["values"])) for row in self.parameters)
        variants = tuple(
            ModelVariant(
                tuple((row["id"], row["value"]) for row in variant["params"]),
                max_mode=variant.get("isMaxMode") is True,
                default=variant.get("isDefault") is True,
                name=variant.get("displayName") or "",
            )
            for variant in self.variants
        )
        thinks = any(name in THOUGHT_IDS for name, _ in parameters)
        name, aliases = self.display_name or self.id, tuple(self.aliases)
        return ModelInfo(self.id, name, aliases, thinks, parameters=parameters, variants=variants)
