"""The composition root: Settings -> backend, sessions, ASGI application, server. The only file that knows everyone."""

import asyncio
import platform
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import uvicorn

from . import __version__
from .auth.tokens import ExchangedKey, FixedToken, NoToken
from .backends.agent_api.auto_transport import AutoTransport, open_transport
from .backends.agent_api.backend import AgentBackend, AgentSetup, Identity, ParameterSource, TokenSource
from .backends.agent_api.compose import Surroundings
from .backends.agent_api.conversation import ConversationLimits
from .backends.agent_api.dial import socket_dial
from .backends.agent_api.limits import TransportLimits
from .backends.agent_api.parameters import PATH, model_parameters
from .backends.agent_api.ports import Transport
from .backends.agent_api.tool_policy import LocalSetup, tool_policy
from .config import Settings, process_environment
from .core.errors import ErrorKind, GatewayError
from .core.request import SessionMode
from .core.turn import Backend
from .dialects.registry import dialects
from .models.catalogue import Catalogue
from .observe.log import LogObserver
from .sessions.manager import SessionLimits, Sessions
from .sessions.store import SqliteStore
from .simulator import Simulator
from .stages.loop_guard import loop_guard
from .stages.output_format import output_format, with_instructions
from .stages.stop_sequences import stop_sequences
from .tasks import spawn
from .web.application import Application
from .web.models import Health
from .web.respond import Pace, Responder
from .wire import paths

FIRST_EVENT_PATIENCE_S: Final = 20.0
REST_URL: Final = "https://api.cursor.com"


def _agent(settings: Settings, stack: AsyncExitStack) -> Backend:
    transport = open_transport(
        settings.agent_url,
        mode=settings.agent_transport,
        ca_file=str(settings.agent_ca) if settings.agent_ca else None,
        connect_timeout_s=settings.connect_timeout,
        limits=_transport_limits(settings),
    )
    return AgentBackend(
        _setup(settings, "agent", "unofficial"),
        transport,
        _tokens(settings, transport),
        time.time,
        _parameters(settings, transport, stack),
    )


def _simulator(settings: Settings, stack: AsyncExitStack) -> Backend:
    simulator = Simulator()
    stack.push_async_callback(simulator.aclose)
    transport = AutoTransport(
        socket_dial(simulator.connect), settings.agent_transport, limits=_transport_limits(settings)
    )
    return AgentBackend(
        _setup(settings, "simulator", "simulated"),
        transport,
        FixedToken("simulated"),
        time.time,
        _list_parameters(transport, "simulated"),
    )


BACKENDS: Final[dict[str, Callable[[Settings, AsyncExitStack], Backend]]] = {
    "agent": _agent,
    "simulator": _simulator,
}


def choose_backend(settings: Settings) -> str:
    """An explicit choice wins; else credentials decide; only without any is there a simulated answer."""
    if settings.backend != "auto":
        return settings.backend
    if settings.api_key or settings.access_token or settings.origin("agent_url") != "default":
        return "agent"
    return "simulator"


def _open(settings: Settings, stack: AsyncExitStack) -> Backend:
    name = choose_backend(settings)
    if name not in BACKENDS:
        raise GatewayError(
            ErrorKind.UNSUPPORTED,
            f"The backend `{name}` is not part of this version.",
            hint=f"Use --backend {' or '.join(BACKENDS)}.",
        )
    return BACKENDS[name](settings, stack)


@asynccontextmanager
async def open_backend(settings: Settings) -> AsyncIterator[Backend]:
    """The backend alone, without a server."""
    async with AsyncExitStack() as stack:
        backend = _open(settings, stack)
        stack.push_async_callback(backend.aclose)
        yield backend


def _transport_limits(settings: Settings) -> TransportLimits:
    return TransportLimits(call_timeout_s=settings.call_timeout, max_frame_bytes=settings.max_frame_bytes)


def _setup(settings: Settings, name: str, standing: Any) -> AgentSetup:
    version = settings.agent_client_version or f"caretway-{__version__}"
    return AgentSetup(
        name=name,
        standing=standing,
        identity=Identity(
            client_type=settings.agent_client_type,
            client_version=version,
            ghost_mode=settings.agent_ghost_mode,
            time_zone=settings.agent_timezone,
            checksum=settings.agent_checksum,
        ),
        limits=ConversationLimits(
            client_heartbeat=settings.client_heartbeat,
            exec_heartbeat=settings.exec_heartbeat,
            silence=settings.silence_timeout,
            progress=settings.progress_timeout,
            tool_progress=settings.tool_progress_timeout,
            sibling_quiet=settings.sibling_quiet,
            retries=settings.agent_retries,
        ),
        surroundings=Surroundings(
            os_version=f"{platform.system().lower()} {platform.release()}",
            time_zone=settings.agent_timezone,
            system_delivery=settings.system_delivery,
            history_carrier=settings.history_carrier,
        ),
        buffer_bytes=settings.stream_buffer_bytes,
        tools=tool_policy(
            LocalSetup(
                settings.local_tools,
                settings.workspace,
                settings.workspaces,
                settings.local_shell_timeout,
                settings.local_output_bytes,
                process_environment(),
            )
        ),
    )


