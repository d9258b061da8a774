"""Passthrough mode: one tenant for each Cursor API key that clients send (never the gateway's own key).

A tenant opens when Cursor accepts its key for the first time; concurrent requests with a new key share one opening.
Keys are looked up by digest; the key itself is held only by its tenant. Above the limit of accounts an idle tenant is
closed. A refused key is not sent to Cursor again for a minute.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from copy import copy
from typing import Final

from msgspec import Struct, field

from ..core.errors import ErrorKind, GatewayError, gateway_stops
from ..processes.tasks import spawn
from ..server.access import SEND_KEY
from ..server.exchange import HttpRequest
from .tenant import AccountUse, Tenant

MAX_KEY_CHARS: Final = 4096
REFUSED_FOR_S: Final = 60.0
MAX_REFUSED: Final = 1024

OpenTenant = Callable[[str], AbstractAsyncContextManager[Tenant]]
"""Opens the tenant of a Cursor API key. Raises GatewayError if the key is refused. Closing the tenant ends its
turns."""
IsOurs = Callable[[str], bool]
"""True for a key of the gateway itself, which must never be sent to Cursor."""


def client_key(headers: Mapping[str, str], is_ours: IsOurs) -> str | None:
    """The Cursor API key of a request; None without one."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    sent = (bearer if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
    key = next((word.strip() for word in sent if word.strip() and not is_ours(word.strip())), None)
    if key is not None and (len(key) > MAX_KEY_CHARS or not key.isascii() or not key.isprintable() or " " in key):
        raise GatewayError(ErrorKind.SIGNED_OUT, "This cannot be a Cursor API key.", hint=SEND_KEY)
    return key


class _Place(Struct, eq=False):
    """One key's tenant, open or opening."""

    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    opening: asyncio.Task[GatewayError | None] | None = None
    tenant: Tenant | None = None
    users: int = 0

    @property
    def busy(self) -> bool:
        return self.users > 0 or self.tenant is None or self.tenant.sessions.live > 0


class TenantPerKey:
    def __init__(
        self, default: Tenant, open_tenant: OpenTenant, *, limit: int, clock: Callable[[], float], is_ours: IsOurs
    ) -> None:
        """`clock`: monotonic seconds."""
        self.default = default
        self._open_tenant = open_tenant
        self._limit = limit
        self._clock = clock
        self._is_ours = is_ours
        self._places: OrderedDict[bytes, _Place] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, GatewayError]] = OrderedDict()

    @property
    def live(self) -> int:
        return sum(place.tenant.sessions.live for place in self._places.values() if place.tenant is not None)

    @property
    def parked(self) -> int:
        return sum(place.tenant.sessions.parked for place in self._places.values() if place.tenant is not None)

    @asynccontextmanager
    async def resolve(self, request: HttpRequest, account: AccountUse) -> AsyncIterator[Tenant]:
        if account is AccountUse.NONE:
            yield self.default
            return
        key = client_key(request.headers, self._is_ours)
        if account is AccountUse.IF_SENT and key is None:
            yield self.default
            return
        if key is None:
            raise GatewayError(ErrorKind.SIGNED_OUT, "Here every client brings its own Cursor API key.", hint=SEND_KEY)
        place = self._place(key)
        place.users += 1
        try:
            if place.tenant is None:
                await self._opened(place)
            assert place.tenant is not None
            yield place.tenant
        finally:
            place.users -= 1

    async def end_turns(self) -> None:
        tenants = [place.tenant for place in self._places.values() if place.tenant is not None]
        await asyncio.gather(*(tenant.sessions.aclose() for tenant in tenants))

    async def aclose(self) -> None:
        """Close every tenant. Stop listening first: new requests would open new tenants."""
        places, self._places = list(self._places.values()), OrderedDict()
        for place in places:
            if place.opening is not None:
                place.opening.cancel()
                await asyncio.wait([place.opening])
        await asyncio.gather(*(place.stack.aclose() for place in places))

    # ---- one key

    def _place(self, key: str) -> _Place:
        name = hashlib.sha256(key.encode()).digest()
        if (place := self._places.get(name)) is not None:
            self._places.move_to_end(name)
            return place
        self._check_refused(name)
        self._make_room()
        place = self._places[name] = _Place()
        place.opening = spawn(self._open(name, place, key), "open-account")
        return place

    def _check_refused(self, name: bytes) -> None:
        if (known := self._refused.get(name)) is not None:
            until, error = known
            if self._clock() < until:
                raise copy(error)
            del self._refused[name]

    def _make_room(self) -> None:
        if len(self._places) < self._limit:
            return
        idle = next((name for name, place in self._places.items() if not place.busy), None)
        if idle is None:
            raise GatewayError(
                ErrorKind.OVERLOADED,
                f"{self._limit} accounts are in use already.",
                hint="Try again in a moment, or raise `max_accounts`.",
            )
        spawn(self._places.pop(idle).stack.aclose(), "close-account")

    async def _open(self, name: bytes, place: _Place, key: str) -> GatewayError | None:
        """Runs in its own task: the first request may hang up while others wait for the same tenant."""
        try:
            place.tenant = await place.stack.enter_async_context(self._open_tenant(key))
        except GatewayError as error:
            if error.kind is ErrorKind.SIGNED_OUT:
                self._refused[name] = self._clock() + REFUSED_FOR_S, error
                while len(self._refused) > MAX_REFUSED:
                    self._refused.popitem(last=False)
            return error
        finally:
            place.opening = None
            if place.tenant is None:
                self._places.pop(name, None)
        return None

    async def _opened(self, place: _Place) -> None:
        opening = place.opening
        if opening is not None:
            await asyncio.wait([opening])  # unlike awaiting it, this does not cancel it when this request is cancelled
            if not opening.cancelled() and (error := opening.result()) is not None:
                raise copy(error)
        if place.tenant is None:
            raise gateway_stops()
