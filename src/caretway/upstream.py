"""Builds the gateway's outgoing side from settings: connections to Cursor, credentials, the backend (`auto` selects it
by the credentials), the user's MCP servers.

The gateway and the commands use this module; it imports no server. Backends other than the Agent API are imported only
when chosen, because imports take time.
"""

import importlib.util
import platform
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace as with_settings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from . import __version__
from .accounts.account import Account, issued_at, subject
from .accounts.login import Call
from .accounts.store import SignIns, StoredAccount, StoredKey, open_sign_ins
from .accounts.tokens import AccountStore, FixedToken, NoToken, RenewedToken, exchanged_key, token_of_settings
from .backends.agent.backend import AgentBackend, AgentSetup
from .backends.agent.compose import RunContext
from .backends.agent.models import REST_PATH, BaseSource, rest_models
from .backends.agent.turn_clock import ConversationLimits
from .backends.builtin_tools.policy import LocalSetup, tool_policy
from .config import Settings, home_directory, hosts, process_environment
from .config.data_dir import close_data_dir
from .config.secrets import secrets_in
from .core.account_usage import AccountUsage, UsageEvents
from .core.errors import ErrorKind, GatewayError
from .core.turn import Backend, NativeTools, Standing
from .cursor.transport.dial import Dialler, socket_dial
from .cursor.transport.h2_transport import AutoTransport, open_transport
from .cursor.transport.identity import Identity, TokenSource
from .cursor.transport.ports import Transport, TransportLimits, UnaryResponse
from .cursor.transport.proxies import ProxyRules, child_environment
from .cursor.transport.run_hosts import RunHosts
from .installation import install_command
from .observe.redact import Redactor
from .processes.tasks import spawn
from .server.access import SEND_KEY
from .sessions.loop_guard import GuardSettings
from .usage.charges import CountedBackend

if TYPE_CHECKING:
    from caretway_sim import Simulator

    from .mcp.bridge import McpBridge
    from .mcp.sign_ins import SignInFile
    from .observe.trace import Trace
    from .processes.child import Child, Command
    from .usage.billed import AskBilled

REST_URL: Final = "https://api.cursor.com"
NO_KEY_SENT: Final = ("Here every client brings its own Cursor API key.", SEND_KEY)
ShareSignIn = Callable[[AccountStore, str], AccountStore]
"""(this gateway's sign-in store, the address of the sign-in) -> a store that several gateways share."""
Around = Callable[[Transport], Transport]
"""Wraps a backend's transport, to observe its traffic."""


# ---- connections


def dialler(settings: Settings) -> Dialler:
    """Opens every connection that leaves this machine, except connections of other programs and of MCP servers."""
    rules = ProxyRules(process_environment(), settings.proxy or "", settings.proxy_loopback)
    return Dialler(rules, str(settings.agent_ca) if settings.agent_ca else None, settings.connect_timeout)


def open_api(settings: Settings) -> AutoTransport:
    """The transport for sign-in, model lists and account."""
    return _open(settings, hosts(settings).api)


def open_runs(settings: Settings) -> RunHosts:
    """Like `open_api`, but runs go to the host that serves the account's runs."""
    known = hosts(settings)
    fixed = known.run if known.run_fixed else ""
    return RunHosts(open_api(settings), known.api, lambda url: _open(settings, url), time.monotonic, fixed)


def _open(settings: Settings, url: str) -> AutoTransport:
    return open_transport(url, dialler(settings), mode=settings.agent_transport, limits=transport_limits(settings))


def transport_limits(settings: Settings) -> TransportLimits:
    return TransportLimits(call_timeout_s=settings.call_timeout, gather_s=settings.agent_quirks.gather)


def open_trace(settings: Settings, side: str, stack: AsyncExitStack) -> "Trace | None":
    """Records one side's traffic if the settings ask for it; `stack` closes the recording."""
    if settings.trace is None:
        return None
    from .observe.trace import Trace

    trace = Trace(
        settings.trace,
        side,
        hidden=secrets_in(settings),
        content=settings.trace_content,
    )
    stack.callback(trace.close)
    return trace


# ---- credentials


def passes(settings: Settings) -> bool:
    return settings.auth_mode == "passthrough"


