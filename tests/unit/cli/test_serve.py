"""`serve`: the banner, the exit codes, and what is said when the address cannot be had. The gateway is a stand-in."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Any, Self

import pytest

from caretway.cli.process import INTERRUPTED, CommandFailed, Haste, exit_code, listening_failed, stop_signal
from caretway.cli.serve import SignInState, client_key, instructions, opening, serve, stopping
from caretway.cli.terminal import Style
from caretway.config import Settings
from caretway.config.loading import load
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import TurnRequest
from caretway.core.turn import Abilities, BackendStatus, ModelInfo, Snapshot, Standing, Turn
from caretway.processes.tasks import spawn
from caretway.server.access import reachable_from_outside

PLAIN = Style()
URL = "http://127.0.0.1:32124"


class StandInBackend:
    name = "simulator"
    standing: Standing = "simulated"
    abilities = Abilities()

    def __init__(self, trouble: GatewayError | None = None) -> None:
        self.trouble = trouble

    async def models(self) -> Sequence[ModelInfo]:
        if self.trouble is not None:
            raise self.trouble
        return [ModelInfo("sim-auto"), ModelInfo("sim-fast")]

    async def status(self) -> BackendStatus:
        return BackendStatus(True, "nobody, simulated")

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Turns:
    live: int = 0
    parked: int = 0


class StandInGateway:
    """Serves until the banner is complete, then stops as if by this signal."""

    base_url = URL

    def __init__(
        self,
        backend: StandInBackend,
        stopped_by: signal.Signals,
        output: pytest.CaptureFixture[str],
        turns: Turns = Turns(),  # noqa: B008 - a value
    ) -> None:
        self.backend = backend
        self.tenants = turns
        self._stopped_by = stopped_by
        self._output = output
        self.printed = ""
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.closed = True

    async def stopped(self, haste: Haste) -> signal.Signals:
        async with asyncio.timeout(10):
            while "caretway ask" not in self.printed:
                self.printed += self._output.readouterr().out
                await asyncio.sleep(0)
        return self._stopped_by


@pytest.mark.parametrize(("stopped_by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
async def test_serves_prints_and_stops(
    stopped_by: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway: Any = StandInGateway(StandInBackend(), stopped_by, capsys)
    assert await serve(Settings(), lambda _settings: gateway, PLAIN, gateway.stopped) == code
    assert gateway.closed
    lines = gateway.printed.splitlines()
    assert lines[1] == f"  address    {URL}"
    assert not any("signed in" in line for line in lines), "nobody is, to a simulator"
    assert "  models     sim-auto, sim-fast" in lines


async def test_trouble_with_cursor_does_not_stop_the_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = GatewayError(ErrorKind.SIGNED_OUT, "the login has expired", hint="(run `caretway login`)")
    gateway: Any = StandInGateway(StandInBackend(trouble), signal.SIGTERM, capsys)
    assert await serve(Settings(), lambda _settings: gateway, PLAIN, gateway.stopped) == 0
    assert "  models     the login has expired (run `caretway login`)" in gateway.printed.splitlines()


def test_simulated_cannot_be_missed() -> None:
    plain = opening(Settings(), URL, "simulator", "simulated", PLAIN)
    assert plain[2] == "  backend    simulator (simulated answers, not Cursor)"
    assert any(line.startswith("* SIMULATED ANSWERS") for line in plain)
    assert any("caretway login " in line for line in plain)
    assert max(map(len, plain)) <= 80
    assert max(map(len, opening(Settings(), URL, "simulator", "simulated", PLAIN, 60))) <= 60
    assert any("No Cursor credentials" in line for line in plain)
    asked = opening(Settings(backend="simulator"), URL, "simulator", "simulated", Style(colour=True))
    assert any("\x1b[1;7;33m SIMULATED" in line for line in asked)
    assert any("was asked for" in line for line in asked)
    assert not any("SIMULATED" in line for line in opening(Settings(), URL, "sdk", "official", PLAIN))


def test_plain_banner_has_no_escape_codes() -> None:
    lines = opening(Settings(), URL, "agent", "unofficial", PLAIN)
    assert lines[1:] == [f"  address    {URL}", "  backend    agent (unofficial, private protocol)"]
    assert "\x1b" not in "".join(lines)


def test_instructions_say_how_to_point_a_client_here() -> None:
    lines = instructions(URL, SignInState(False, "the key was refused", ("m-1", "m-2")), PLAIN, 80)
    assert lines[:9] == [
        "  signed in  no: the key was refused",
        "  models     m-1, m-2",
        f"  OpenAI     OPENAI_BASE_URL={URL}/v1",
        "             OPENAI_API_KEY=any-text",
        f"  Anthropic  ANTHROPIC_BASE_URL={URL}",
        "             ANTHROPIC_AUTH_TOKEN=any-text",
        "  or         caretway launch       (starts your client)",
        '  try        caretway ask "Hello!"',
        "  dashboard  caretway open         (in a browser)",
    ]
    brought = instructions(URL, SignInState(brought=True), PLAIN, 80)
    assert not any("dashboard" in line for line in brought), "clients with accounts of their own have none"
    twice = instructions(URL, SignInState(False, "sign in first", trouble="sign in first"), PLAIN, 80)
    assert [line for line in twice if "sign in first" in line] == ["  signed in  no: sign in first"]
    report = SignInState(False, "word " * 40, ("a-rather-long-model-id",) * 9)
    assert max(len(line) for line in instructions(URL, report, PLAIN, 60)[:-2]) <= 60


@pytest.mark.parametrize(
    ("host", "outside"),
    [
        ("127.0.0.1", False),
        ("127.8.8.8", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("192.168.1.2", True),
        ("box.example.org", True),
    ],
)
def test_an_open_address_is_remarked_upon(host: str, outside: bool) -> None:
    assert reachable_from_outside(host) is outside
    warned = [line for line in opening(Settings(host=host), URL, "sdk", "official", PLAIN) if "warning" in line]
    assert bool(warned) is outside


FAILURES = [
    (
        OSError(errno.EADDRINUSE, "Address already in use"),
        "port 32124 on 127.0.0.1 is already in use; try: caretway serve --port 32125",
    ),
    (
        OSError(errno.EACCES, "Permission denied"),
        "no permission to listen on 127.0.0.1 port 32124; try: caretway serve --port 0",
    ),
    (
        OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
        "127.0.0.1 is not an address of this machine; try: caretway serve --host 127.0.0.1",
    ),
    (
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        "127.0.0.1 is not an address of this machine; try: caretway serve --host 127.0.0.1",
    ),
    (PermissionError(errno.EACCES, "Permission denied", "/data"), "cannot use /data: Permission denied"),
    (OSError("odd"), "cannot listen on 127.0.0.1 port 32124: odd"),
]


@pytest.mark.parametrize(("failure", "message"), FAILURES)
def test_why_the_address_could_not_be_had(failure: OSError, message: str) -> None:
    said = listening_failed(failure, "127.0.0.1", 32124, "caretway serve")
    assert isinstance(said, CommandFailed)
    assert (str(said), said.exit_code) == (message, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stop_signal_says_which(number: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    before = {known: signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)}
    try:
        waiting = spawn(stop_signal(), "stop signal")
        await asyncio.sleep(0)  # its first step sets the handlers
        os.kill(os.getpid(), number)
        assert await asyncio.wait_for(waiting, 10) is number
    finally:
        for known, handler in before.items():
            loop.remove_signal_handler(known)
            signal.signal(known, handler)


STOPPING = [
    (signal.SIGINT, Turns(2, 1), "1 answer has up to 5 s to end; press Ctrl-C again to stop now"),
    (signal.SIGTERM, Turns(3, 1), "2 answers have up to 5 s to end; send the signal again to stop now"),
    (signal.SIGINT, Turns(1, 1), ""),
    (signal.SIGINT, Turns(), ""),
]


@pytest.mark.parametrize(("stopped_by", "turns", "report"), STOPPING)
async def test_stopping_says_what_it_waits_for(
    stopped_by: signal.Signals, turns: Turns, report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A parked turn waits for a client; nobody waits for it."""
    gateway: Any = StandInGateway(StandInBackend(), stopped_by, capsys, turns)
    await serve(Settings(), lambda _settings: gateway, PLAIN, gateway.stopped)
    assert capsys.readouterr().err == (f"caretway: stopping: {report}\n" if report else "")


