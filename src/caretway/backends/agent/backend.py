"""The Agent API as a Backend: opens turns, lists models, reports its status, sets the headers of each call and the
request id of each attempt, renews a token after a 401, and keeps what was learned of an account.

The simulator backend uses the same code with another `Transport` and another name.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from ...core.errors import GatewayError
from ...core.recovery import Fact, Loss, Remedy, Situation, holding, remedy
from ...core.request import TurnRequest
from ...core.turn import SIMULATED, Abilities, BackendStatus, ModelInfo, Snapshot, Standing
from ...cursor.transport.faults import fault_from_status, unusable
from ...cursor.transport.identity import REQUEST_ID, Identity, TokenSource, checksum, new_id
from ...cursor.transport.ports import NewRun, RunHandler, RunStream, Transport, UnaryResponse
from ...cursor.transport.run_hosts import RunHosts
from ...cursor.transport.usage_api import UsageApi
from ...cursor.wire import paths
from ...cursor.wire.messages import pb
from ...processes.tasks import aside
from ...schemas.fitting import rules_for
from ..builtin_tools.policy import ToolPolicy
from .compose import Opening, RunContext, read_snapshot, with_unread
from .conversation import NewConversations
from .models import ASK_BASES, AccountMemory, BaseSource, ModelShape, base_models, read_usable, shapes_for
from .period_usage import UsageCheck
from .turn import AgentTurn
from .turn_clock import ConversationLimits

log = logging.getLogger(__name__)

ShapeName = Literal["auto", "base", "details", "both", "requested"]


class AgentSetup(Struct, frozen=True):
    """The configuration of an `AgentBackend`."""

    name: str
    standing: Standing
    identity: Identity
    limits: ConversationLimits
    surroundings: RunContext
    buffer_bytes: int
    tools: ToolPolicy
    model_shape: ShapeName = "auto"
    check_limits: bool = True
    """Apply Cursor's known limits before sending."""
    account: Callable[[str], str] = str
    """Returns the account of a token, because what was learned of one account does not hold for another."""

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            client_tools="native",
            parks=True,
            continues=True,
            images=True,
            reasoning=True,
            usage=True,
            searches_web=self.surroundings.web == "cursor",
        )


class AgentBackend:
    def __init__(
        self,
        setup: AgentSetup,
        transport: Transport,
        tokens: TokenSource,
        clock: Callable[[], float],
        bases: BaseSource | None = None,
        hosts: RunHosts | None = None,
    ) -> None:
        """`hosts`: the part of `transport` that can send runs to another host, if there is one."""
        self.name = setup.name
        self.abilities = setup.abilities
        self.standing = setup.standing
        self._setup = setup
        self._new = NewConversations(setup.limits, setup.surroundings, check_limits=setup.check_limits)
        self._transport = transport
        self._tokens = tokens
        self._memory = AccountMemory()
        self._fixed_shape = () if setup.model_shape == "auto" else (ModelShape(setup.model_shape),)
        self._caller = _Caller(setup, transport, tokens, clock, self._memory, hosts)
        self._bases = bases
        self.usage = UsageApi(partial(self._caller.call, kind=paths.JSON_TYPE))
        self._usage_check = UsageCheck(self.usage.current, clock)

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> AgentTurn:
        conversation_id, checkpoint = read_snapshot(snapshot) if snapshot else (new_id(), None)
        if snapshot is not None:
            request = with_unread(request, snapshot)
        setup = self._setup
        rules = setup.tools(request)
        run_id = new_id()
        shapes = self._fixed_shape or shapes_for(request, self._memory.known(request.model))
        unseen = self._new.unseen.expected(request)
        compose = partial(
            self._new.compose,
            request,
            conversation_id=conversation_id,
            run_id=run_id,
            checkpoint=checkpoint,
            workspace=rules.workspace,
            shapes=shapes,
            unseen=unseen,
        )
        simplify = None
        if request.tools:
            if self._memory.is_strict(request.model):
                compose = partial(compose, simplest=True)
            elif not rules_for(request.model).any:
                simplify = partial(_simplified, compose, large=request.large)
        opening = await aside(compose) if request.large else compose()
        turn = AgentTurn(
            self.name,
            self._new.begin(opening, request, rules, snapshot, unseen),
            _Opener(self._caller, run_id, rules.allowed),
            renewable=self._tokens.renewable,
            buffer_bytes=setup.buffer_bytes,
            jobs=rules.jobs,
            learn=partial(self._learn, request.model, shapes),
            quota=partial(self._spent, request.model),
            simplify=simplify,
        )
        turn.start()
        return turn

    def _learn(self, model: str, shapes: tuple[ModelShape, ...], found: int, simplified: bool) -> None:
        if found:
            self._memory.worked(model, shapes[found])
        if simplified:
            self._memory.took_simplest(model)

    async def _spent(self, model: str, refusal: GatewayError) -> GatewayError | None:
        return await self._usage_check.spent(self._caller.account, model, refusal)

    async def models(self) -> Sequence[ModelInfo]:
        """The base models and the flat ids. Without base models the flat ids are the models."""
        response = await self._caller.call(paths.USABLE_MODELS)
        if response.status != 200:
            raise fault_from_status(response.status, response.headers, response.body)
        flat = read_usable(pb.GetUsableModelsResponse.FromString(response.body))
        bases: Sequence[ModelInfo] = await base_models(lambda: self._caller.call(paths.AVAILABLE_MODELS, ASK_BASES))
        if not bases and self._bases is not None:
            bases = await self._bases()
        return [*bases, *flat]

    async def status(self) -> BackendStatus:
        if self.standing == "simulated":  # the built-in simulator takes any credentials
            return BackendStatus(False, SIMULATED)
        try:
            await self.models()
        except GatewayError as error:
            return unusable(error)
        return BackendStatus(signed_in=True, detail=f"over {self._transport.name}")

    async def aclose(self) -> None:
        await self._tokens.aclose()
        await self._transport.aclose()