def without_credentials(settings: Settings) -> Settings:
    """The settings without the owner's credentials, for accounts whose keys clients send."""
    local_tools = "off" if settings.origin("local_tools") == "default" else settings.local_tools
    return with_settings(settings, api_key=None, access_token=None, local_tools=local_tools)


def holder(settings: Settings) -> Account:
    """The account that the settings select, as far as it is known without a request to Cursor."""
    if settings.access_token:
        return Account(settings.access_token, received_at=issued_at(settings.access_token))
    if settings.api_key or passes(settings):
        return Account(api_key=settings.api_key or "")
    return sign_ins(settings).find(hosts(settings).api) or Account()


def sign_ins(settings: Settings) -> SignIns:
    close_data_dir(settings.data_dir, settings.origin("data_dir"))
    return open_sign_ins(settings.data_dir, settings.token_store)


def token_source(settings: Settings, transport: Transport, share: ShareSignIn | None = None) -> TokenSource:
    """Credentials in the settings win over the stored sign-in. The sign-in is read for each token, so `caretway login`
    takes effect in a running gateway."""
    if settings.access_token:
        return token_of_settings(settings.access_token, settings.origin("access_token"))
    if passes(settings):
        if not settings.api_key:
            return NoToken(*NO_KEY_SENT)
        return exchanged_key(settings.api_key, unary_call(transport), time.time, hint=SEND_KEY)
    if settings.api_key:
        return exchanged_key(settings.api_key, unary_call(transport), time.time)
    url = hosts(settings).api
    shelf: AccountStore = StoredAccount(sign_ins(settings), url)
    return RenewedToken(shelf if share is None else share(shelf, url), unary_call(transport), time.time)


