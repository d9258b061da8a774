"""The public class: a whole gateway that is started, drained and stopped. `assembly` builds its parts.

A graceful shutdown (SIGTERM) gives running answers a grace period, then ends them with an error, then closes
connections.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .api.tenant import SingleTenant, TenantResolver
from .assembly import (
    OpenTenant,
    access_rules,
    build_application,
    build_page,
    build_server,
    key_book,
    listen,
    open_services,
    open_tenant,
    tenant_per_key,
)
from .config import Settings, hosts
from .config.data_dir import close_data_dir
from .core.errors import GatewayError
from .core.turn import Backend
from .dashboard.now import GatewayFacts
from .processes.tasks import LoopThread, spawn
from .server.access import Access
from .upstream import new_simulator, passes, sign_ins, without_credentials
from .usage.key_file import KeyRegistry

if TYPE_CHECKING:
    from caretway_sim import Simulator

    from .cluster.membership import Cluster

log = logging.getLogger(__name__)

SHUTDOWN_NOTICE_S: Final = 3.0
"""How long clients may take to receive the end of their answer."""
DRAIN_NOTICE_S: Final = 3.0
"""How long a gateway of a cluster serves after a stop request, until load balancers have noticed."""
DRAIN_LOOK_S: Final = 0.1
NO_ACCOUNT: Final = (
    "these settings name no Cursor account. Settings.from_environment() has yours; Gateway.simulated() says that "
    "simulated answers are meant"
)


class Gateway:
    """A complete gateway: `async with Gateway(settings) as gateway: gateway.base_url`. `with` serves programs without
    an event loop: it runs one in a thread."""

    base_url: str
    backend: Backend
    tenants: TenantResolver

    def __init__(
        self, settings: Settings | None = None, *, local_key: str = "", simulator: "Simulator | None" = None
    ) -> None:
        """`settings` default to those of `caretway serve`. `local_key`: another valid key for programs of the same user
        where a key is required. `simulator`: the simulator to use if it is the backend."""
        self.settings = settings if settings is not None else Settings.from_environment()
        self.local_key = local_key
        self.simulator = simulator
        self.switched: Callable[[], None] = lambda: None
        """Called after a sign-in has replaced `backend`."""
        self._started_at = time.time()
        self._isolated = False
        self._thread: LoopThread | None = None

    @classmethod
    def simulated(cls, **settings: Any) -> "Gateway":
        """A gateway with its own simulator on a free port. It uses neither network nor home directory and reads no
        variables; its data is in a temporary directory, deleted at the end, unless `data_dir` is given."""
        given = {"port": 0, "backend": "simulator", **settings}
        gateway = cls(Settings(**given), simulator=new_simulator())
        gateway._isolated = True
        return gateway

    async def __aenter__(self) -> "Gateway":
        async with AsyncExitStack() as stack:
            if self._isolated:
                self._move_in(stack)
            await self._open(stack)
            self._stack = stack.pop_all()
        if self.backend.standing == "simulated" and self.settings.backend == "auto" and not self.settings.origins:
            log.warning("answers are simulated: %s", NO_ACCOUNT)
        return self

    def _move_in(self, stack: AsyncExitStack) -> None:
        """Makes a simulator and a temporary data directory."""
        if self.simulator is None or self.simulator.closed:
            self.simulator = new_simulator()
        if self.settings.origin("data_dir") == "default":
            from tempfile import TemporaryDirectory

            stack.callback(setattr, self, "settings", self.settings)
            place = stack.enter_context(TemporaryDirectory(prefix="caretway-"))
            self.settings = replace(self.settings, data_dir=Path(place))

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        close_data_dir(settings.data_dir, settings.origin("data_dir"))
        if settings.cluster is None:
            keys, access = self._read_keys()
        listener = listen(settings.host, settings.port)
        stack.callback(listener.close)
        host, port = listener.getsockname()[:2]
        scheme = "https" if settings.tls_cert else "http"
        self.base_url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        cluster: Cluster | None = None
        if settings.cluster is not None:
            from .cluster.membership import join_cluster

            cluster = await join_cluster(settings, self.base_url, stack)
            keys, access = self._read_keys()  # read again: a cluster's keys are in Redis
        services = await open_services(settings, keys, cluster, self._forget, stack, telemetry=not self._isolated)
        self._services = services
        self._accounts = await stack.enter_async_context(AsyncExitStack())  # closed after the server
        passing = passes(settings)
        first = self._open_tenant(without_credentials(settings) if passing else settings)
        self.backend = first.backend
        self.tenants = tenant_per_key(first, services, access, stack) if passing else SingleTenant(first.tenant)
        if cluster is not None:
            cluster.directory.parked = lambda: self.tenants.parked
        self._page = None if passing else build_page(services, access, self._facts(), first)
        self._application = build_application(services, self.tenants, self.backend.name, self._page)
        self._server = build_server(services, access, self._application, self._page, stack)
        stack.push_async_callback(self.drain)
        await self._server.start(listener)
        if self.awaits_sign_in:
            task = spawn(self._await_sign_in(), "await-sign-in")
            stack.callback(task.cancel)
        if cluster is not None:
            cluster.news.start()

    def _read_keys(self) -> tuple[KeyRegistry, Access]:
        """The access rules. Raises if strangers could connect and no key is set."""
        keys = key_book(self.settings)
        return keys, access_rules(self.settings, keys, self.local_key)

    def _open_tenant(self, settings: Settings) -> OpenTenant:
        return open_tenant(settings, self._services, self._accounts, simulator=self.simulator)

    def _facts(self) -> GatewayFacts:
        chosen = self.settings.backend == "simulator"
        return GatewayFacts(self.backend.name, self.backend.standing, self.base_url, self._started_at, chosen)

    async def _forget(self, conversation: str) -> None:
        """Deletes a conversation that another gateway of the cluster has deleted."""
        from .dashboard.tabs import CANCELLED

        self.tenants.default.sessions.forget(conversation, CANCELLED)
        self._services.content.forget(conversation)
        if self._page is not None:
            await self._page.books.forget(conversation)

    # ---- a sign-in while it runs

    @property
    def awaits_sign_in(self) -> bool:
        """Whether the gateway simulates for lack of credentials and will use a sign-in stored by `caretway login`."""
        return self.settings.backend == "auto" and self.backend.standing == "simulated"

    async def _await_sign_in(self) -> None:
        kept, url = sign_ins(self.settings), hosts(self.settings).api
        seen = kept.touched()
        while True:
            seen = await kept.changed(seen)
            try:
                if await asyncio.to_thread(kept.find, url) is None:
                    continue
                opened = self._open_tenant(self.settings)
            except GatewayError as failure:
                log.warning("the sign-in cannot be used: %s", failure)
                continue
            if self._page is not None:
                await opened.catalogue.change_aliases(self._page.models.aliases)
            self._switch(opened)
            return

    def _switch(self, opened: OpenTenant) -> None:
        self.backend = opened.backend
        assert isinstance(self.tenants, SingleTenant)
        self.tenants.switch(opened.tenant)
        self._application.use_backend(opened.backend.name)
        if self._page is not None:
            self._page.switch(self._facts(), opened.tenant, opened.catalogue)
        log.info("signed in: new requests are answered by Cursor (backend %s)", opened.backend.name)
        self.switched()

    # ---- the end

    async def drain(self) -> None:
        """Shuts down gracefully: running responses get the grace period; longer ones end with a readable error. In a
        cluster, parked turns stay reachable for a while first."""
        self._application.drain()
        cluster = self._services.cluster
        if cluster is not None:
            self._server.drain()
            await cluster.directory.drain()
            await self._drained(self.settings.cluster_drain)
        self._server.retire()
        if self._page is not None:
            self._page.feed.close()
        if not await self._server.emptied(self.settings.shutdown_grace):
            await self.tenants.end_turns()
            await self._server.emptied(SHUTDOWN_NOTICE_S)
            self._server.cut()

    async def _drained(self, seconds: float) -> None:
        """Waits until no turn is left, but at least as long as load balancers need to notice."""
        for look in range(int(seconds / DRAIN_LOOK_S)):
            if not self.tenants.live and look * DRAIN_LOOK_S >= DRAIN_NOTICE_S:
                return
            await asyncio.sleep(DRAIN_LOOK_S)

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def __enter__(self) -> "Gateway":
        self._thread = LoopThread("caretway gateway")
        try:
            return self._thread.call(self.__aenter__())
        except BaseException:
            self._thread.close()
            raise

    def __exit__(self, *exc: object) -> None:
        assert self._thread is not None
        try:
            self._thread.call(self.__aexit__())
        finally:
            self._thread.close()

    async def start(self) -> str:
        """Starts the gateway for programs that cannot use `async with`, and returns its base URL. `stop` ends it."""
        await self.__aenter__()
        return self.base_url

    async def stop(self) -> None:
        await self.__aexit__()