def test_stopping_that_takes_long_for_another_reason() -> None:
    assert stopping(signal.SIGINT) == "stopping; press Ctrl-C again to stop now"


async def test_a_signal_that_comes_again_is_handed_on() -> None:
    loop = asyncio.get_running_loop()
    before = {known: signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)}
    again: asyncio.Future[signal.Signals] = loop.create_future()
    try:
        waiting = spawn(stop_signal(again.set_result), "stop signal")
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        assert await asyncio.wait_for(waiting, 10) is signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(again, 10) is signal.SIGTERM
    finally:
        for known, handler in before.items():
            loop.remove_signal_handler(known)
            signal.signal(known, handler)


async def test_haste_cuts_the_closing_short_and_then_the_process() -> None:
    ended: list[signal.Signals] = []

    async def closing() -> str:
        haste = Haste(ended.append, limit_s=60)
        haste(signal.SIGINT)  # before there is anything to cut short: both signals came at once
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        assert (haste.asked_by, ended) == (signal.SIGINT, [])
        haste(signal.SIGTERM)
        return "closed"

    assert await asyncio.wait_for(spawn(closing(), "closing"), 10) == "closed"
    assert ended == [signal.SIGTERM], "whoever signals three times is not asked to wait"


async def test_haste_does_not_wait_for_a_closing_that_hangs() -> None:
    gave_up = Event()

    async def closing() -> None:
        Haste(lambda number: gave_up.set(), limit_s=0.01)(signal.SIGINT)
        gave_up.wait(10)  # the loop itself is stuck

    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(spawn(closing(), "closing"), 10)
    assert gave_up.is_set()


