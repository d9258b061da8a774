"""The official SDK as a Backend: runs a turn of the Agent API over a run of the SDK, keeps the API key and the state of
its account, lists models and status from the SDK, and finds the installed SDK.

`carrier.py` decides what is sent and what a run's end means; `bridge.py` limits the process.
"""

import importlib.util
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...core.account_usage import BilledTurn
from ...core.errors import KEYS_PAGE, ErrorKind, GatewayError
from ...core.request import TurnRequest
from ...core.turn import BackendStatus, ModelInfo, Snapshot, Standing
from ...cursor.transport.faults import unusable
from ...cursor.transport.identity import new_id
from ...processes.tasks import aside
from ..agent.backend import AgentSetup
from ..agent.compose import blob_source, read_snapshot, with_unread
from ..agent.conversation import NewConversations
from ..agent.models import read_rest
from ..agent.turn import AgentTurn
from .bridge import Bridges, BridgeSetup, SdkInstall
from .carrier import SdkAccount, SdkOpener, SdkOpening, sdk_opening
from .frames import sdk_unfit

log = logging.getLogger(__name__)

NO_KEY: Final = GatewayError(
    ErrorKind.SIGNED_OUT,
    "The official SDK needs a Cursor API key, and there is none.",
    hint=f"Set CURSOR_API_KEY to a key from {KEYS_PAGE}, or keep it with `caretway login --api-key-stdin`.",
)


@dataclass(frozen=True, slots=True)
class SdkSetup:
    api_key: Callable[[], Awaitable[str]]
    """Returns the current key; empty if there is none."""
    bridge: BridgeSetup
    agent: AgentSetup
    """The configuration of the turns, as on the Agent API."""
    custom_system: bool = True
    """A system prompt replaces Cursor's own if the account may set one."""


class CursorSdkBackend:
    name = "sdk"
    standing: Standing = "official"

    def __init__(self, setup: SdkSetup, beside: "CursorSdkBackend | None" = None) -> None:
        """`beside`: the backend of another account whose process runs this backend's turns too."""
        self._setup = setup
        self.standing = setup.agent.standing
        self.abilities = setup.agent.abilities
        self._beside = beside
        self.bridges: Bridges = Bridges(setup.bridge) if beside is None else beside.bridges
        agent = setup.agent
        self._new = NewConversations(agent.limits, agent.surroundings, check_limits=agent.check_limits)
        self._account = SdkAccount("", setup.custom_system)
        self._status: BackendStatus | None = None

    async def warm(self) -> None:
        """Start a bridge before the first request."""
        try:
            self.bridges.release(await self.bridges.lease())
        except GatewayError as failure:
            log.warning("%s", failure)

    # ---- Backend

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> AgentTurn:
        agent = self._setup.agent
        if (key := await self._key()) != self._account.api_key:
            self._forget()
            self._account = SdkAccount(key, self._setup.custom_system)
        kept, checkpoint = read_snapshot(snapshot) if snapshot is not None else (f"agent-{new_id()}", None)
        name, _, blob_key = kept.partition("/")
        if snapshot is not None:
            request = with_unread(request, snapshot)
        rules = agent.tools(request)
        unseen = self._new.unseen.expected(request)

        def compose() -> SdkOpening:
            composed = self._new.compose(
                request,
                conversation_id=name,
                run_id=new_id(),
                checkpoint=checkpoint,
                workspace=rules.workspace,
                unseen=unseen,
            )
            return sdk_opening(composed, request, rules, blob_key or secrets.token_hex(32), blob_source(snapshot))

        opening = await aside(compose) if request.large else compose()
        turn = AgentTurn(
            self.name,
            self._new.begin(opening, request, rules, snapshot, unseen),
            SdkOpener(self.bridges, opening, self._account),
            renewable=False,
            buffer_bytes=agent.buffer_bytes,
            jobs=rules.jobs,
        )
        turn.start()
        return turn

    async def models(self) -> Sequence[ModelInfo]:
        return read_rest({"items": await self._call("models")})

    async def status(self) -> BackendStatus:
        try:
            await self._key()
            if self._status is not None and self._status.signed_in and self.bridges.current is None:
                return self._status  # a probe of /health does not restart an idle process
            me = await self._call("me")
        except GatewayError as failure:
            self._status = unusable(failure)
            return self._status
        name = me.get("apiKeyName") if isinstance(me, dict) else None
        self._status = BackendStatus(signed_in=True, detail=f"API key {name}" if name else "")
        return self._status

    async def billed(self, agent: str) -> Sequence[BilledTurn]:
        """What Cursor billed for each turn of an agent; a turn appears some time after its end."""
        return read_billed(await self._call("usage", agent=agent))

    async def aclose(self) -> None:
        if self._beside is None:
            await self.bridges.aclose()
        else:
            self._forget()

    # ---- internals

    def _forget(self) -> None:
        """Drop the account's executor, which the process keeps for each account."""
        if (bridge := self.bridges.current) is not None and self._account.api_key:
            bridge.tell({"op": "forget", "key": self._account.api_key})

    async def _call(self, operation: str, **fields: str) -> Any:
        key = await self._key()
        bridge = await self.bridges.lease(work=operation == "models")
        try:
            return await bridge.call(operation, key, **fields)
        finally:
            self.bridges.release(bridge)

    async def _key(self) -> str:
        key = await self._setup.api_key()
        if not key:
            raise copy(NO_KEY)
        return key


def read_billed(answer: Any) -> Sequence[BilledTurn]:
    """The turns of the SDK's `AgentUsage` that have a cost."""
    try:
        usage = msgspec.convert(answer, _AgentUsage)
    except msgspec.ValidationError as wrong:
        raise GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"The Cursor SDK's usage cannot be read: {wrong}") from wrong
    return [
        BilledTurn(
            run.run_id,
            run.usage.output_tokens,
            run.usage.cache_read_tokens,
            run.cost.raw_cost_cents,
            run.cost.charged_cents,
        )
        for run in usage.runs
        if run.cost is not None
    ]


class _Counts(Struct, rename="camel"):
    output_tokens: int
    cache_read_tokens: int = 0


class _Cost(Struct, rename="camel"):
    raw_cost_cents: float
    charged_cents: float = 0.0


class _BilledRun(Struct, rename="camel"):
    run_id: str
    usage: _Counts
    cost: _Cost | None = None


class _AgentUsage(Struct):
    runs: list[_BilledRun]


def find_sdk() -> SdkInstall:
    """The node and the SDK in the wheel. The wheel's Python package is not imported: it is slow and unused. Raises
    GatewayError if files are missing."""
    spec = importlib.util.find_spec("cursor_sdk")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'cursor_sdk'", name="cursor_sdk")
    vendor = (Path(spec.origin).parent / "_vendor" / "bridge").resolve()
    install = SdkInstall(vendor / "bin" / "node", vendor / "node_modules")
    if missing := [path for path in (install.node, install.entry) if not path.is_file()]:
        raise sdk_unfit(f"it has nothing for this platform: {missing[0]} is missing")
    return install