def _parameters(settings: Settings, transport: Transport, stack: AsyncExitStack) -> ParameterSource | None:
    """The REST list lives on a host of its own, except behind a stand-in, and takes the API key only."""
    credential = settings.api_key or settings.access_token
    if settings.origin("agent_url") != "default":
        return _list_parameters(transport, credential) if credential else None
    if not settings.api_key:
        return None
    rest = open_transport(REST_URL, connect_timeout_s=settings.connect_timeout, limits=_transport_limits(settings))
    stack.push_async_callback(rest.aclose)
    return _list_parameters(rest, settings.api_key)


def _list_parameters(transport: Transport, credential: str) -> ParameterSource:
    headers = {"authorization": f"Bearer {credential}"}
    return lambda: model_parameters(lambda: transport.call("GET", PATH, headers))


def _tokens(settings: Settings, transport: Transport) -> TokenSource:
    if settings.access_token:
        return FixedToken(settings.access_token)
    if not settings.api_key:
        return NoToken()

    async def exchange(api_key: str) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {api_key}", "content-type": paths.JSON_TYPE}
        response = await transport.call("POST", paths.EXCHANGE_KEY, headers, b"{}")
        return response.status, response.body

    return ExchangedKey(settings.api_key, exchange, time.time)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the command's business: a library must not touch its host's handlers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class Gateway:
    """The whole gateway: `async with Gateway(settings) as gateway: gateway.base_url`."""

    base_url: str
    backend: Backend
    sessions: Sessions

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else Settings()

    async def __aenter__(self) -> "Gateway":
        settings = self.settings
        stack = AsyncExitStack()
        async with stack:
            listener = _listen(settings.host, settings.port)
            stack.callback(listener.close)
            self.backend = _open(settings, stack)
            stack.push_async_callback(self.backend.aclose)
            store = SqliteStore(
                settings.data_dir / "conversations.sqlite",
                max_bytes=settings.store_max_bytes,
                max_age_s=settings.store_max_age,
                clock=time.time,
            )
            stack.callback(store.close)
            self.sessions = sessions = Sessions(
                self.backend,
                stages=(stop_sequences, output_format),
                limits=SessionLimits(
                    mode=SessionMode(settings.session),
                    parked_timeout=settings.parked_timeout,
                    max_parked=settings.max_parked,
                    disconnect_grace=settings.disconnect_grace,
                    scope=f"{self.backend.name} {settings.agent_url}",
                ),
                store=store,
                guard=loop_guard(settings.tool_loop_max_repeat),
            )
            stack.push_async_callback(sessions.aclose)
            await self._serve(self._application(sessions), listener, stack)
            self._stack = stack.pop_all()
        host, port = listener.getsockname()[:2]
        self.base_url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        return self

    def _application(self, sessions: Sessions) -> Application:
        settings, backend = self.settings, self.backend
        catalogue = Catalogue(
            backend,
            extra=settings.models,
            aliases=settings.model_aliases,
            strict=settings.strict_models,
            clock=time.monotonic,
        )
        pace = Pace(keep_alive=settings.keep_alive, patience=FIRST_EVENT_PATIENCE_S)
        return Application(
            dialects=dialects(),
            responder=Responder(
                sessions, catalogue, LogObserver(), prepare=with_instructions, backend=backend.name, pace=pace
            ),
            sessions=sessions,
            models=catalogue,
            health=Health(backend, check_timeout=settings.auth_check_timeout / 1000),
            backend=backend.name,
            max_body_bytes=settings.max_body_bytes,
            max_concurrent=settings.max_concurrent,
        )

    async def _serve(self, application: Application, listener: socket.socket, stack: AsyncExitStack) -> None:
        config = uvicorn.Config(
            application,
            http="httptools",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(self.settings.shutdown_grace)),
        )
        server = _Server(config)
        serving = spawn(server.serve(sockets=[listener]), "http-server")

        async def stop() -> None:
            server.should_exit = True
            await serving

        stack.push_async_callback(stop)
        await server.ready.wait()

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()


def _listen(host: str, port: int) -> socket.socket:
    """Bound before anything else starts, so that a port in use is found out at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