def test_exit_codes() -> None:
    assert INTERRUPTED == 130
    assert [exit_code(signal.SIGINT), exit_code(signal.SIGTERM), exit_code(None)] == [130, 0, 0]


async def test_in_passthrough_mode_nobody_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """The backend without a key would say that not signed in; it is not asked."""
    trouble = GatewayError(ErrorKind.SIGNED_OUT, "Not signed in to Cursor.")
    gateway: Any = StandInGateway(StandInBackend(trouble), signal.SIGTERM, capsys)
    await serve(Settings(auth_mode="passthrough"), lambda _settings: gateway, PLAIN, gateway.stopped)
    lines = gateway.printed.splitlines()
    assert "  account    every client brings its own Cursor API key; no sign-in here" in lines
    assert f"  models     those of each account: GET {URL}/v1/models with" in lines
    assert "igned in  " not in gateway.printed and "Not signed in" not in gateway.printed
    outside = Settings(auth_mode="passthrough", host="192.168.1.2")
    assert not any("your Cursor account" in line for line in opening(outside, URL, "agent", "unofficial", PLAIN))


def test_the_banner_names_the_key_that_a_client_needs() -> None:
    for settings, word in [
        (Settings(), "any-text"),
        (Settings(gateway_key="k" * 32), "the-gateway-key"),
        (Settings(auth_mode="passthrough"), "your-cursor-api-key"),
    ]:
        lines = "\n".join(instructions(URL, SignInState(True), PLAIN, 80, client_key(settings)))
        assert f"OPENAI_API_KEY={word}" in lines
        assert "k" * 32 not in lines


def test_a_port_from_the_general_variable_is_named() -> None:
    settings = load({}, {"PORT": "8080", "HOME": "/nowhere"})
    assert any("from the variable PORT" in line for line in opening(settings, URL, "agent", "unofficial", PLAIN))
    assert not any("PORT" in line for line in opening(Settings(port=8080), URL, "agent", "unofficial", PLAIN))
