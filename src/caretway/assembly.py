"""Builds the objects of a gateway from settings: access, stores, budgets, observers, one account's objects, the
dashboard, the server. Only this module knows every room; `upstream` builds the side to Cursor.

The sections are in the order in which a gateway starts.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace as with_settings
from functools import lru_cache, partial, reduce
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from . import __version__
from .accounts.catalogue import ModelCatalogue
from .api.answer import Pace
from .api.application import AccessLayer, Application
from .api.dashboard_access import DashboardAccess
from .api.images import ImageFetcher
from .api.respond import Content, Responder
from .api.routes import PREFIX
from .api.tenant import AccountWatch, Health, Tenant, TenantResolver
from .backends.text_protocol.prompt import demand_tools
from .backends.text_protocol.thinking import think_tags, thinking
from .config import ConfigError, Settings, hosts, process_environment
from .config.loading import telemetry_plan
from .config.secrets import gateway_keys, secrets_in
from .core.errors import ErrorKind, GatewayError
from .core.records import Observer
from .core.request import SessionMode, TurnRequest
from .core.turn import Abilities, Backend, StageFactory
from .cursor.transport.h2_transport import open_transport
from .dashboard.api import PageApi
from .dashboard.api import routes as page_routes
from .dashboard.content import KeptContent
from .dashboard.notes import PageNotes
from .dashboard.now import GatewayFacts
from .dialects.openai_responses.store import ResponseArchive
from .dialects.registry import dialects
from .installation import install_command
from .observe.log import LogObserver
from .observe.metrics import Metrics, Observers
from .observe.redact import Redactor
from .server.access import Access, Admission, CallerLimits, access_for, is_key
from .server.request_reader import Bodies, BodyLimits, ConnectionLimits
from .server.server import BACKLOG, Server, TlsContext, connections_that_fit, tls_context
from .server.shape import ShapeLimits
from .sessions.live import REPLICA
from .sessions.loop_history import loop_guard
from .sessions.manager import SessionLimits, Sessions
from .sessions.response_file import AccountResponses, ResponseFile
from .sessions.stages import (
    honour_max_tokens,
    honour_web_search,
    output_format,
    stop_sequences,
    token_cut,
    with_instructions,
)
from .sessions.store import SqliteStore, StoredConversations
from .sessions.write_behind import WriteBehind
from .upstream import (
    account_source,
    billed_source,
    build_backend,
    dialler,
    holder,
    offers_mcp,
    open_mcp_bridge,
    open_trace,
    passes,
    stand_ins,
    transport_limits,
    without_credentials,
)
from .usage.budget import BudgetScope, UsageBudget, parse_budgets
from .usage.charges import Budgets, KeyBudgets, Tell, nobody_listens, run_limit
from .usage.key_file import CLUSTER_COPY, KeyFile, KeyRegistry
from .usage.ledger import Ledger
from .usage.prices import PriceList, read_prices
from .usage.spent_store import FILE as SPENT_FILE
from .usage.spent_store import SpentStore
from .usage.sqlite_store import SqliteSpent
from .usage.writing import FILE_NAME as LEDGER_FILE

if TYPE_CHECKING:
    from caretway_sim import Simulator

    from .cluster.membership import Cluster
    from .mcp.bridge import McpBridge
    from .usage.hooks import HookQueue, HookWatch, Send, WebHook

log = logging.getLogger(__name__)

LONGEST_LOOK_S: Final = 1.0
"""The longest pause between two checks for overdue connections."""
MAX_STORE_BYTES: Final = 256 * 2**20
"""The limit for each of two stores: conversations, and responses that clients can request again."""
MAX_LEDGER_BYTES: Final = 64 * 2**20


# ---- who may come in


def key_book(settings: Settings) -> KeyRegistry:
    """The named keys. Raises if their file cannot be used."""
    return KeyRegistry(key_file(settings))


def key_file(settings: Settings) -> KeyFile:
    """The named keys of this gateway, or its copy of the cluster's."""
    return KeyFile(settings.data_dir, name=CLUSTER_COPY) if settings.cluster else KeyFile(settings.data_dir)


