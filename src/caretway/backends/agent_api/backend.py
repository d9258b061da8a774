"""The Agent API as a Backend: who we are, what models there are, and how a turn is opened.

The simulator backend is this one with another `Transport` under it and another name: the real client code, always.
"""

import base64
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from ...core.errors import ErrorKind, GatewayError
from ...core.request import TurnRequest
from ...core.turn import Abilities, BackendStatus, ModelInfo, Snapshot
from ...wire import paths
from ...wire.messages import pb
from .compose import Surroundings, compose
from .conversation import Conversation, ConversationLimits
from .faults import fault_from_status
from .ports import Transport
from .snapshots import blob_source, read_snapshot
from .tool_policy import ToolPolicy
from .turn import AgentTurn

Parameters = Sequence[tuple[str, tuple[str, ...]]]
ParameterSource = Callable[[], Awaitable[Mapping[str, Parameters]]]
"""Model id -> its settable parameters; they come from another place than the model list."""


class TokenSource(Protocol):
    renewable: bool
    """A token that was refused can be replaced by a new one."""

    async def token(self, *, refused: str = "") -> str:
        """A bearer token; `refused` is one that was used and not accepted."""
        ...

    async def aclose(self) -> None:
        """Let a renewal that is on its way end, within reason."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """How the gateway introduces itself: by its own name."""

    client_type: str
    client_version: str
    ghost_mode: bool = True
    time_zone: str = ""
    checksum: bool = False


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """Everything a backend of this kind is told when it is made."""

    name: str
    standing: Literal["official", "unofficial", "simulated"]
    identity: Identity
    limits: ConversationLimits
    surroundings: Surroundings
    buffer_bytes: int
    tools: ToolPolicy


class AgentBackend:
    abilities = Abilities(client_tools="native", parks=True, continues=True, images=True, reasoning=True, usage=True)

    def __init__(
        self,
        setup: AgentSetup,
        transport: Transport,
        tokens: TokenSource,
        clock: Callable[[], float],
        parameters: ParameterSource | None = None,
    ) -> None:
        self.name = setup.name
        self.standing = setup.standing
        self._setup = setup
        self._transport = transport
        self._tokens = tokens
        self._clock = clock
        self._parameters = parameters

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> AgentTurn:
        conversation_id, checkpoint = read_snapshot(snapshot) if snapshot else (str(uuid.uuid4()), None)
        setup = self._setup
        rules = setup.tools(request)
        opening = compose(
            request,
            conversation_id=conversation_id,
            surroundings=_within(setup.surroundings, rules.workspace),
            checkpoint=checkpoint,
        )
        run_id = str(uuid.uuid4())
        conversation = Conversation(
            opening,
            request,
            run_id=run_id,
            policy=rules.policy,
            limits=setup.limits,
            fetch_blob=blob_source(snapshot),
            parent=snapshot.parent if snapshot else None,
        )
        attempts = 0
        token = ""

        async def headers(refused: bool) -> tuple[str, Mapping[str, str]]:
            nonlocal attempts, token
            attempts += 1
            # The first attempt's id is the run's id; later attempts have one of their own and name the first.
            request_id = run_id if attempts == 1 else str(uuid.uuid4())
            token = await self._tokens.token(refused=token if refused else "")
            known = self._identify(request_id, token)
            known["x-original-request-id"] = run_id
            known["x-cursor-agent-allowed-tools"] = rules.allowed
            return request_id, known

        turn = AgentTurn(
            self.name,
            conversation,
            self._transport,
            headers,
            renewable=self._tokens.renewable,
            buffer_bytes=setup.buffer_bytes,
            jobs=rules.jobs,
        )
        turn.start()
        return turn

    async def models(self) -> Sequence[ModelInfo]:
        token = await self._tokens.token()
        headers = self._identify(str(uuid.uuid4()), token)
        headers |= {"content-type": paths.UNARY_TYPE, "connect-protocol-version": "1"}
        response = await self._transport.call("POST", paths.USABLE_MODELS, headers)
        if response.status == 401 and self._tokens.renewable:
            headers["authorization"] = f"Bearer {await self._tokens.token(refused=token)}"
            response = await self._transport.call("POST", paths.USABLE_MODELS, headers)
        if response.status != 200:
            raise fault_from_status(response.status, response.headers, response.body)
        listed = pb.GetUsableModelsResponse.FromString(response.body)
        known = await self._parameters() if self._parameters is not None else {}
        return [_model(model, known.get(model.model_id, ())) for model in listed.models]

    async def status(self) -> BackendStatus:
        try:
            await self.models()
        except GatewayError as error:
            there = error.kind not in (ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT)
            return BackendStatus(signed_in=False, detail=str(error), reachable=there)
        return BackendStatus(signed_in=True, detail=f"over {self._transport.name}")

    async def aclose(self) -> None:
        await self._tokens.aclose()
        await self._transport.aclose()

    def _identify(self, request_id: str, token: str) -> dict[str, str]:
        identity = self._setup.identity
        headers = {
            "authorization": f"Bearer {token}",
            "user-agent": identity.client_version,
            "x-cursor-client-type": identity.client_type,
            "x-cursor-client-version": identity.client_version,
            "x-ghost-mode": "true" if identity.ghost_mode else "false",
            "x-request-id": request_id,
        }
        if identity.time_zone:
            headers["x-cursor-timezone"] = identity.time_zone
        if identity.checksum:
            headers["x-cursor-checksum"] = checksum(token, self._clock())
        return headers


def _within(surroundings: Surroundings, workspace: str | None) -> Surroundings:
    return surroundings if workspace == surroundings.workspace else replace(surroundings, workspace=workspace)


def _model(model: pb.ModelDetails, parameters: Parameters) -> ModelInfo:
    return ModelInfo(
        id=model.model_id,
        name=model.display_name or model.model_id,
        aliases=tuple(model.aliases),
        reasoning=model.HasField("thinking_details"),
        parameters=tuple(parameters),
    )


def checksum(token: str, now: float) -> str:
    """Some hosts want this header; the agent calls of two independent clients go without. `now`: unix seconds."""
    bucket = int(now // 1800 * 1800 * 1000) // 1_000_000
    mixed = bytearray(bucket.to_bytes(6, "big"))
    key = 165
    for at in range(6):
        key = mixed[at] = ((mixed[at] ^ key) + at) % 256
    parts = token.split(".")
    payload = parts[1] if len(parts) == 3 else token
    first = hashlib.sha256(payload.encode()).hexdigest()[:8]
    second = hashlib.sha256(token.encode()).hexdigest()[:8]
    return f"{base64.urlsafe_b64encode(bytes(mixed)).decode().rstrip('=')}{first}/{second}"
