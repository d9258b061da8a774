"""The official SDK as a Backend: creates or resumes an agent for each turn, checks the API key (good for 60 s), cancels
and erases runs that did not end, waits for an agent's last turn; lists models and status.

What a turn is allowed to do on this machine is decided in options.py; what the model is told, in compose.py.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from ...core.errors import KEYS_PAGE, ErrorKind, GatewayError
from ...core.fixed_turn import failed_turn
from ...core.request import TurnRequest
from ...core.turn import Abilities, BackendStatus, ModelInfo, Snapshot, Standing, Turn
from ...tasks import spawn
from .agents import AgentPosition, Agents, read_position
from .bridge import Bridges, BridgeSetup, SdkBridge
from .callbacks import CallbackServer
from .compose import SystemDelivery, compose
from .faults import bridge_lost
from .options import agent_options, fault, model_infos, sdk_errors, user_message
from .turn import OpenRun, SdkTurn, TurnLimits

log = logging.getLogger(__name__)

KEY_FRESH_S: Final = 60.0
"""A key that was accepted is not asked about again for this long."""
RULES_FILE: Final = "AGENTS.md"
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
    limits: TurnLimits
    system_delivery: SystemDelivery = "message"
    max_agents: int = 64
    max_body_bytes: int = 64 * 2**20
    open_timeout: float = 30.0


class CursorSdkBackend:
    name = "sdk"
    standing: Standing = "official"
    abilities = Abilities(client_tools="native", parks=True, continues=True, images=True, reasoning=True, usage=True)

    def __init__(self, setup: SdkSetup, clock: Callable[[], float]) -> None:
        self._setup = setup
        self._clock = clock
        self._layout = setup.bridge.layout
        self._layout.make()
        self.callbacks = CallbackServer(max_body_bytes=setup.max_body_bytes)
        self.bridges = Bridges(setup.bridge, self.callbacks)
        self.agents = Agents(self._layout, limit=setup.max_agents)
        self.agents.load()
        self._settling: dict[str, SdkTurn] = {}
        self._unseen = 0
        """Tokens of Cursor's own instructions, as the last new conversation has shown them."""
        self._good_key = ""
        self._key_good_until = 0.0
        self._status: BackendStatus | None = None

    async def warm(self) -> None:
        """Have a bridge before the first request asks for one."""
        try:
            self.bridges.release(await self.bridges.lease())
        except GatewayError as failure:
            log.warning("%s", failure)

    # ---- Backend

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        await self._key()
        known = read_position(snapshot.state) if snapshot is not None else None
        if snapshot is not None and (known is None or not self.agents.claim(known)):
            return failed_turn(
                GatewayError(ErrorKind.TURN_GONE, "The agent of this conversation is gone or has moved on.")
            )
        position = known or AgentPosition(str(uuid.uuid4()), 0)
        opening = compose(request, known=known is not None, delivery=self._setup.system_delivery)
        if known is None:
            self.agents.create(position.agent)
        already = position.tokens if known is not None else self._unseen
        turn = SdkTurn(self.name, position, opening, self, self._setup.limits, known_tokens=already)
        turn.parent = snapshot.parent if snapshot is not None else None
        turn.start()
        return turn

    async def models(self) -> Sequence[ModelInfo]:
        key = await self._key()
        bridge = await self.bridges.lease()
        try:
            return model_infos(await bridge.client.list_models(api_key=key))
        except sdk_errors() as failure:
            raise fault(failure) from failure
        finally:
            self.bridges.release(bridge)

    async def status(self) -> BackendStatus:
        try:
            key = await self._key()
            if self._status is not None and self._status.signed_in and self.bridges.current is None:
                return self._status  # whoever watches /health starts no process that was stopped for want of work
            bridge = await self.bridges.lease(work=False)
        except GatewayError as failure:
            return BackendStatus(signed_in=False, detail=str(failure))
        try:
            me = await bridge.client.me(api_key=key)
            status = BackendStatus(signed_in=True, detail=f"API key {me.api_key_name}" if me.api_key_name else "")
        except sdk_errors() as failure:
            told = fault(failure)
            there = told.kind not in (ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT)
            status = BackendStatus(signed_in=False, detail=str(told), reachable=there)
        finally:
            self.bridges.release(bridge)
        self._status = status
        return status

    async def aclose(self) -> None:
        await self.bridges.aclose()
        await self.callbacks.aclose()

    # ---- what a turn asks for

    async def open(self, turn: SdkTurn) -> OpenRun:
        agent_id, opening = turn.position.agent, turn.opening
        await self._settled(agent_id)
        bridge = await self.bridges.lease()
        agent: Any | None = None
        try:
            self.callbacks.register(agent_id, turn.called)
            if opening.rules:
                (self._layout.workspace(agent_id) / RULES_FILE).write_text(opening.rules, encoding="utf-8")
            options = agent_options(opening, agent_id, self._layout, await self._key())
            async with asyncio.timeout(self._setup.open_timeout):
                if turn.position.turns:
                    agent = await bridge.client.resume_agent(agent_id, options)
                else:
                    agent = await bridge.client.create_agent(options)
                run = await agent.send(user_message(opening))
        except BaseException as failure:
            await _forget(agent)
            self.bridges.release(bridge)
            if not bridge.alive and not isinstance(failure, GatewayError):
                raise bridge_lost() from failure
            if isinstance(failure, TimeoutError):
                raise GatewayError(ErrorKind.TIMEOUT, "The Cursor SDK's bridge did not begin the run.") from failure
            raise
        return OpenRun(bridge, agent, run)

    async def close(self, turn: SdkTurn, opened: OpenRun | None) -> None:
        agent_id = turn.position.agent
        self.callbacks.unregister(agent_id)
        if opened is not None:
            if opened.bridge.alive:
                with suppress(*sdk_errors()):
                    if not turn.ended:
                        await opened.bridge.client.cancel_run(opened.run.id)
                await _forget(opened.agent)
            self.bridges.release(opened.bridge)
        if not turn.ended:
            self.agents.drop(agent_id)
            await asyncio.to_thread(self.agents.erase, agent_id)
        elif self._settling.get(agent_id) is turn:
            del self._settling[agent_id]

    def ended(self, turn: SdkTurn) -> None:
        """At once, and not when the turn is closed: a client's next message may come sooner than that."""
        self._settling[turn.position.agent] = turn
        if not turn.position.turns:
            self._unseen = max(0, self._unseen + turn.unseen)
        for doomed in self.agents.keep(turn.reached):
            spawn(self._erase(doomed), "erase-sdk-agent")

    async def _settled(self, agent_id: str) -> None:
        """Until the agent's last turn has let go of it."""
        if (turn := self._settling.get(agent_id)) is not None:
            await turn.aclose()

    async def _erase(self, agent_id: str) -> None:
        await self._settled(agent_id)
        await asyncio.to_thread(self.agents.erase, agent_id)

    async def key_is_refused(self, bridge: SdkBridge) -> GatewayError | None:
        key = await self._key()
        if key == self._good_key and self._clock() < self._key_good_until:
            return None
        try:
            await bridge.client.me(api_key=key)
        except sdk_errors() as failure:
            told = fault(failure)
            return told if told.kind in (ErrorKind.SIGNED_OUT, ErrorKind.FORBIDDEN) else None
        self._good_key, self._key_good_until = key, self._clock() + KEY_FRESH_S
        return None

    async def _key(self) -> str:
        key = await self._setup.api_key()
        if not key:
            raise copy(NO_KEY)
        return key


async def _forget(agent: Any | None) -> None:
    """The bridge's own handle of an agent; what is on disk stays."""
    if agent is not None:
        with suppress(*sdk_errors()):
            await agent.close()