def access_rules(settings: Settings, keys: KeyRegistry, local_key: str = "") -> Access:
    """The rules of access from the settings. Raises if the gateway would be open to strangers or only half of TLS is
    set. `local_key` is accepted only where another key is required."""
    for given, missing in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, given) is not None and getattr(settings, missing) is None:
            raise ConfigError(missing, settings.origin(given), f"{given} is set and {missing} is not: TLS needs both")
    return access_for(
        settings.host,
        gateway_keys(settings),
        settings.allowed_hosts,
        settings.allowed_origins,
        named=keys.current() is not None,
        local_key=local_key,
    )


def listen(host: str, port: int) -> socket.socket:
    """Binds the port before anything else starts, so that a port in use fails at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With protocol 0, asyncio's own loop leaves Nagle's algorithm on, and events would wait for ACKs.
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


# ---- what the accounts of a gateway share


class SharedServices(Struct, frozen=True):
    """The objects shared by a gateway's accounts, dashboard and server."""

    settings: Settings
    keys: KeyRegistry
    store: StoredConversations
    responses: ResponseFile
    metrics: Metrics
    ledger: Ledger | None
    observer: Observer
    budgets: Budgets
    hook_watch: "HookWatch | None"
    mcp: "McpBridge | None"
    notes: PageNotes
    content: KeptContent
    traced_content: Content | None
    cluster: "Cluster | None"


async def open_services(
    settings: Settings,
    keys: KeyRegistry,
    cluster: "Cluster | None",
    forget: Callable[[str], Awaitable[None]],
    stack: AsyncExitStack,
    *,
    telemetry: bool,
) -> SharedServices:
    """Opens the services; `stack` closes them. `forget` is called with a conversation that another gateway of the
    cluster has deleted. `telemetry`: whether the `OTEL_` variables apply."""
    local = _open_conversations(settings, stack)
    store = local if cluster is None else cluster.conversations(local, settings.store_max_age, forget)
    stack.push_async_callback(store.aclose)
    responses = ResponseFile(
        settings.data_dir / "responses.sqlite",
        max_bytes=MAX_STORE_BYTES,
        max_age_s=settings.store_max_age,
        clock=time.time,
    )
    stack.push_async_callback(asyncio.to_thread, responses.close)
    metrics, notes = Metrics(), PageNotes()
    traced = open_telemetry(settings, stack) if telemetry else OpenTelemetry()
    ledger = _open_ledger(settings, stack)
    observers: list[Observer] = [LogObserver(), metrics]
    if ledger is not None:
        observers.append(ledger)
    if cluster is not None:
        metrics.more = cluster.metrics
        observers.append(cluster.totals)
    observers += [notes, *traced.observers]
    teller = _build_hook(settings, stack)
    budgets = _build_budgets(
        settings,
        keys,
        nobody_listens if teller is None else teller.tell,
        None if cluster is None else cluster.spent,
    )
    stack.push_async_callback(budgets.aclose)
    hook_watch = None
    if teller is not None:
        from .usage.hooks import HookWatch

        hook_watch = HookWatch(teller.tell)
        stack.callback(hook_watch.close)
        observers.append(hook_watch)
    return SharedServices(
        settings=settings,
        keys=keys,
        store=store,
        responses=responses,
        metrics=metrics,
        ledger=ledger,
        observer=Observers(*observers),
        budgets=budgets,
        hook_watch=hook_watch,
        mcp=await stack.enter_async_context(open_mcp_bridge(settings)) if offers_mcp(settings) else None,
        notes=notes,
        content=KeptContent(),
        traced_content=traced.content,
        cluster=cluster,
    )


def _open_conversations(settings: Settings, stack: AsyncExitStack) -> WriteBehind:
    open_store = partial(
        SqliteStore,
        settings.data_dir / "conversations.sqlite",
        max_bytes=MAX_STORE_BYTES,
        max_age_s=settings.store_max_age,
        clock=time.time,
    )
    store = open_store()
    stack.callback(store.close)
    return WriteBehind(store, None if store.in_memory else open_store)


def _open_ledger(settings: Settings, stack: AsyncExitStack) -> Ledger | None:
    """Opens one ledger for all accounts: it names keys, not accounts."""
    if not settings.ledger_max_age:
        return None
    ledger = Ledger(
        settings.data_dir / LEDGER_FILE,
        max_age_s=settings.ledger_max_age,
        max_bytes=MAX_LEDGER_BYTES,
        stand_ins=stand_ins(settings),
    )
    stack.push_async_callback(asyncio.to_thread, ledger.close)
    return ledger


