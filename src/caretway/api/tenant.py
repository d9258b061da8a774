"""What serves one account: its dialects and their memory, sessions, models, health; which dialect answers where several
APIs share a path. Accounts share no object. The resolver for a single account is here, that of many in `passthrough`.

Two accounts are two tenants and share none of these, so nothing of one can be found through the other: there is no
check that could be forgotten. A `TenantResolver` decides which request belongs to which tenant.
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

# ---- `/caretway/v1/account`: what the account has used of its plan, asked at most once a minute (after a failure every
# 15 s), for at most 5 s, and never for a request to a model.

FRESH_S: Final = 60.0
AGAIN_S: Final = 15.0
PATIENCE_S: Final = 5.0
TELLS_NOTHING: Final = "This backend does not report what the account has used; `agent` does."

AccountSource = Callable[[], Awaitable[AccountUsage]]
"""Raises GatewayError."""


class AccountWatch:
    def __init__(self, source: AccountSource | None, clock: Callable[[], float] = time.time) -> None:
        """`source` None: the backend reports nothing. `clock`: unix seconds."""
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._report: dict[str, Any] | None = None
        self._until = 0.0

    async def current(self) -> dict[str, Any]:
        """The account's usage. Concurrent callers share one request to Cursor."""
        async with self._lock:
            if self._report is None or time.monotonic() >= self._until:
                self._report = await ask_account(self._source, self._clock)
                self._until = time.monotonic() + (FRESH_S if self._report["known"] else AGAIN_S)
            return self._report


async def ask_account(source: AccountSource | None, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Now, whatever was told before; a failure is an answer too."""
    if source is None:
        return unknown_account(TELLS_NOTHING, clock())
    try:
        async with asyncio.timeout(PATIENCE_S):
            return known_account(await source(), clock())
    except TimeoutError:
        return unknown_account(f"Cursor did not answer within {PATIENCE_S:g} s.", clock())
    except GatewayError as failure:
        return unknown_account(str(failure), clock())


# ---- `/health` and `/healthz`: is Cursor reachable, is the account accepted (asked once a minute, after a failure
# every 5 s), what a probe without a key may learn; the list of the gateway's own tools.

_AUTH: Final = {True: "authenticated", False: "not_authenticated", None: "unknown"}


class ToolSource(Protocol):
    """The gateway's own tools, in words for /health and /v1/tools."""

    def health(self) -> Mapping[str, object]: ...

    def listing(self) -> Mapping[str, object]: ...


class NoTools:
    def health(self) -> Mapping[str, object]:
        return {"enabled": False, "servers": 0, "tools": 0}

    def listing(self) -> Mapping[str, object]:
        return {"object": "list", "data": [], "mcp": {"servers": 0, "tools": 0}}


class Health:
    """The account's state is asked for at most once a minute, and never keeps `/health` waiting for long."""

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
        """For probes without a key: nothing private."""
        status = await self.status()
        ready = status.reachable and (status.signed_in or self._backend.standing == "simulated")
        return b'{"status":"ready"}' if ready else b'{"status":"alive"}'

    async def render(self, *, parked: int, live: int) -> tuple[int, bytes]:
        """(HTTP status, JSON)"""
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
    """Whether a path speaks of an account."""

    NONE = "none"
    """It concerns the gateway alone."""
    IF_SENT = "if sent"
    """Of the client's account when the request brings one, otherwise of the gateway."""
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
        """By name. The first one also answers where no dialect is asked for."""
        self._default = dialects[0]
        self.responder = responder
        self.sessions = sessions
        self.models = models
        self.health = health
        self.account = account

    def dialect(self, name: str) -> Dialect:
        return self.dialects.get(name, self._default)

    def dialect_of(self, headers: Mapping[str, str]) -> Dialect:
        """The dialect of a request. On a shared path it is the one that the client names, or the default."""
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
    """For what concerns no account: the words of an error, the gateway's own state."""

    def resolve(self, request: HttpRequest, account: AccountUse) -> AbstractAsyncContextManager[Tenant]:
        """The tenant of this request, held until the answer is complete. Raises GatewayError."""
        ...

    async def end_turns(self) -> None:
        """The gateway stops: every turn ends now, with an error for its reader."""
        ...

    @property
    def live(self) -> int: ...

    @property
    def parked(self) -> int: ...


class SingleTenant:
    """The gateway's owner is the only account there is."""

    def __init__(self, tenant: Tenant) -> None:
        self.default = tenant
        self._before: list[Tenant] = []
        self._always_open = nullcontext(tenant)

    def switch(self, tenant: Tenant) -> None:
        """New requests belong to this one. The one before it finishes what it has begun."""
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
