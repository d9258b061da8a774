"""What only the sdk backend has: a process of its own to look after, and runs that the SDK heals or gives up by itself.

Everything here runs the real `cursor-sdk` on its real node in front of a simulator on a socket.
"""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from bounds import bounded
from caretway import upstream
from caretway.accounts.account import Account
from caretway.backends.sdk.backend import CursorSdkBackend
from caretway.backends.sdk.bridge import SdkBridge
from caretway.config import Settings, hosts
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event
from caretway.core.fold import Reply, fold
from caretway.core.request import Message, Role, Text, ToolCall, TurnRequest
from caretway.core.turn import Snapshot
from caretway.upstream import choose_backend, open_backend, sign_ins
from caretway.usage import billed
from caretway.usage.charges import CountedBackend
from caretway.usage.spent_store import FILE as SPENT_FILE
from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE, Manners
from caretway_sim.shared import Prefer
from contract.gateways import gateway_to, result, simulated, tool
from contract.subjects import WAYS
from contract.test_backend import TOOLS, answer, ask, response, user
from receiving import receive

LONG: Final = pytest.mark.all  # each starts a process that takes a second of CPU or more
pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never"),
]

CALL: Final = 'sim: call left {"k": "1"}\nsim: result'


@asynccontextmanager
async def sdk(data_dir: Path, **settings: Any) -> AsyncIterator[CursorSdkBackend]:
    async with sdk_and_simulator(data_dir, **settings) as (backend, _):
        yield backend


@asynccontextmanager
async def sdk_and_simulator(
    data_dir: Path, prefer: Prefer = "h1", manners: Manners = LIVE_AT_ONCE, **settings: Any
) -> AsyncIterator[tuple[CursorSdkBackend, Simulator]]:
    async with closing_simulator(Simulator(manners=manners, prefer=prefer)) as (simulator, port):
        known: dict[str, Any] = {"backend": "sdk", "api_key": "key", "data_dir": data_dir}
        known["agent_url"] = f"http://127.0.0.1:{port}"
        with bounded(settings) as mine:
            async with open_backend(Settings(**known | mine)) as backend:
                assert isinstance(backend, CursorSdkBackend)
                yield backend, simulator


@asynccontextmanager
async def closing_simulator(simulator: Simulator) -> AsyncIterator[tuple[Simulator, int]]:
    try:
        yield simulator, await simulator.listen("127.0.0.1", 0)
    finally:
        await simulator.aclose()


async def reply_to(backend: CursorSdkBackend, request: TurnRequest, snapshot: Snapshot | None = None) -> Reply:
    turn = await backend.start(request, snapshot)
    try:
        return fold(await response(turn))
    finally:
        await turn.aclose()


async def said(backend: CursorSdkBackend, text: str) -> str:
    turn = await backend.start(ask(text))
    reply = fold(await response(turn))
    await turn.aclose()
    assert reply.error is None, reply.error
    return reply.text


def bridge_of(backend: CursorSdkBackend) -> SdkBridge:
    bridge = backend.bridges.current
    assert bridge is not None
    return bridge


async def until(happened: Callable[[], bool]) -> None:
    """For what another process does: nothing here is told when it has happened."""
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.02)


def bridges_of(parent: int) -> set[int]:
    """The SDK's processes that this one started."""
    return {pid for pid, by in _bridges().items() if by == parent}