class OpenTelemetry(Struct, frozen=True):
    """The observers of OpenTelemetry and the content they get; nothing by default."""

    observers: Sequence[Observer] = ()
    content: Content | None = None


def open_telemetry(settings: Settings, stack: AsyncExitStack) -> OpenTelemetry:
    """Starts the observers; `stack` closes them."""
    plan = telemetry_plan()
    for problem in plan.problems:
        log.warning("%s", problem)
    if not plan.wanted:
        return OpenTelemetry()
    try:
        from .observe.otel import Telemetry, content_json
    except ImportError as missing:
        log.warning("OTEL_ variables ask for OpenTelemetry, and %s. Type: %s", missing, install_command("otel"))
        return OpenTelemetry()
    scheme = "https" if settings.tls_cert else "http"
    telemetry = Telemetry(_turn_routes(), scheme, traces=plan.traces, metrics=plan.metrics)
    stack.push_async_callback(telemetry.aclose)
    if not plan.content:
        return OpenTelemetry(telemetry.observers)
    log.warning(
        "traces hold prompts and answers, because OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT asks for it"
    )
    return OpenTelemetry(telemetry.observers, partial(content_json, hide=Redactor(secrets_in(settings)).text))


def _turn_routes() -> dict[str, str]:
    """Maps the name of each API to its route for answers."""
    return {
        dialect.name: PREFIX + route.path
        for dialect in dialects()
        for route in dialect.routes
        if any(operation.turn for operation in route.operations.values())
    }


def _build_hook(settings: Settings, stack: AsyncExitStack) -> "HookQueue | None":
    """Builds the queue that notifies the owner. None if no hook is set; then nothing is imported."""
    if settings.hook is None:
        return None
    from .usage.hooks import CommandHook, HookQueue, read_hook, run_command

    try:
        hook = read_hook(settings.hook)
    except ValueError as problem:
        raise ConfigError("hook", settings.origin("hook"), f"hook: {problem}") from None
    if isinstance(hook, CommandHook):
        teller = HookQueue(run_command(hook, process_environment()))
    else:
        teller = HookQueue(_posting(hook, settings, stack))
    stack.push_async_callback(teller.aclose)
    return teller


def _posting(hook: "WebHook", settings: Settings, stack: AsyncExitStack) -> "Send":
    from .usage.hooks import HookFailed

    transport = open_transport(hook.origin, dialler(settings), mode="http1", limits=transport_limits(settings))
    stack.push_async_callback(transport.aclose)

    async def send(event: str, body: bytes) -> None:
        headers = {"content-type": "application/json", "user-agent": f"caretway/{__version__}"}
        answer = await transport.call("POST", hook.path, headers, body)
        if answer.status >= 300:
            raise HookFailed(f"it answered with status {answer.status}")

    return send


def _general_budgets(settings: Settings) -> tuple[UsageBudget, ...]:
    """The budgets in the settings. A budget without a scope applies to all callers together."""
    try:
        return parse_budgets(settings.budgets, BudgetScope.EVERYBODY)
    except ValueError as problem:
        raise ConfigError("budgets", settings.origin("budgets"), f"budgets: {problem}") from None


def _build_budgets(
    settings: Settings, keys: KeyRegistry, tell: Tell = nobody_listens, shared: SpentStore | None = None
) -> Budgets:
    """The budgets of all callers. `shared`: the store of a cluster, in which several gateways count together."""

    def find_key(name: str) -> KeyBudgets:
        key = keys.named(name) if name else None
        if key is None:
            return KeyBudgets(name, name)
        try:
            return KeyBudgets(key.id, key.name, _of_key(key.budgets), counted=True)
        except ValueError as problem:
            raise GatewayError(
                ErrorKind.INTERNAL,
                f"A budget of the key {key.name} cannot be read: {problem}.",
                hint=f"Make the key again: caretway key revoke {key.name}",
            ) from None

    refuse = settings.cluster_budgets == "refuse"
    return Budgets(
        shared if shared is not None else SqliteSpent(settings.data_dir / SPENT_FILE, refuse=refuse),
        _general_budgets(settings),
        clock=time.time,
        find_key=find_key,
        price=PriceList(read_prices(settings.prices or {})).cents,
        tell=tell,
    )