async def _simplified(compose: Callable[..., Opening], *, large: bool) -> Opening | None:
    """The opening with simpler schemas; None if they cannot be simpler."""
    opening = await aside(compose, simplest=True) if large else compose(simplest=True)
    return opening if opening.adapted else None


class _Caller:
    """Calls Cursor with the account's token and headers, and renews the token after a 401."""

    def __init__(
        self,
        setup: AgentSetup,
        transport: Transport,
        tokens: TokenSource,
        clock: Callable[[], float],
        memory: AccountMemory,
        hosts: RunHosts | None,
    ) -> None:
        identity = setup.identity
        self.transport = transport
        self.tokens = tokens
        self.hosts = hosts
        self._memory = memory
        self._account_of = setup.account
        self._token = ""
        self.account = ""
        """The account of the last token."""
        self._checksum = identity.checksum
        self._clock = clock
        self._known = identity.headers()

    def headers(self, token: str) -> dict[str, str]:
        if token != self._token:
            self._token = token
            self.account = self._account_of(token)
            self._memory.belongs_to(self.account)
            if self.hosts is not None:
                self.hosts.belongs_to(self.account)
        headers = {"authorization": f"Bearer {token}", **self._known}
        if self._checksum:
            headers["x-cursor-checksum"] = checksum(token, self._clock())
        return headers

    async def call(self, path: str, body: bytes = b"", kind: str = paths.UNARY_TYPE) -> UnaryResponse:
        token = await self.tokens.token()
        headers = self.headers(token)
        headers |= {REQUEST_ID: new_id(), "content-type": kind, "connect-protocol-version": "1"}
        response = await self.transport.call("POST", path, headers, body)
        if response.status == 401 and self._renews():
            headers["authorization"] = f"Bearer {await self.tokens.token(refused=token)}"
            response = await self.transport.call("POST", path, headers, body)
        return response

    def _renews(self) -> bool:
        none_left = holding((Fact.NONE_LEFT, not self.tokens.renewable))
        return remedy(Situation(Loss.TOKEN, none_left)).remedy is Remedy.NEW_TOKEN


class _Opener:
    """Opens the attempts of one run. The first attempt has the run's id; later attempts have new ids."""

    __slots__ = ("_allowed", "_at", "_caller", "_run_id", "_token", "_tried")

    def __init__(self, caller: _Caller, run_id: str, allowed: str) -> None:
        self._caller = caller
        self._run_id = run_id
        self._allowed = allowed
        self._token = ""
        self._tried = False
        self._at = ""

    def open_now(self, handler: RunHandler) -> RunStream | None:
        token = self._caller.tokens.at_hand()
        if token is None:
            return None
        self._token = token
        stream = self._caller.transport.open_run_now(NewRun(self._run_id, self._headers(token), self._run_id), handler)
        self._tried = stream is not None
        return stream

    async def open(self, handler: RunHandler, *, refused: bool, alone: bool) -> RunStream:
        request_id, self._tried = new_id() if self._tried else self._run_id, True
        self._token = token = await self._caller.tokens.token(refused=self._token if refused else "")
        run = NewRun(request_id, self._headers(token), self._run_id, alone)
        return await self._caller.transport.open_run(run, handler)

    async def move(self, *, sure: bool) -> bool:
        hosts = self._caller.hosts
        if hosts is None:
            return False
        try:
            return await hosts.move(self._at, lambda: self._caller.call(paths.SERVER_CONFIG), sure=sure)
        except GatewayError as failure:
            log.info("Cursor could not be asked for another host: %s", failure.message)
            return False

    def _headers(self, token: str) -> dict[str, str]:
        headers = self._caller.headers(token)
        if self._caller.hosts is not None:
            self._at = self._caller.hosts.current
        headers["x-cursor-agent-allowed-tools"] = self._allowed
        return headers