def _bridges() -> dict[int, int]:
    listed = subprocess.run(["ps", "-eww", "-o", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    return {int(line.split()[0]): int(line.split()[1]) for line in listed.splitlines() if "bridge.mjs" in line}


# ---- the process


@LONG
async def test_a_bridge_that_dies_in_mid_turn(tmp_path: Path) -> None:
    async with sdk(tmp_path) as backend:
        turn = await backend.start(ask("sim: say so far\nsim: hang"))
        events: list[Event] = []
        while fold(events).text != "so far":
            events += await receive(turn)
        os.kill(bridge_of(backend).pid, signal.SIGKILL)
        while not events or fold(events).error is None:
            events += await receive(turn)
        error = fold(events).error
        assert error is not None
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert "bridge" in error.message and "again" in error.hint
        await turn.aclose()
        assert await said(backend, "sim: say back again") == "back again"
        assert backend.bridges.started == 2


async def test_a_parked_turn_whose_bridge_dies_is_replayed(tmp_path: Path) -> None:
    async with (
        simulated() as (simulator, port),
        gateway_to(simulator, port, backend="sdk", api_key="key", access_token=None, data_dir=tmp_path) as client,
    ):
        asked: list[dict[str, Any]] = [{"role": "user", "content": CALL}]
        parked = await client.chat(asked, tools=[tool("left", "k")])
        counted = client.gateway.backend
        assert isinstance(counted, CountedBackend) and isinstance(counted.inner, CursorSdkBackend)
        bridge = bridge_of(counted.inner)
        os.kill(bridge.pid, signal.SIGKILL)
        await asyncio.shield(bridge.gone)
        asked += [parked.message, result(parked.calls[0], "forty-two")]
        answered = await client.chat(asked, tools=[tool("left", "k")])
        assert (answered.status, answered.session) == (200, "replayed")


@LONG
def test_nothing_outlives_a_killed_gateway(tmp_path: Path) -> None:
    """SIGKILL, with a run under way: what a gateway cannot clean up itself is cleaned up."""
    with subprocess.Popen(
        [sys.executable, "-m", "caretway", "simulate", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as simulator:
        try:
            url = _address(simulator)
            command = [sys.executable, "-m", "caretway", "serve", "--backend", "sdk", "--port", "0", "--agent-url", url]
            command += ["--data-dir", str(tmp_path)]
            environment = {**os.environ, "CURSOR_API_KEY": "key"}
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as gateway:
                try:
                    prompt = {"role": "user", "content": "sim: say on\nsim: hang"}
                    body = {"model": "sim-auto", "stream": True, "messages": [prompt]}
                    with httpx.stream(
                        "POST", f"{_address(gateway)}/v1/chat/completions", json=body, timeout=30
                    ) as live:
                        next(live.iter_bytes())
                        started = bridges_of(gateway.pid)
                        assert len(started) == 1
                        gateway.kill()
                        gateway.wait()
                finally:
                    gateway.kill()
            until_s = time.monotonic() + 10
            while left := started & _bridges().keys():
                assert time.monotonic() < until_s, left
                time.sleep(0.05)
        finally:
            simulator.kill()


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise AssertionError("the process said no address")


@LONG
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's memory in /proc")
async def test_a_large_bridge_is_replaced_between_turns(tmp_path: Path) -> None:
    async with sdk(tmp_path, sdk_memory_limit=64 * 2**20) as backend:  # less than any bridge has
        parked = await backend.start(ask(CALL, tools=TOOLS))
        (call,) = fold(await response(parked)).calls
        first = bridge_of(backend)
        turn = await backend.start(ask("sim: say one"))
        await response(turn)
        snapshot = turn.snapshot()
        await turn.aclose()
        await until(lambda: backend.bridges.current is not first)  # when the SDK has let go of the turn
        assert first.alive  # it still has the parked one
        going_on = (user("sim: say one"), Message(Role.ASSISTANT, (Text("one"),)), user("sim: recall"))
        turn = await backend.start(ask(*going_on), snapshot)
        assert fold(await response(turn)).text.startswith("1 earlier user turn")
        await turn.aclose()
        await parked.submit([answer(call, "not forgotten")])
        assert fold(await response(parked)).text == "not forgotten"
        await parked.aclose()
        await asyncio.shield(first.gone)
        assert backend.bridges.started >= 2


@LONG
async def test_an_idle_bridge_is_stopped(tmp_path: Path) -> None:
    async with sdk(tmp_path, sdk_idle_timeout=0.05) as backend:
        await said(backend, "sim: say one")
        await until(lambda: backend.bridges.current is None and not bridges_of(os.getpid()))
        assert await said(backend, "sim: say two") == "two"


@LONG
async def test_a_warm_bridge_waits_for_the_first_request(tmp_path: Path) -> None:
    async with sdk(tmp_path, warm=True) as backend:
        await until(lambda: backend.bridges.current is not None)
        assert await said(backend, "sim: say warm") == "warm"
        assert backend.bridges.started == 1


# ---- turns


@LONG
async def test_a_parked_call_takes_no_thread(tmp_path: Path) -> None:
    async with sdk(tmp_path) as backend:
        await said(backend, "sim: say warm")
        before = threading.active_count()
        turns = [await backend.start(ask(CALL, tools=TOOLS)) for _ in range(12)]
        calls = [fold(await response(turn)).calls[0] for turn in turns]
        assert threading.active_count() <= before
        for turn, call in zip(turns, calls, strict=True):
            await turn.submit([answer(call, "ok")])
            assert fold(await response(turn)).text == "ok"
            await turn.aclose()


async def test_a_run_without_progress_is_given_up(tmp_path: Path) -> None:
    async with sdk(tmp_path, progress_timeout=2) as backend:
        turn = await backend.start(ask("sim: hang"))
        error = fold(await response(turn)).error
        assert error is not None
        assert error.kind is ErrorKind.TIMEOUT
        await turn.aclose()
        assert await said(backend, "sim: say on") == "on"


async def test_the_bridge_does_nothing_on_this_machine(tmp_path: Path) -> None:
    """Built-in tools are off by request only; the bridge does what the server asks for, as far as it can."""
    secret, made = tmp_path / "secret.txt", tmp_path / "made"
    secret.write_text("the user's own words")
    asked = {
        "shell": {"command": f"touch {made}"},
        "shell_stream": {"command": f"touch {made}"},
        "background_shell": {"command": f"touch {made}"},
        "write": {"path": str(made), "file_text": "x"},
        "delete": {"path": str(secret)},
        "read": {"path": str(secret)},
        "ls": {"path": str(tmp_path)},
        "grep": {"pattern": "own", "path": str(secret)},
    }
    async with sdk(tmp_path / "data") as backend:
        for (kind, arguments), tools in product(asked.items(), [(), TOOLS]):
            turn = await backend.start(ask(f"sim: exec {kind} {json.dumps(arguments)}\nsim: result", tools=tools))
            reply = fold(await response(turn))
            await turn.aclose()
            assert "own words" not in reply.text and "secret.txt:" not in reply.text, kind
    assert secret.exists() and not made.exists()


# ---- attempts on the wire

BOTH: Final = pytest.mark.parametrize("prefer", ["h2", pytest.param("h1", marks=pytest.mark.all)])


@BOTH
async def test_a_refusal_is_told_at_once_and_as_what_it_is(tmp_path: Path, prefer: Prefer) -> None:
    """By itself the SDK tries for a quarter of a minute before it says a word."""
    async with sdk_and_simulator(tmp_path, prefer) as (backend, simulator):
        await said(backend, "sim: say warm")
        before = simulator.stats.runs_opened
        clock = asyncio.get_running_loop().time
        began = clock()
        refused = (await reply_to(backend, ask("sim: fail unavailable before"))).error
        took = clock() - began
        assert refused is not None
        assert refused.kind is ErrorKind.UPSTREAM_DOWN and "Service unavailable" in refused.message
        assert took < 10, "the SDK alone would take half as long again"
        assert simulator.stats.runs_opened - before == 3  # as on `agent`: tried twice more
        assert await said(backend, "sim: say on") == "on"


@BOTH
@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("sim: say one two\nsim: drop 1\nsim: say three", "one two\nthree"),
        ("sim: drop 1\nsim: say three", "three"),
        ("sim: say one\nsim: drop 2\nsim: say three", "one\nthree"),
    ],
    ids=["after words", "before words", "twice"],
)
async def test_a_connection_that_breaks_is_healed(tmp_path: Path, prefer: Prefer, script: str, text: str) -> None:
    async with sdk_and_simulator(tmp_path, prefer) as (backend, _):
        turn = await backend.start(ask(script))
        reply = fold(await response(turn))
        assert (reply.text, reply.error) == (text, None)
        snapshot = turn.snapshot()
        await turn.aclose()
        talk = (user(script), Message(Role.ASSISTANT, (Text(text),)), user("sim: recall"))
        assert (await reply_to(backend, ask(*talk), snapshot)).text.startswith("1 earlier user turn")


@BOTH
async def test_a_call_whose_connection_breaks_is_made_once(tmp_path: Path, prefer: Prefer) -> None:
    async with sdk_and_simulator(tmp_path, prefer) as (backend, _):
        turn = await backend.start(ask('sim: call left {"k": "1"}\nsim: drop 1\nsim: result', tools=TOOLS))
        paused = fold(await response(turn))
        (call,) = paused.calls
        await turn.submit([answer(call, "once")])
        after = fold(await response(turn))
        assert (after.text, after.calls, after.error) == ("once", (), None)
        await turn.aclose()


@LONG
@BOTH
async def test_nothing_is_said_twice_when_connections_break(tmp_path: Path, prefer: Prefer) -> None:
    """The SDK stores a checkpoint later than it tells what comes after it."""
    script = 'sim: think hm\nsim: say A B C\nsim: call left {"k": "1"}\nsim: say D E F\nsim: drop 1\nsim: say G H'

    async def converse(backend: CursorSdkBackend) -> tuple[str, str]:
        turn = await backend.start(ask(script, tools=TOOLS))
        first = fold(await response(turn))
        await turn.submit([answer(first.calls[0], "x")])
        second = fold(await response(turn))
        await turn.aclose()
        assert (second.calls, second.error) == ((), None)
        return first.text, second.text

    async with sdk_and_simulator(tmp_path, prefer) as (backend, _):
        told = await asyncio.gather(*(converse(backend) for _ in range(8)))
    assert set(told) == {("A B C", "D E F\nG H")}


# ---- what the model is told

SYSTEM: Final = Message(Role.SYSTEM, (Text("Be brief."),))


@pytest.mark.parametrize("allowed", [True, False], ids=["its own prompt", "in the message"])
async def test_the_system_prompt(tmp_path: Path, allowed: bool, caplog: pytest.LogCaptureFixture) -> None:
    """An account that may not have one of its own is asked once; then it is known."""
    caplog.set_level("INFO")
    manners = replace(LIVE_AT_ONCE, custom_prompt=allowed)
    async with sdk_and_simulator(tmp_path, manners=manners) as (backend, simulator):
        asked = ask(SYSTEM, "sim: instructions")
        for _ in range(2):
            told = await reply_to(backend, asked)
            assert told.error is None
            assert ("Be brief." in told.text) is allowed  # else it stands in the user's own message
        assert simulator.stats.runs_opened == (2 if allowed else 3)
    tried = [line for line in caplog.messages if "may not have a system prompt" in line]
    assert len(tried) == (0 if allowed else 1)


async def test_a_history_is_told_as_messages(tmp_path: Path) -> None:
    call = ToolCall("c1", "left", '{"k": "1"}')
    talk = (
        user("sim: say one"),
        Message(Role.ASSISTANT, (Text("one"), call)),
        Message(Role.TOOL, (answer(call, "two"),)),
        Message(Role.ASSISTANT, (Text("two"),)),
        user("sim: recall"),
    )
    async with sdk(tmp_path) as backend:
        assert (await reply_to(backend, ask(*talk, tools=TOOLS))).text.startswith(
            "1 earlier user turn and 1 tool result"
        )


@LONG
async def test_any_earlier_point_is_continued(tmp_path: Path) -> None:
    """Two answers to the first turn, and the second of them again: forks of one conversation."""
    async with sdk(tmp_path) as backend:
        turn = await backend.start(ask("sim: say one"))
        await response(turn)
        first = turn.snapshot()
        await turn.aclose()
        one = (user("sim: say one"), Message(Role.ASSISTANT, (Text("one"),)))
        turns = [await backend.start(ask(*one, user(f"sim: say {n}\nsim: recall")), first) for n in range(3)]
        for n, turn in enumerate(turns):
            assert fold(await response(turn)).text.startswith(f"{n}\n1 earlier user turn")
        second = turns[1].snapshot()
        for turn in turns:
            await turn.aclose()
        two = (*one, user("sim: say 1\nsim: recall"), Message(Role.ASSISTANT, (Text("1"),)))
        assert (await reply_to(backend, ask(*two, user("sim: recall")), second)).text.startswith("2 earlier user turns")


@LONG
async def test_a_chat_costs_what_it_costs_on_the_agent_api(tmp_path: Path) -> None:
    """Ten turns: one run each, no other call but the SDK's analytics, and only what is new is not in the cache."""
    spent = {}
    for backend in ("sdk", "agent"):
        async with simulated() as (simulator, port):
            mine: dict[str, Any] = {"backend": backend, "api_key": "key", "access_token": None}
            async with gateway_to(simulator, port, **mine, data_dir=tmp_path / backend) as client:
                talk: list[dict[str, Any]] = []
                for n in range(10):
                    talk.append({"role": "user", "content": f"sim: say answer {n} of a chat"})
                    told = await client.chat(talk, tools=[tool("left", "k")])
                    talk.append(told.message)
                    if n == 0:
                        first = simulator.stats.as_dict()
                stats = simulator.stats.as_dict()
                spent[backend] = stats["tokens_in_uncached"] - first["tokens_in_uncached"]
                assert stats["runs_opened"] == 10
                assert stats["server_configs"] == first["server_configs"]
                assert stats["token_exchanges"] - first["token_exchanges"] <= 2  # for analytics, once
    assert spent["sdk"] <= 1.05 * spent["agent"]


@LONG
async def test_a_run_is_steered_by_words_beside_the_results(tmp_path: Path) -> None:
    """As on `agent`: the client's user speaks while a tool runs, and the same run hears it."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": CALL}]
    mine: dict[str, Any] = {"backend": "sdk", "api_key": "key", "access_token": None}
    async with simulated() as (simulator, port), gateway_to(simulator, port, **mine, data_dir=tmp_path) as client:
        first = await client.chat(asked, tools=[tool("left", "k")])
        asked += [first.message, result(first.calls[0], "ONE"), {"role": "user", "content": "and be quick"}]
        steered = await client.chat(asked, tools=[tool("left", "k")])
        assert steered.session == "resumed"
        assert "ONE" in steered.text and "and be quick" in steered.text
        assert simulator.stats.runs_opened == 1


@LONG
async def test_two_accounts_share_a_process_and_nothing_in_it(tmp_path: Path) -> None:
    """Passthrough: each client sends its own key."""
    ada, bob = ({"authorization": f"Bearer crsr_{name}_model=sim-{name}"} for name in ("ada", "bob"))
    offered = [tool("look", "key")]
    asked = [{"role": "user", "content": 'sim: call look {"key": "one"}\nsim: result'}]
    mine: dict[str, Any] = {"backend": "sdk", "auth_mode": "passthrough", "access_token": None}
    async with simulated() as (simulator, port), gateway_to(simulator, port, **mine, data_dir=tmp_path) as client:
        firsts = [await client.chat(asked, headers=who, tools=offered) for who in (ada, bob)]
        stolen = [*asked, firsts[0].message, result(firsts[0].calls[0], "for bob")]
        assert (await client.chat(stolen, headers=bob, tools=offered)).session == "replayed"
        for who, first, name in zip((ada, bob), firsts, ("ada", "bob"), strict=True):
            told = await client.chat(
                [*asked, first.message, result(first.calls[0], f"of {name}")], headers=who, tools=offered
            )
            assert (told.session, told.text) == ("resumed", f"of {name}")
        assert (await client.chat(asked, headers={"authorization": "Bearer bad-key"})).status == 401
        backend = client.gateway.backend
        assert isinstance(backend, CountedBackend) and isinstance(backend.inner, CursorSdkBackend)
        assert backend.inner.bridges.started == 1


# ---- what is kept


async def test_nothing_of_a_conversation_is_on_disk(tmp_path: Path) -> None:
    async with sdk(tmp_path) as backend:
        await said(backend, "sim: say a secret word")
        await response(await backend.start(ask(CALL, tools=TOOLS)))
        assert list(os.walk(tmp_path)) == [(str(tmp_path), ["sdk"], []), (str(tmp_path / "sdk"), [], [])]


@LONG
async def test_conversations_survive_a_restart(tmp_path: Path) -> None:
    async with sdk(tmp_path) as backend:
        turn = await backend.start(ask("sim: say one"))
        await response(turn)
        snapshot = turn.snapshot()
        await turn.aclose()
    going_on = (user("sim: say one"), Message(Role.ASSISTANT, (Text("one"),)), user("sim: recall"))
    async with sdk(tmp_path) as backend:
        turn = await backend.start(ask(*going_on), snapshot)
        assert fold(await response(turn)).text.startswith("1 earlier user turn")
        await turn.aclose()


# ---- choosing it


def test_auto_takes_the_official_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_backend(Settings(api_key="key", data_dir=tmp_path)) == "sdk"
    assert choose_backend(Settings(api_key="key", backend="agent", data_dir=tmp_path)) == "agent"
    assert choose_backend(Settings(access_token="token", data_dir=tmp_path)) == "agent"
    kept = Settings(data_dir=tmp_path)
    sign_ins(kept).keep(hosts(kept).api, Account(api_key="kept"))
    assert choose_backend(kept) == "sdk"
    monkeypatch.setattr(upstream, "_sdk_installed", lambda: False)
    assert choose_backend(kept) == choose_backend(Settings(api_key="key", data_dir=tmp_path)) == "agent"


async def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_sdk_installed", lambda: False)
    with pytest.raises(GatewayError) as missing:
        async with open_backend(Settings(backend="sdk", api_key="key", data_dir=tmp_path)):
            pass
    assert "-m pip install 'cursor-sdk" in missing.value.hint


async def test_a_key_that_was_kept_is_used_from_then_on_and_until_it_is_forgotten(tmp_path: Path) -> None:
    async with simulated() as (_, port):
        settings = Settings(backend="sdk", agent_url=f"http://127.0.0.1:{port}", data_dir=tmp_path)
        async with open_backend(settings) as backend:
            assert isinstance(backend, CursorSdkBackend)
            assert (await backend.status()).signed_in is False
            sign_ins(settings).keep(settings.agent_url, Account(api_key="kept"))
            assert (await backend.status()).signed_in
            assert await said(backend, "sim: say hello") == "hello"
            sign_ins(settings).forget(settings.agent_url)
            assert not (await backend.status()).signed_in
            with pytest.raises(GatewayError, match="needs a Cursor API key"):
                await backend.start(ask("sim: say hello"))


async def test_nobody_at_the_address(tmp_path: Path) -> None:
    """As with every other backend: 503, and not a failure of Cursor's own."""
    settings = Settings(backend="sdk", api_key="key", agent_url="http://127.0.0.1:9", data_dir=tmp_path)
    async with open_backend(settings) as backend:
        with pytest.raises(GatewayError) as nobody:
            await backend.models()
        assert nobody.value.kind is ErrorKind.UPSTREAM_DOWN
        status = await backend.status()
        assert (status.signed_in, status.reachable) == (None, False), "the account may well be signed in"


async def test_a_missing_key_is_named(tmp_path: Path) -> None:
    async with sdk(tmp_path, api_key=None) as backend:
        assert "CURSOR_API_KEY" in (await backend.status()).detail
        with pytest.raises(GatewayError) as missing:
            await backend.start(ask("sim: say hello"))
        assert missing.value.kind is ErrorKind.SIGNED_OUT
        assert backend.bridges.started == 0


@LONG
async def test_a_socks_proxy_in_the_environment_does_not_disturb_the_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's own httpx wants another package for it; the bridge ends all the same, and nothing is left behind."""
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:9")
    async with simulated() as (_, port):
        settings = Settings(backend="sdk", api_key="key", agent_url=f"http://127.0.0.1:{port}", data_dir=tmp_path)
        async with open_backend(settings) as backend:
            assert isinstance(backend, CursorSdkBackend)
            assert await said(backend, "sim: say hello") == "hello"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_the_loop_guard_sees_what_the_sdk_has_done_here(tmp_path: Path) -> None:
    """Its built-in tools run in the gateway: the call that repeats is told about, and ends the run after that."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "note.txt").write_text("the same")
    read = 'sim: exec read {"path": "note.txt"}\n'
    async with sdk_and_simulator(tmp_path / "data", workspace=place) as (backend, simulator):
        reply = await reply_to(backend, ask(read * 60 + "sim: say never"))
        assert reply.error is not None
        assert (reply.error.kind, "never" in reply.text) == (ErrorKind.TOOL_LOOP, False)
        assert simulator.stats.as_dict()["execs_asked"] < 60
        moved = await reply_to(backend, ask(read + "sim: say done"))
        assert (moved.error, moved.text) == (None, "done")


@LONG
async def test_the_sdk_searches_the_web_and_does_not_report_it(tmp_path: Path) -> None:
    asked = 'sim: query web_search {"search_term": "x"}\nsim: result'
    async with sdk(tmp_path, web_search="cursor") as backend:
        turn = await backend.start(TurnRequest("composer-2.5", (user(asked),), web_search=True))
        reply = fold(await response(turn))
        assert (reply.text, [type(part) for part in reply.parts]) == ("approved", [Text])


@LONG
async def test_the_ledger_costs_what_cursor_bills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Billing lags behind the runs, so the first question finds nothing."""
    monkeypatch.setattr(billed, "WAITS_S", (0.1, 1.2, 1.2))
    mine: dict[str, Any] = {"backend": "sdk", "api_key": "key", "access_token": None, "data_dir": tmp_path}
    tools = [tool("left", "k")]
    async with (
        simulated(replace(LIVE_AT_ONCE, usage_lag_s=1)) as (simulator, port),
        gateway_to(simulator, port, budgets=("cents=100/day",), **mine) as client,
    ):
        said: list[dict[str, Any]] = [{"role": "user", "content": CALL}]
        first = await client.chat(said, tools=tools, model="composer-2.5")
        said += [first.message, result(first.calls[0], "VALUE")]
        second = await client.chat(said, tools=tools, model="composer-2.5")
        said += [second.message, {"role": "user", "content": "sim: say more and more"}]
        assert (await client.chat(said, tools=tools, model="composer-2.5")).session == "continued"
        costs: list[tuple[str, float | None]] = []

        def corrected() -> bool:
            with suppress(sqlite3.OperationalError), closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger:
                costs[:] = ledger.execute("SELECT upstream, cents FROM runs ORDER BY at").fetchall()
            return len(costs) == 2 and all(cents is not None for _, cents in costs)

        await until(corrected)
        agent = costs[0][0]
        wanted = [row.cents for row in simulator.billed.of_agent(agent, 1 << 60)]
        assert [cents for _, cents in costs] == pytest.approx(wanted, abs=1e-9)

        def counted() -> bool:
            with closing(sqlite3.connect(tmp_path / SPENT_FILE)) as spent:
                (cents,) = spent.execute("SELECT total(cents) FROM spent").fetchone()
            return bool(abs(cents - sum(wanted)) < 1e-6)

        await until(counted)