@lru_cache(maxsize=1024)
def _of_key(texts: tuple[str, ...]) -> tuple[UsageBudget, ...]:
    return parse_budgets(texts, BudgetScope.KEY)


# ---- what belongs to one account


class OpenTenant(Struct, frozen=True):
    backend: Backend
    tenant: Tenant
    catalogue: ModelCatalogue


def _preparation(settings: Settings, abilities: Abilities) -> Callable[[TurnRequest], TurnRequest]:
    """Builds the function that applies settings to every request before it is planned."""
    steps = [with_instructions]
    if settings.tool_strict:
        steps.insert(0, demand_tools)
    if settings.max_tokens == "cut":
        steps.append(honour_max_tokens)
    if abilities.searches_web:
        steps.append(honour_web_search)
    if len(steps) == 1:
        return steps[0]
    return lambda request: reduce(lambda so_far, step: step(so_far), steps, request)


def _cuts(settings: Settings) -> tuple[StageFactory, ...]:
    return (token_cut,) if settings.max_tokens == "cut" else ()


def _images(settings: Settings) -> ImageFetcher | None:
    if settings.fetch_images == "off":
        return None
    return ImageFetcher(settings.fetch_images, dialler(settings))


def open_tenant(
    settings: Settings,
    services: SharedServices,
    stack: AsyncExitStack,
    *,
    process_of: Backend | None = None,
    simulator: "Simulator | None" = None,
) -> OpenTenant:
    """Opens an account; `stack` closes it. `settings` name its credentials, `process_of` is another account's
    backend, whose process is used, `simulator` replaces the simulator that the backend would start."""
    cluster, passing = services.cluster, passes(settings)
    share = None if cluster is None or passing else cluster.sign_in
    backend = build_backend(settings, stack, counted=True, process_of=process_of, simulator=simulator, share=share)
    stack.push_async_callback(backend.aclose)
    account = account_source(backend)
    if account is not None and not passing:
        services.budgets.learn_cycle(account)
        if services.hook_watch is not None:
            services.hook_watch.ask(account)
    guard = loop_guard(settings.tool_loop_max_repeat, settings.no_progress)
    if services.mcp is not None:
        from .mcp.backend import BridgedBackend

        backend = BridgedBackend(backend, services.mcp, guard, settings.mcp_offer, settings.mcp_activity)

    def replica() -> str:
        return REPLICA if cluster is None else cluster.hops.id

    run_ended = services.observer.run_ended
    if (billed := billed_source(backend)) is not None:
        from .usage.billed import BilledRuns

        billed_runs = BilledRuns(billed, run_ended, services.budgets.correct)
        stack.push_async_callback(billed_runs.aclose)
        run_ended = billed_runs.run_ended

    scope = f"{backend.name} {hosts(settings).api} {holder(settings).identity}"
    sessions = Sessions(
        backend,
        stages=(
            run_limit,
            think_tags,
            stop_sequences,
            *_cuts(settings),
            output_format,
            thinking(settings.thinking),
        ),
        limits=SessionLimits(
            mode=SessionMode(settings.session),
            parked_timeout=settings.parked_timeout,
            max_parked=settings.max_parked,
            disconnect_grace=settings.disconnect_grace,
            arguments=settings.tool_arguments,
            scope=scope,
        ),
        store=services.store,
        guard=guard,
        run_ended=run_ended,
        charges=services.budgets,
        replica=replica,
    )
    stack.push_async_callback(sessions.aclose)
    catalogue = ModelCatalogue(
        backend,
        extra=settings.models,
        aliases=settings.model_aliases,
        strict=settings.strict_models,
        only=settings.models_only,
        usual=settings.model_parameters,
        clock=time.monotonic,
    )
    account_name = sha256(scope.encode()).hexdigest()
    shelf: ResponseArchive = AccountResponses(services.responses, account_name)
    if cluster is not None:
        shelf = cluster.responses.shelf(shelf, account_name)
    pace = Pace(settings.keep_alive, settings.first_event_patience, total=settings.response_timeout)
    tenant = Tenant(
        dialects=dialects(shelf),
        responder=Responder(
            sessions,
            catalogue,
            services.observer,
            prepare=_preparation(settings, backend.abilities),
            backend=backend.name,
            pace=pace,
            images=_images(settings),
            shape=ShapeLimits(),
            content=services.traced_content,
            find_key=services.keys.named,
            hear=None if passing else services.content.hear,
            elsewhere=None if cluster is None else cluster.hops,
            unwritten=None if cluster is None else cluster.outbox.written,
        ),
        sessions=sessions,
        models=catalogue,
        health=Health(backend, check_timeout=settings.auth_check_timeout / 1000, tools=services.mcp),
        account=AccountWatch(account),
    )
    return OpenTenant(backend, tenant, catalogue)


