"""What serves one account: its dialects and their memory, sessions, models, health; which dialect answers where several
APIs share a path. Accounts share no object. The resolver for a single account is here, that of many in `passthrough`.

Two accounts are two tenants and share none of these, so nothing of one can be found through the other: there is no
check that could be forgotten. A `TenantResolver` decides which request belongs to which tenant.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import Enum
from typing import Protocol

from ..accounts.models.catalogue import ModelCatalogue
from ..core.caller import NOBODY, Caller
from ..core.errors import ErrorKind, GatewayError
from ..core.turn import ModelInfo
from ..dialects import Dialect
from ..server.exchange import HttpRequest
from ..sessions.manager import Sessions
from .account import AccountWatch
from .health import Health
from .respond import Responder


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
        """At a path that several APIs have: the one whose clients say who they are, or the default."""
        marked = (dialect for dialect in self.dialects.values() if dialect.mark and dialect.mark in headers)
        return next(marked, self._default)

    async def known_model(self, name: str, caller: Caller = NOBODY) -> ModelInfo:
        """One that the caller may use. Raises GatewayError."""
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
