"""What only the sdk backend has: a process of its own to look after, and agents that it keeps on disk.

Everything here runs the real `cursor-sdk` and its real bridge in front of a simulator on a socket.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from caretway import backend_factory
from caretway.auth.account import Account
from caretway.backend_factory import choose_backend, open_backend, sign_ins
from caretway.backends.cursor_sdk.backend import CursorSdkBackend
from caretway.backends.cursor_sdk.bridge import SdkBridge
from caretway.config import Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event
from caretway.core.fold import fold
from caretway.core.request import Message, Role, Text
from contract.gateways import gateway_to, result, simulated, tool
from contract.subjects import WAYS
from contract.test_backend import TOOLS, answer, ask, response, user
from receiving import receive

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never"),
]

CALL: Final = 'sim: call left {"k": "1"}\nsim: result'


@asynccontextmanager
async def sdk(data_dir: Path, **settings: Any) -> AsyncIterator[CursorSdkBackend]:
    async with simulated() as (_, port):
        known: dict[str, Any] = {"backend": "sdk", "api_key": "key", "data_dir": data_dir}
        known["agent_url"] = f"http://127.0.0.1:{port}"
        async with open_backend(Settings(**known | settings)) as backend:
            assert isinstance(backend, CursorSdkBackend)
            yield backend


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
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.02)


def processes(data_dir: Path) -> list[str]:
    """Everything that was started for this data directory."""
    listed = subprocess.run(["ps", "-eww", "-o", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(data_dir / "sdk") in line]


# ---- the process


async def test_a_bridge_that_dies_in_mid_turn(tmp_path: Path) -> None:
    async with sdk(tmp_path) as backend:
        turn = await backend.start(ask("sim: say so far\nsim: hang"))
        await receive(turn)
        os.kill(bridge_of(backend).pid, signal.SIGKILL)
        events: list[Event] = []
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
        assert isinstance(client.gateway.backend, CursorSdkBackend)
        bridge = bridge_of(client.gateway.backend)
        os.kill(bridge.pid, signal.SIGKILL)
        await asyncio.shield(bridge.gone)
        asked += [parked.message, result(parked.calls[0], "forty-two")]
        answered = await client.chat(asked, tools=[tool("left", "k")])
        assert (answered.status, answered.session) == (200, "replayed")


async def test_no_bridge_outlives_its_watcher(tmp_path: Path) -> None:
    async with sdk(tmp_path) as backend:
        await said(backend, "sim: say one")
        bridge = bridge_of(backend)
        (watcher,) = [int(line.split()[0]) for line in processes(tmp_path) if "supervisor.py" in line]
        os.kill(watcher, signal.SIGKILL)
        await asyncio.shield(bridge.gone)
        await until(lambda: not processes(tmp_path))
        assert await said(backend, "sim: say two") == "two"


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
                        assert len(processes(tmp_path)) == 2  # the watcher and node
                        gateway.kill()
                        gateway.wait()
                finally:
                    gateway.kill()
            until_s = time.monotonic() + 10
            while left := processes(tmp_path):
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's memory in /proc")
async def test_a_large_bridge_is_replaced_between_turns(tmp_path: Path) -> None:
    async with sdk(tmp_path, sdk_memory_limit="64 MiB") as backend:  # less than any bridge has
        parked = await backend.start(ask(CALL, tools=TOOLS))
        (call,) = fold(await response(parked)).calls
        first = bridge_of(backend)
        turn = await backend.start(ask("sim: say one"))
        await response(turn)
        snapshot = turn.snapshot()
        await turn.aclose()
        assert first.retired and first.alive  # it still has the parked turn
        going_on = (user("sim: say one"), Message(Role.ASSISTANT, (Text("one"),)), user("sim: recall"))
        turn = await backend.start(ask(*going_on), snapshot)
        assert fold(await response(turn)).text.startswith("1 earlier user turn")
        await turn.aclose()
        await parked.submit([answer(call, "not forgotten")])
        assert fold(await response(parked)).text == "not forgotten"
        await parked.aclose()
        await asyncio.shield(first.gone)
        assert backend.bridges.started >= 2


async def test_an_idle_bridge_is_stopped(tmp_path: Path) -> None:
    async with sdk(tmp_path, sdk_idle_timeout=0.05) as backend:
        await said(backend, "sim: say one")
        await until(lambda: backend.bridges.current is None and not processes(tmp_path))
        assert await said(backend, "sim: say two") == "two"


async def test_a_warm_bridge_waits_for_the_first_request(tmp_path: Path) -> None:
    async with sdk(tmp_path, warm=True) as backend:
        await until(lambda: backend.bridges.current is not None)
        assert await said(backend, "sim: say warm") == "warm"
        assert backend.bridges.started == 1


# ---- turns


async def test_a_parked_call_takes_no_thread(tmp_path: Path) -> None:
    async with sdk(tmp_path) as backend:
        await said(backend, "sim: say warm")
        before = threading.active_count()
        turns = [await backend.start(ask(CALL, tools=TOOLS)) for _ in range(12)]
        calls = [fold(await response(turn)).calls[0] for turn in turns]
        assert threading.active_count() <= before
        assert backend.callbacks.connections >= 12
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


async def test_the_system_prompt_as_a_rule_file(tmp_path: Path) -> None:
    async with sdk(tmp_path, sdk_system_delivery="rules") as backend:
        turn = await backend.start(ask(Message(Role.SYSTEM, (Text("Be brief."),)), "sim: say yes"))
        assert fold(await response(turn)).text == "yes"
        (rules,) = (tmp_path / "sdk" / "agents").glob("*/workspace/AGENTS.md")
        assert rules.read_text() == "Be brief."
        await turn.aclose()


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


# ---- agents


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


async def test_only_so_many_agents_are_kept(tmp_path: Path) -> None:
    async with sdk(tmp_path, sdk_max_agents=2) as backend:
        for n in range(4):
            await said(backend, f"sim: say {n}")
        cancelled = await backend.start(ask("sim: say on\nsim: hang"))
        await receive(cancelled)
        await cancelled.aclose()
        projects = tmp_path / "sdk" / "home" / ".cursor" / "projects"
        await until(lambda: len(list((tmp_path / "sdk" / "agents").iterdir())) == 2)
        await until(lambda: len([path for path in projects.iterdir() if "agents" in path.name]) == 2)


# ---- choosing it


def test_auto_takes_the_official_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_backend(Settings(api_key="key", data_dir=tmp_path)) == "sdk"
    assert choose_backend(Settings(api_key="key", backend="agent", data_dir=tmp_path)) == "agent"
    assert choose_backend(Settings(access_token="token", data_dir=tmp_path)) == "agent"
    monkeypatch.setattr(backend_factory, "_sdk_installed", lambda: False)
    assert choose_backend(Settings(api_key="key", data_dir=tmp_path)) == "agent"


async def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_factory, "_sdk_installed", lambda: False)
    with pytest.raises(GatewayError) as missing:
        async with open_backend(Settings(backend="sdk", api_key="key", data_dir=tmp_path)):
            pass
    assert "pip install 'caretway[sdk]'" in missing.value.hint


async def test_a_key_that_was_kept_is_used_from_then_on_and_until_it_is_forgotten(tmp_path: Path) -> None:
    async with simulated() as (_, port):
        settings = Settings(backend="sdk", agent_url=f"http://127.0.0.1:{port}", data_dir=tmp_path)
        async with open_backend(settings) as backend:
            assert isinstance(backend, CursorSdkBackend)
            assert not (await backend.status()).signed_in
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
        assert not status.signed_in and not status.reachable


async def test_a_missing_key_is_named(tmp_path: Path) -> None:
    async with sdk(tmp_path, api_key=None) as backend:
        assert "CURSOR_API_KEY" in (await backend.status()).detail
        with pytest.raises(GatewayError) as missing:
            await backend.start(ask("sim: say hello"))
        assert missing.value.kind is ErrorKind.SIGNED_OUT
        assert backend.bridges.started == 0


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