def tenant_per_key(
    first: OpenTenant, services: SharedServices, access: Access, stack: AsyncExitStack
) -> TenantResolver:
    """Opens an account for each Cursor API key that clients send. Accounts share only the limits."""
    from .api.passthrough import TenantPerKey

    settings = services.settings
    bare = without_credentials(settings)

    @asynccontextmanager
    async def open_for(key: str) -> AsyncIterator[Tenant]:
        async with AsyncExitStack() as own:
            opened = open_tenant(with_settings(bare, api_key=key), services, own, process_of=first.backend)
            await opened.backend.models()  # a key that Cursor rejects gets no account
            yield opened.tenant

    tenants = TenantPerKey(
        first.tenant,
        open_for,
        limit=settings.max_accounts,
        clock=time.monotonic,
        is_ours=lambda key: is_key(access, key, services.keys.current()),
    )
    stack.push_async_callback(tenants.aclose)
    return tenants


# ---- the page


def build_page(services: SharedServices, access: Access, facts: GatewayFacts, first: OpenTenant) -> PageApi:
    """The dashboard. Must not be built in passthrough mode, where it would show one client the work of another."""
    cluster = services.cluster
    return PageApi(
        services.settings,
        facts,
        first.tenant,
        first.catalogue,
        access=DashboardAccess(access, services.keys),
        keys=services.keys,
        budgets=services.budgets,
        ledger=services.ledger,
        notes=services.notes,
        content=services.content,
        forget_stored=services.store.forget,
        mcp=services.mcp,
        cluster=lambda: None if cluster is None else cluster.snapshot(),
    )


# ---- the server


def build_application(
    services: SharedServices, tenants: TenantResolver, backend: str, page: PageApi | None
) -> Application:
    settings, cluster = services.settings, services.cluster
    return Application(
        tenants=tenants,
        metrics=services.metrics,
        observer=services.observer,
        backend=backend,
        shape=ShapeLimits(),
        max_concurrent=settings.max_concurrent,
        more=() if page is None else page_routes(page),
        page=None if page is None else page.files,
        elsewhere=None if cluster is None else cluster.hops,
    )


def build_server(
    services: SharedServices, access: Access, application: Application, page: PageApi | None, stack: AsyncExitStack
) -> Server:
    """The application behind its access rules, on connections with limits."""
    settings, cluster = services.settings, services.cluster
    layer = AccessLayer(
        application,
        access=access,
        keys=services.keys,
        admission=Admission(
            CallerLimits(settings.max_concurrent_per_key, settings.max_requests_per_minute), time.monotonic
        ),
        trace=open_trace(settings, "clients", stack),
        dashboard_access=None if page is None else page.access,
        elsewhere=None if cluster is None else cluster.hops,
        shared=None if cluster is None else cluster.limits,
    )
    limits = ConnectionLimits(connections=connections_that_fit(settings.max_connections))
    bodies = BodyLimits(size=settings.max_body_bytes)
    bodies = replace(bodies, in_all=max(bodies.in_all, bodies.size))
    limits = replace(limits, look_every=look_every(settings, limits, bodies))
    return Server(layer, limits, Bodies(bodies), _tls(settings))


def look_every(settings: Settings, connection: ConnectionLimits, body: BodyLimits) -> float:
    """An interval short enough to enforce the shortest limit."""
    requests = (connection.head_timeout, connection.send_timeout, body.idle, body.total)
    answers = (settings.keep_alive, settings.first_event_patience, settings.response_timeout)
    return min(LONGEST_LOOK_S, min(*requests, *answers) / 8)


def _tls(settings: Settings) -> TlsContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return tls_context(str(settings.tls_cert), str(settings.tls_key))
