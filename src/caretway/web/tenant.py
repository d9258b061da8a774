"""What answers for one account: its dialects with all that they remember, its sessions, its models, its health.

Two accounts have two desks and share none of these, so nothing of one can be found through the other: there is no check
that could be forgotten. Which request goes to which desk is the reception's business.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from ..core.errors import ErrorKind, GatewayError
from ..core.turn import ModelInfo
from ..dialects import Dialect
from ..sessions.manager import Sessions
from .exchange import HttpRequest
from .models import Health, ModelSource
from .respond import Responder


class Tenant:
    def __init__(
        self,
        *,
        dialects: Sequence[Dialect],
        responder: Responder,
        sessions: Sessions,
        models: ModelSource,
        health: Health,
    ) -> None:
        self.routes = {route: dialect for dialect in dialects for route in dialect.routes}
        self._errands = [(prefix, dialect) for dialect in dialects for prefix in dialect.errands]
        self._default = dialects[0]
        self.responder = responder
        self.sessions = sessions
        self.models = models
        self.health = health

    def errand_runner(self, path: str) -> Dialect | None:
        return next((dialect for prefix, dialect in self._errands if path.startswith(prefix)), None)

    def dialect(self, path: str) -> Dialect:
        """Whose words to use at this path, if only for an error."""
        return self.routes.get(path) or self.errand_runner(path) or self._default

    def model_shape(self, http: HttpRequest) -> Dialect:
        """The same list in two shapes: Anthropic's clients say who they are."""
        asked = "anthropic_messages" if "anthropic-version" in http.headers else ""
        return next((dialect for dialect in self.routes.values() if dialect.name == asked), self._default)

    async def known_model(self, name: str) -> ModelInfo:
        model = await self.models.find(name)
        if model is None:
            raise GatewayError(
                ErrorKind.NOT_FOUND, f"There is no model `{name}`.", hint="See /v1/models.", code="model_not_found"
            )
        return model


class TenantResolver(Protocol):
    lobby: Tenant
    """For what concerns no account: the words of an error, the gateway's own state."""

    def receive(self, http: HttpRequest) -> AbstractAsyncContextManager[Tenant]:
        """The desk for this request, held until the answer is complete. Raises GatewayError."""
        ...

    async def end_turns(self) -> None:
        """The gateway stops: every turn ends now, and whoever reads one is told."""
        ...

    @property
    def live(self) -> int: ...

    @property
    def parked(self) -> int: ...


class SingleTenant:
    """The gateway's owner is the only account there is."""

    def __init__(self, desk: Tenant) -> None:
        self.lobby = desk
        self._always_open = nullcontext(desk)

    def receive(self, http: HttpRequest) -> AbstractAsyncContextManager[Tenant]:
        return self._always_open

    async def end_turns(self) -> None:
        await self.lobby.sessions.aclose()

    @property
    def live(self) -> int:
        return self.lobby.sessions.live

    @property
    def parked(self) -> int:
        return self.lobby.sessions.parked