def unary_call(transport: Transport) -> Call:
    async def call(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        response = await transport.call(method, path, headers, body)
        return response.status, response.body

    return call


@asynccontextmanager
async def open_call(settings: Settings) -> AsyncIterator[Call]:
    """HTTP calls for the sign-in, without a backend."""
    transport = open_api(settings)
    try:
        yield unary_call(transport)
    finally:
        await transport.aclose()


# ---- the backend

BACKENDS: Final[Mapping[str, Standing]] = {
    "sdk": "official",
    "cli": "official",
    "agent": "unofficial",
    "legacy-chat": "unofficial",
    "simulator": "simulated",
}
"""The standing of each backend at Cursor's own address."""
AT_AN_ADDRESS: Final = ("sdk", "agent", "legacy-chat")
"""Backends that the settings can send to another address."""
PASSTHROUGH: Final = ("agent", "sdk")
"""Backends that can use a client's API key; the first one is the default."""


def choose_backend(settings: Settings) -> str:
    """An explicit choice wins; otherwise the credentials decide. Without credentials the simulator is chosen."""
    if passes(settings):
        return _passthrough_backend(settings)
    if settings.backend != "auto":
        return settings.backend
    if settings.api_key and not settings.access_token and _sdk_installed():
        return "sdk"
    if settings.api_key or settings.access_token or hosts(settings).stand_in:
        return "agent"
    if (stored := sign_ins(settings).find(hosts(settings).api)) is not None:
        return "sdk" if stored.api_key and _sdk_installed() else "agent"
    from .backends.cli.program import find_program

    if settings.agent_bin or find_program("", process_environment()) is not None:
        return "cli"
    return "simulator"


def _passthrough_backend(settings: Settings) -> str:
    if settings.backend not in ("auto", *PASSTHROUGH):
        raise GatewayError(
            ErrorKind.UNSUPPORTED,
            f"The backend `{settings.backend}` cannot use the keys of clients.",
            hint=f"Use --backend {' or '.join(PASSTHROUGH)}, or --auth-mode own.",
        )
    return PASSTHROUGH[0] if settings.backend == "auto" else settings.backend


def standing_of(settings: Settings, name: str) -> Standing:
    known = hosts(settings)
    elsewhere = known.answers_elsewhere if name == "agent" else known.stand_in  # only `agent` has a host for runs
    return "stand-in" if name in AT_AN_ADDRESS and elsewhere else BACKENDS[name]


def stand_ins(settings: Settings) -> tuple[str, ...]:
    """Backends whose answers do not come from Cursor's own address."""
    return tuple([name for name in AT_AN_ADDRESS if standing_of(settings, name) == "stand-in"])


def build_backend(
    settings: Settings,
    stack: AsyncExitStack,
    around: Around | None = None,
    *,
    counted: bool = False,
    process_of: Backend | None = None,
    simulator: "Simulator | None" = None,
    share: ShareSignIn | None = None,
) -> Backend:
    """Builds the backend that `choose_backend` names. `around` applies to the backend `agent` only; other backends do
    not use our transport. `counted`: runs may have a budget. `process_of`: another account's backend, whose process is
    used. `simulator` replaces the simulator that the backend would start. `share`: the store in which other gateways
    find a renewed sign-in."""
    backend: Backend
    match choose_backend(settings):
        case "agent":
            backend = _agent(settings, stack, around, share)
        case "legacy-chat":
            backend = _legacy_chat(settings, stack, share)
        case "sdk":
            backend = _sdk(settings, process_of and _inner(process_of))
        case "cli":
            backend = _cli(settings)
        case "simulator":
            backend = _simulator(settings, stack, simulator)
        case unknown:
            raise GatewayError(
                ErrorKind.UNSUPPORTED,
                f"There is no backend `{unknown}`.",
                hint=f"Use one of: {', '.join(BACKENDS)}.",
            )
    native = backend if isinstance(backend, NativeTools) and backend.abilities.client_tools == "either" else None
    if counted:
        backend = CountedBackend(backend)
    if backend.abilities.client_tools in ("text", "either"):
        from .backends.text_protocol.backend import TextToolBackend

        return TextToolBackend(backend, native=native, style=settings.prompt_style, base_models=settings.models)
    return backend


@asynccontextmanager
async def open_backend(settings: Settings, around: Around | None = None) -> AsyncIterator[Backend]:
    """The backend without a server."""
    async with AsyncExitStack() as stack:
        backend = build_backend(settings, stack, around)
        stack.push_async_callback(backend.aclose)
        yield backend


def account_source(backend: Backend) -> Callable[[], Awaitable[AccountUsage]] | None:
    """The call that reports the account's usage, None if the backend has none. Looks inside the backend's wrapper."""
    counted = _inner(backend)
    return counted.usage.account if isinstance(counted, AgentBackend) else None


def events_source(backend: Backend) -> Callable[..., Awaitable[UsageEvents]] | None:
    """The call that lists the cost of single runs (`UsageApi.events`), None if the backend has none."""
    counted = _inner(backend)
    return counted.usage.events if isinstance(counted, AgentBackend) else None


def billed_source(backend: Backend) -> "AskBilled | None":
    """The call that reports what was billed for an agent, None if the backend has none."""
    return getattr(_inner(backend), "billed", None)


def _inner(backend: Backend) -> Backend:
    return backend.inner if isinstance(backend, CountedBackend) else backend


def _agent(settings: Settings, stack: AsyncExitStack, around: Around | None, share: ShareSignIn | None) -> Backend:
    runs = open_runs(settings)
    transport = _traced(runs, settings, stack)
    if around is not None:
        transport = around(transport)
    tokens = token_source(settings, transport, share)
    return AgentBackend(
        _setup(settings, "agent"),
        transport,
        tokens,
        time.time,
        _public_list(settings, transport, tokens, stack),
        runs,
    )


def _public_list(
    settings: Settings, transport: Transport, tokens: TokenSource, stack: AsyncExitStack
) -> BaseSource | None:
    """The REST list has its own host (except on a simulator) and accepts only an API key."""
    if hosts(settings).stand_in:
        return _rest_list(transport, tokens)
    key = holder(settings).api_key
    if not key:
        return None
    rest = open_transport(REST_URL, dialler(settings), limits=transport_limits(settings))
    stack.push_async_callback(rest.aclose)
    return _rest_list(rest, FixedToken(key))


def _rest_list(transport: Transport, tokens: TokenSource) -> BaseSource:
    async def get() -> UnaryResponse:
        return await transport.call("GET", REST_PATH, {"authorization": f"Bearer {await tokens.token()}"})

    return lambda: rest_models(get)


def guard_settings(settings: Settings) -> GuardSettings:
    return GuardSettings(settings.tool_loop_max_repeat, settings.no_progress)


def client_version(settings: Settings) -> str:
    return settings.agent_client_version or f"caretway-{__version__}"


def _setup(settings: Settings, name: str) -> AgentSetup:
    quirks = settings.agent_quirks
    return AgentSetup(
        name=name,
        standing=standing_of(settings, name),
        identity=Identity(
            client_type=quirks.client_type,
            client_version=client_version(settings),
            ghost_mode=settings.agent_ghost_mode,
            time_zone=quirks.time_zone,
            checksum=quirks.checksum,
        ),
        limits=ConversationLimits(
            silence=settings.silence_timeout,
            progress=settings.progress_timeout,
            sibling_quiet=quirks.sibling_quiet,
            sibling_cap=quirks.sibling_cap,
            retries=settings.agent_retries,
        ),
        surroundings=RunContext(
            os_version=platform.system().lower(),
            time_zone=quirks.time_zone,
            system_delivery=quirks.system,
            history_carrier=quirks.history,
            replay_action=quirks.replay,
            replay_tool_names=quirks.names,
            web=settings.web_search,
        ),
        buffer_bytes=settings.stream_buffer_bytes,
        model_shape=quirks.model,
        check_limits=quirks.limits,
        account=subject,
        tools=tool_policy(
            LocalSetup(
                settings.local_tools,
                settings.workspace,
                settings.workspaces,
                process_environment(),
                guard=guard_settings(settings),
                web=settings.web_search == "cursor",
            )
        ),
    )


def _traced(transport: Transport, settings: Settings, stack: AsyncExitStack) -> Transport:
    trace = open_trace(settings, "cursor", stack)
    if trace is None:
        return transport
    from .cursor.transport.tracing import TracingTransport

    return TracingTransport(transport, trace)


def new_simulator() -> "Simulator":
    from caretway_sim import Simulator
    from caretway_sim.manners import LIVE_AT_ONCE

    return Simulator(manners=LIVE_AT_ONCE)


def _simulator(settings: Settings, stack: AsyncExitStack, simulator: "Simulator | None") -> Backend:
    simulator = simulator or new_simulator()
    stack.push_async_callback(simulator.aclose)
    carrier = AutoTransport(socket_dial(simulator.connect), settings.agent_transport, limits=transport_limits(settings))
    transport = _traced(carrier, settings, stack)
    tokens = FixedToken("simulated")
    return AgentBackend(
        _setup(settings, "simulator"),
        transport,
        tokens,
        time.time,
        _rest_list(transport, tokens),
    )


def _sdk(settings: Settings, process_of: Backend | None) -> Backend:
    if (missing := sdk_missing()) is not None:
        raise missing
    from .backends.sdk.backend import CursorSdkBackend, SdkSetup, find_sdk
    from .backends.sdk.bridge import BridgeSetup, egress, node_command

    places = hosts(settings)
    agent = _setup(settings, CursorSdkBackend.name)
    root = settings.data_dir.resolve() / "sdk"

    def command() -> "Command":
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return node_command(
            find_sdk(),
            root,
            egress([places.api], stand_in=places.stand_in),
            backend_url=places.api if places.stand_in else None,
            ca_file=str(settings.agent_ca) if settings.agent_ca else None,
        )

    backend = CursorSdkBackend(
        SdkSetup(
            api_key=_sdk_key(settings),
            bridge=BridgeSetup(
                command=command,
                call_timeout=settings.call_timeout,
                stops_idle=not settings.warm,
                frame_bytes=transport_limits(settings).max_frame_bytes // 3 * 4 + 65536,
            ),
            agent=replace(
                agent, surroundings=replace(agent.surroundings, system_delivery="rule", history_carrier="root")
            ),
            custom_system=settings.agent_quirks.sdk_system == "custom",
        ),
        process_of if isinstance(process_of, CursorSdkBackend) else None,
    )
    if settings.warm and process_of is None:
        spawn(backend.warm(), "warm-sdk-bridge")
    return backend


def _sdk_key(settings: Settings) -> Callable[[], Awaitable[str]]:
    if settings.api_key:
        return FixedToken(settings.api_key).token
    if passes(settings):
        return NoToken(*NO_KEY_SENT).token
    return StoredKey(sign_ins(settings), hosts(settings).api)


def _sdk_installed() -> bool:
    return importlib.util.find_spec("cursor_sdk") is not None


def sdk_missing() -> GatewayError | None:
    if _sdk_installed():
        return None
    return GatewayError(
        ErrorKind.UNSUPPORTED,
        "The sdk backend needs Cursor's own package, which is not installed.",
        hint=f"Run `{install_command('sdk')}`, or use --backend agent.",
    )


def _cli(settings: Settings) -> Backend:
    from .backends.cli.backend import CliSetup, CursorCliBackend
    from .backends.cli.program import CliLimits, named_program

    return CursorCliBackend(
        CliSetup(
            program=named_program(settings.agent_bin),
            environment=child_environment(process_environment(), settings.proxy or ""),
            data_dir=settings.data_dir.absolute(),
            version=__version__,
            transport=settings.cli_transport,
            tools=settings.agent_quirks.cli_tools,
            mode="agent" if settings.cli_mode == "force" else settings.cli_mode,
            force=settings.cli_mode == "force",
            showing=settings.cli_tool_events,
            workspace=settings.workspace,
            workspaces=settings.workspaces,
            api_key=settings.api_key,
            limits=CliLimits(
                processes=settings.cli_max_processes,
                queue=settings.cli_queue,
                buffer_bytes=settings.stream_buffer_bytes,
                progress=settings.progress_timeout,
                call=settings.call_timeout,
                auth_check=settings.auth_check_timeout / 1000,
            ),
            guard=guard_settings(settings),
            clean=Redactor(secrets_in(settings)).text,
        )
    )


def _legacy_chat(settings: Settings, stack: AsyncExitStack, share: ShareSignIn | None) -> Backend:
    from .backends.legacy_chat import ChatLimits, LegacyChatBackend

    transport = _traced(open_api(settings), settings, stack)
    tokens = token_source(settings, transport, share)
    setup = _setup(settings, LegacyChatBackend.name)
    return LegacyChatBackend(
        AgentBackend(setup, transport, tokens, time.time),
        transport,
        tokens,
        setup.identity,
        ChatLimits(progress=settings.progress_timeout, buffer_bytes=settings.stream_buffer_bytes),
        time.time,
    )


# ---- MCP servers


def offers_mcp(settings: Settings) -> bool:
    return settings.mcp_offer != "never" and settings.auth_mode != "passthrough"


def mcp_bridge(settings: Settings, only: str = "", *, remote: bool = False) -> "McpBridge | None":
    """The MCP servers in the settings, not yet started; None if there are none. `only` selects one by name; `remote`
    leaves out servers that are programs of this machine."""
    if not (settings.mcp or settings.mcp_config or settings.mcp_import):
        return None
    from .mcp.definitions import BridgeLimits, Remote
    from .mcp.sources import SourceContext
    from .mcp.sources import find as find_mcp_servers

    found = find_mcp_servers(
        settings.mcp or {},
        settings.mcp_config,
        settings.mcp_import,
        SourceContext(process_environment(), home_directory(), settings.workspace or Path.cwd()),
    )
    if only:
        found = replace(found, definitions=tuple(one for one in found.definitions if one.name == only))
    if remote:
        found = replace(found, definitions=tuple(one for one in found.definitions if isinstance(one.reached, Remote)))
    if not found.definitions and not found.misfits:
        return None
    from .mcp.bridge import McpBridge
    from .mcp.connection import connector

    limits = BridgeLimits(
        connect_timeout=settings.mcp_connect_timeout,
        call_timeout=settings.mcp_call_timeout,
        start_wait=settings.mcp_start_wait,
    )
    children: set[Child] = set()
    connect = connector(process_environment(), limits, children, lambda url: mcp_sign_in(settings, url))
    return McpBridge(found, limits, connect, children)


def mcp_sign_in(settings: Settings, url: str) -> "SignInFile":
    """The store of the sign-in to the MCP server at this address."""
    from .mcp.sign_ins import open_sign_in

    close_data_dir(settings.data_dir, settings.origin("data_dir"))
    return open_sign_in(settings.data_dir, settings.token_store, url)


@asynccontextmanager
async def open_mcp_bridge(
    settings: Settings, only: str = "", *, remote: bool = False
) -> AsyncIterator["McpBridge | None"]:
    """Connects only the MCP servers, in the background, and stops them at the end."""
    bridge = mcp_bridge(settings, only, remote=remote)
    if bridge is None:
        yield None
        return
    bridge.start()
    try:
        yield bridge
    finally:
        await bridge.aclose()
