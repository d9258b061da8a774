"""The objects that serve one account: dialects with their memory, sessions, models, health. The resolver for a single
account is here, the resolver for many in `passthrough`.

Two accounts are two tenants that share no object, so no check is needed to keep their data apart. A `TenantResolver`
maps each request to its tenant.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import Enum
from typing import Any, Final, Protocol

import msgspec

from .. import __version__
from ..accounts.catalogue import ModelCatalogue
from ..core.account_usage import AccountUsage, known_account, unknown_account
from ..core.caller import NOBODY, Caller
from ..core.errors import ErrorKind, GatewayError
from ..core.turn import Backend, BackendStatus, ModelInfo
from ..dialects import Dialect
from ..server.exchange import HttpRequest
from ..sessions.manager import Sessions
from .respond import Responder

# ---- `/caretway/v1/account`: the account's plan usage. Cursor is asked once a minute at most (after a failure every 15
# s), for 5 s at most, and never during a request to a model.

FRESH_S: Final = 60.0
AGAIN_S: Final = 15.0
PATIENCE_S: Final = 5.0
TELLS_NOTHING: Final = "This backend does not report what the account has used; `agent` does."

AccountSource = Callable[[], Awaitable[AccountUsage]]
"""Returns the account's usage. Raises GatewayError."""


class AccountWatch:
    def __init__(self, source: AccountSource | None, clock: Callable[[], float] = time.time) -> None:
        """`source`: None if the backend reports no usage. `clock`: unix seconds."""
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._report: dict[str, Any] | None = None
        self._until = 0.0

    async def current(self) -> dict[str, Any]:
        """The account's usage, kept for a minute, or a failure for 15 s. Concurrent callers share one request to
        Cursor."""
        async with self._lock:
            if self._report is None or time.monotonic() >= self._until:
                self._report = await ask_account(self._source, self._clock)
                self._until = time.monotonic() + (FRESH_S if self._report["known"] else AGAIN_S)
            return self._report


