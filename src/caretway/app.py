"""The composition root: puts what is kept, budgets, tenants, page and server together. The order of a graceful shutdown
(SIGTERM): a grace for running answers, then they end with an error, then connections are cut.

`tenant_factory` builds what belongs to one account, `backend_factory` the side to Cursor, `server_factory` the side to
clients; this file puts the rooms together.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import server_factory
from .backend_factory import AT_AN_ADDRESS, new_simulator
from .budget_factory import build_budgets, build_hook
from .budgets.charges import nobody_listens
from .config import Settings, hosts
from .config.data_dir import close_data_dir
from .core.errors import GatewayError
from .core.records import Observer
from .core.turn import Backend
from .ledger.ledger import Ledger
from .ledger.ledger_file import FILE_NAME
from .mcp_factory import offers_mcp, open_mcp_bridge
from .observe.log import LogObserver
from .observe.metrics import Metrics, Observers
from .page.api import routes as page_routes
from .page.content import KeptContent
from .page.notes import PageNotes
from .page.now import GatewayFacts
from .page.parts import PageApi
from .page_factory import PageParts, build_page
from .sessions.conversation_store import StoredConversations
from .sessions.response_file import ResponseFile
from .sessions.store import SqliteStore
from .sessions.write_behind import WriteBehind
from .sign_in_factory import sign_ins, without_credentials
from .tasks import LoopThread, spawn
from .telemetry_factory import OpenTelemetry, open_telemetry
from .tenant_factory import Commons, OpenTenant, open_tenant
from .web.access import Access, is_key
from .web.application import Application
from .web.server import BACKLOG
from .web.tenant import SingleTenant, Tenant, TenantResolver

if TYPE_CHECKING:
    from .cluster_factory import Cluster
    from .hooks import HookWatch, Teller
    from .simulator import Simulator

log = logging.getLogger(__name__)

DRAIN_NOTICE_S: Final = 3.0
"""How long a gateway of a cluster goes on serving after a request to stop, until balancers have noticed."""
DRAIN_LOOK_S: Final = 0.1
SIGN_IN_LOOK_S: Final = 0.3
"""How often a gateway without an account looks whether somebody has signed in: one `stat`."""
NO_ACCOUNT: Final = (
    "these settings name no Cursor account. Settings.from_environment() has yours; Gateway.simulated() says that "
    "simulated answers are meant"
)


class Gateway:
    """The whole gateway: `async with Gateway(settings) as gateway: gateway.base_url`. `with` does the same for a
    program without an event loop: the gateway has one, in a thread of its own."""

    base_url: str
    backend: Backend
    tenants: TenantResolver

    def __init__(
        self, settings: Settings | None = None, *, local_key: str = "", simulator: "Simulator | None" = None
    ) -> None:
        """`settings`: without any, those of `caretway serve`. `local_key`: one more key, for programs of the same user;
        it counts where a key is required. `simulator`: the one that answers, if the backend is the simulator."""
        self.settings = settings if settings is not None else Settings.from_environment()
        self.local_key = local_key
        self.simulator = simulator
        self.switched: Callable[[], None] = lambda: None
        """Called after a sign-in was taken up: `backend` is another one."""
        self._started_at = time.time()
        self._isolated = False
        self._thread: LoopThread | None = None

    @classmethod
    def simulated(cls, **settings: Any) -> "Gateway":
        """Answers from a simulator of its own, on a free port. It touches neither home nor network: what it keeps is in
        a temporary directory that goes with it, unless `data_dir` is given, and no variable is read."""
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
        """A simulator of its own, and a place that goes with the gateway."""
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
        access = None if settings.cluster else self._read_keys()
        listener = _listen(settings.host, settings.port)
        stack.callback(listener.close)
        host, port = listener.getsockname()[:2]
        scheme = "https" if settings.tls_cert else "http"
        self.base_url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self._cluster = await self._join_cluster(stack)
        shared = None if self._cluster is None else self._cluster.shared
        access = access or self._read_keys()  # those of a cluster are in Redis
        open_store = partial(
            SqliteStore,
            settings.data_dir / "conversations.sqlite",
            max_bytes=settings.store_max_bytes,
            max_age_s=settings.store_max_age,
            clock=time.time,
        )
        store = open_store()
        stack.callback(store.close)
        local = WriteBehind(store, None if store.in_memory else open_store)
        self._store: StoredConversations = local if shared is None else shared.conversations(local, self._forget)
        stack.push_async_callback(self._store.aclose)
        responses = ResponseFile(
            settings.data_dir / "responses.sqlite",
            max_bytes=settings.store_max_bytes,
            max_age_s=settings.store_max_age,
            clock=time.time,
        )
        stack.push_async_callback(asyncio.to_thread, responses.close)
        self._metrics = Metrics()
        if self._cluster is not None:
            self._metrics.more = self._cluster.metrics
        self._notes, self._content = PageNotes(), KeptContent()
        telemetry = OpenTelemetry() if self._isolated else open_telemetry(settings, stack)
        self._ledger = self._open_ledger(stack)
        kept: list[Observer] = [self._ledger] if self._ledger is not None else []
        if shared is not None:
            kept.append(shared.totals)
        self._observer = Observers(LogObserver(), self._metrics, *kept, self._notes, *telemetry.observers)
        teller = build_hook(settings, stack)
        spent = shared.spent if shared is not None else None
        self._budgets = build_budgets(settings, self._keys, teller.tell if teller else nobody_listens, spent)
        stack.push_async_callback(self._budgets.aclose)
        hook_watch = None if teller is None else self._watch_for(teller, stack)
        self._bridge = await stack.enter_async_context(open_mcp_bridge(settings)) if offers_mcp(settings) else None
        commons = Commons(
            settings=settings,
            keys=self._keys,
            observer=self._observer,
            store=self._store,
            responses=responses,
            budgets=self._budgets,
            hook_watch=hook_watch,
            mcp=self._bridge,
            content=self._content,
            traced_content=telemetry.content,
            simulator=self.simulator,
            cluster=self._cluster,
        )
        accounts = await stack.enter_async_context(AsyncExitStack())  # closed after the server, whenever it was opened
        first = open_tenant(without_credentials(settings) if commons.passes else settings, commons, accounts)
        self.backend = first.backend
        self.tenants = self._per_key(first, commons, access, stack) if commons.passes else SingleTenant(first.tenant)
        if self._cluster is not None:
            self._cluster.directory.parked = lambda: self.tenants.parked
        self._page = None if commons.passes else self._build_page(access, first)
        await self._serve(access, listener, stack)
        if self.awaits_sign_in:
            task = spawn(self._await_sign_in(commons, accounts), "await-sign-in")
            stack.callback(task.cancel)
        if shared is not None:
            shared.news.start()

    @property
    def awaits_sign_in(self) -> bool:
        """It simulates for lack of credentials, and takes up those that `caretway login` stores."""
        return self.settings.backend == "auto" and self.backend.standing == "simulated"

    async def _await_sign_in(self, commons: Commons, accounts: AsyncExitStack) -> None:
        kept, url = sign_ins(self.settings), hosts(self.settings).api
        seen = kept.touched()
        while True:
            await asyncio.sleep(SIGN_IN_LOOK_S)
            if (now := kept.touched()) == seen:
                continue
            seen = now
            try:
                if await asyncio.to_thread(kept.find, url) is None:
                    continue
                opened = open_tenant(self.settings, commons, accounts)
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
        if (page := self._page) is not None:
            page.tenant, page.models = opened.tenant, opened.catalogue
            page.now.switch(self._facts(), opened.tenant)
        log.info("signed in: new requests are answered by Cursor (backend %s)", opened.backend.name)
        self.switched()

    def _facts(self) -> GatewayFacts:
        asked = self.settings.backend == "simulator"
        return GatewayFacts(self.backend.name, self.backend.standing, self.base_url, self._started_at, asked)

    async def _join_cluster(self, stack: AsyncExitStack) -> "Cluster | None":
        """None: this gateway is alone, and nothing of a cluster is imported."""
        if self.settings.cluster is None:
            return None
        from .cluster_factory import open_cluster

        return await open_cluster(self.settings, self.base_url, stack)

    def _watch_for(self, teller: "Teller", stack: AsyncExitStack) -> "HookWatch":
        from .hooks import HookWatch  # only with a hook

        watch = HookWatch(teller.tell)
        stack.callback(watch.close)
        self._observer = Observers(self._observer, watch)
        return watch

    def _read_keys(self) -> Access:
        """Who may come in. Raises where strangers could and no key is set."""
        self._keys = server_factory.key_book(self.settings)
        return server_factory.access_rules(self.settings, self._keys, self.local_key)

    async def _forget(self, conversation: str) -> None:
        """Another gateway of the cluster has forgotten it."""
        from .page.tabs import CANCELLED

        self.tenants.default.sessions.forget(conversation, CANCELLED)
        self._content.forget(conversation)
        if self._page is not None:
            await self._page.books.forget(conversation)

    def _build_page(self, access: Access, first: OpenTenant) -> PageApi:
        parts = PageParts(
            access=access,
            keys=self._keys,
            tenant=first.tenant,
            catalogue=first.catalogue,
            budgets=self._budgets,
            mcp=self._bridge,
            facts=self._facts(),
            notes=self._notes,
            content=self._content,
            forget_stored=self._store.forget,
            ledger=self._ledger,
            cluster=lambda: None if self._cluster is None else self._cluster.told(),
        )
        return build_page(self.settings, parts)

    def _open_ledger(self, stack: AsyncExitStack) -> Ledger | None:
        """One for all accounts: it names keys, not accounts."""
        settings = self.settings
        if not settings.ledger_max_age:
            return None
        path = settings.data_dir / FILE_NAME
        ledger = Ledger(
            path,
            max_age_s=settings.ledger_max_age,
            max_bytes=settings.ledger_max_bytes,
            stand_ins=AT_AN_ADDRESS if hosts(settings).stand_in else (),
        )
        stack.push_async_callback(asyncio.to_thread, ledger.close)
        return ledger

    def _per_key(self, first: OpenTenant, commons: Commons, access: Access, stack: AsyncExitStack) -> TenantResolver:
        """Each client's Cursor API key opens a tenant like the owner's own, with nothing in common but the limits."""
        from .web.passthrough import TenantPerKey

        bare = without_credentials(self.settings)

        @asynccontextmanager
        async def open_for(key: str) -> AsyncIterator[Tenant]:
            async with AsyncExitStack() as own:
                opened = open_tenant(replace(bare, api_key=key), commons, own, first.backend)
                await opened.backend.models()  # a key that Cursor does not accept gets no tenant
                yield opened.tenant

        tenants = TenantPerKey(
            first.tenant,
            open_for,
            limit=self.settings.max_accounts,
            clock=time.monotonic,
            is_ours=lambda key: is_key(access, key, self._keys.current()),
        )
        stack.push_async_callback(tenants.aclose)
        return tenants

    def _build_application(self) -> Application:
        settings = self.settings
        return Application(
            tenants=self.tenants,
            metrics=self._metrics,
            observer=self._observer,
            backend=self.backend.name,
            shape=server_factory.shape_limits(settings),
            max_concurrent=settings.max_concurrent,
            more=() if self._page is None else page_routes(self._page),
            page=None if self._page is None else self._page.files,
            elsewhere=None if self._cluster is None else self._cluster.hops,
        )

    async def _serve(self, access: Access, listener: socket.socket, stack: AsyncExitStack) -> None:
        page = self._page
        door = page.door if page is not None else None
        application = self._application = self._build_application()
        cluster = self._cluster
        elsewhere, limits = (None, None) if cluster is None else (cluster.hops, cluster.shared.limits)
        server = server_factory.build_server(
            self.settings, access, self._keys, application, stack, door, elsewhere, limits
        )

        async def stop() -> None:
            """Graceful shutdown: running responses get the grace; those that outlast it end with an error they can
            read. In a cluster, turns that are parked can be reached for a while before."""
            application.drain()
            if cluster is not None:
                server.drain()
                await cluster.directory.drain()
                await self._drained(self.settings.cluster_drain)
            server.retire()
            if page is not None:
                page.feed.close()
            if not await server.emptied(self.settings.shutdown_grace):
                await self.tenants.end_turns()
                await server.emptied(server_factory.SHUTDOWN_NOTICE_S)
                server.cut()

        self._server, self._stop = server, stop
        stack.push_async_callback(stop)
        await server.start(listener)

    async def _drained(self, seconds: float) -> None:
        """Until no turn is left. Balancers get a moment to notice in any case."""
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
        """For programs that cannot use `async with`: the base URL of the running gateway. `stop` ends it."""
        await self.__aenter__()
        return self.base_url

    async def stop(self) -> None:
        await self.__aexit__()


def _listen(host: str, port: int) -> socket.socket:
    """Binds the port before anything else starts, so that a port in use is an error at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, or asyncio's own loop does not know what it is and leaves Nagle's algorithm on: events would wait for ACKs.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