async def ask_account(source: AccountSource | None, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Ask for the usage now, without a cache. A failure becomes a report too."""
    if source is None:
        return unknown_account(TELLS_NOTHING, clock())
    try:
        async with asyncio.timeout(PATIENCE_S):
            return known_account(await source(), clock())
    except TimeoutError:
        return unknown_account(f"Cursor did not answer within {PATIENCE_S:g} s.", clock())
    except GatewayError as failure:
        return unknown_account(str(failure), clock())


# ---- `/health` and `/healthz`: whether Cursor is reachable and accepts the account (checked once a minute, after a
# failure every 5 s), what a probe without a key may see; the list of the gateway's own tools.

_AUTH: Final = {True: "authenticated", False: "not_authenticated", None: "unknown"}


class ToolSource(Protocol):
    """Describes the gateway's own tools for /health and /v1/tools."""

    def health(self) -> Mapping[str, object]: ...

    def listing(self) -> Mapping[str, object]: ...


class NoTools:
    def health(self) -> Mapping[str, object]:
        return {"enabled": False, "servers": 0, "tools": 0}

    def listing(self) -> Mapping[str, object]:
        return {"object": "list", "data": [], "mcp": {"servers": 0, "tools": 0}}


class Health:
    """The account's state for `/health`, checked with a time limit and kept for a minute, or for 5 s while the account
    is not signed in."""

    def __init__(
        self, backend: Backend, *, check_timeout: float, fresh_for: float = 60.0, tools: ToolSource | None = None
    ) -> None:
        self._backend = backend
        self._tools = tools if tools is not None else NoTools()
        self._check_timeout = check_timeout
        self._fresh_for = fresh_for
        self._lock = asyncio.Lock()
        self._status: BackendStatus | None = None
        self._until = 0.0

    async def status(self) -> BackendStatus:
        async with self._lock:
            if self._status is None or time.monotonic() >= self._until:
                try:
                    async with asyncio.timeout(self._check_timeout):
                        self._status = await self._backend.status()
                except TimeoutError:
                    self._status = BackendStatus(None, "Cursor did not answer in time.", reachable=False)
                self._until = time.monotonic() + (self._fresh_for if self._status.signed_in else 5.0)
            return self._status

    async def alive(self) -> bytes:
        """The body of probes without a key; contains nothing private."""
        status = await self.status()
        ready = status.reachable and (status.signed_in or self._backend.standing == "simulated")
        return b'{"status":"ready"}' if ready else b'{"status":"alive"}'

    async def render(self, *, parked: int, live: int) -> tuple[int, bytes]:
        """Returns (HTTP status, JSON)."""
        status = await self.status()
        body = msgspec.json.encode(
            {
                "status": "ok" if status.reachable else "error",
                "version": __version__,
                "auth": self._auth(status),
                "detail": status.detail,
                "backend": {"name": self._backend.name, "standing": self._backend.standing},
                "sessions": {"live": live, "parked": parked},
                "mcp": self._tools.health(),
            }
        )
        return 200 if status.reachable else 503, body

    def _auth(self, status: BackendStatus) -> str:
        if self._backend.standing == "simulated":
            return "simulated"
        return _AUTH[status.signed_in]

    def render_tools(self) -> bytes:
        return msgspec.json.encode(self._tools.listing())


class AccountUse(Enum):
    """How a path uses an account."""

    NONE = "none"
    """Concerns the gateway only."""
    IF_SENT = "if sent"
    """Uses the client's account if the request brings one, otherwise the gateway's."""
    REQUIRED = "required"


class Tenant:
    def __init__(
        self,
        *,
        dialects: Sequence[Dialect],
        responder: Responder,
        sessions: Sessions,
        models: ModelCatalogue,
        health: Health,
        account: AccountWatch,
    ) -> None:
        self.dialects: Mapping[str, Dialect] = {dialect.name: dialect for dialect in dialects}
        """By name. The first one is the default."""
        self._default = dialects[0]
        self.responder = responder
        self.sessions = sessions
        self.models = models
        self.health = health
        self.account = account

    def dialect(self, name: str) -> Dialect:
        return self.dialects.get(name, self._default)

    def dialect_of(self, headers: Mapping[str, str]) -> Dialect:
        """The dialect of a request on a shared path: the one whose header the client sends, or the default."""
        marked = (dialect for dialect in self.dialects.values() if dialect.mark and dialect.mark in headers)
        return next(marked, self._default)

    async def known_model(self, name: str, caller: Caller = NOBODY) -> ModelInfo:
        """The model, if the caller may use it. Raises GatewayError otherwise."""
        model = await self.models.find(name)
        if model is None or not self.responder.visible(caller, [model]):
            raise GatewayError(
                ErrorKind.NOT_FOUND, f"There is no model `{name}`.", hint="See /v1/models.", code="model_not_found"
            )
        return model


class TenantResolver(Protocol):
    default: Tenant
    """Serves requests without an account: the format of an error, the gateway's own state."""

    def resolve(self, request: HttpRequest, account: AccountUse) -> AbstractAsyncContextManager[Tenant]:
        """The tenant of a request, held until the response is complete. Raises GatewayError."""
        ...

    async def end_turns(self) -> None:
        """The gateway is stopping: end every turn now, with an error for its reader."""
        ...

    @property
    def live(self) -> int: ...

    @property
    def parked(self) -> int: ...


class SingleTenant:
    """The resolver of a gateway with one account: all requests get the same tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self.default = tenant
        self._before: list[Tenant] = []
        self._always_open = nullcontext(tenant)

    def switch(self, tenant: Tenant) -> None:
        """Serve new requests with this tenant. The old tenant finishes its requests."""
        self._before.append(self.default)
        self.default = tenant
        self._always_open = nullcontext(tenant)

    def resolve(self, request: HttpRequest, account: AccountUse) -> AbstractAsyncContextManager[Tenant]:
        return self._always_open

    async def end_turns(self) -> None:
        for tenant in (self.default, *self._before):
            await tenant.sessions.aclose()

    @property
    def live(self) -> int:
        return sum(tenant.sessions.live for tenant in (self.default, *self._before))

    @property
    def parked(self) -> int:
        return sum(tenant.sessions.parked for tenant in (self.default, *self._before))
