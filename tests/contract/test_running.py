"""A gateway is found by other commands of its user, whatever its port and key, and no longer when it has ended."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import asdict

from caretway.cli import running
from caretway.cli.client_gateway import running_gateway
from caretway.cli.doctor import check_port
from caretway.cli.port_owner import listening_users
from caretway.cli.running import RunningGateway, answers, ask, noted_gateways
from caretway.config import Settings
from caretway.storage.private_file import write_file


@contextmanager
def serving(home: Path, *flags: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """`caretway serve` on a free port; it serves when this begins, and has ended after it."""
    with subprocess.Popen(
        [sys.executable, "-m", "caretway", "serve", "--port", "0", "--data-dir", str(home / "data"), *flags],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home)} | environ,
    ) as process:
        try:
            assert process.stdout is not None
            assert any(re.search("SIMULATED", line) for line in process.stdout)
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=30)


def only_one(home: Path) -> RunningGateway:
    (found,) = noted_gateways(home / "data")
    return found


def test_port_and_key_are_found(tmp_path: Path) -> None:
    with serving(tmp_path, CARETWAY_API_KEY="a-key-of-the-users-own") as process:
        found = only_one(tmp_path)
        assert (found.pid, found.backend, found.passthrough) == (process.pid, "simulator", False)
        assert answers(found.url)
        assert ask(found.url, "/v1/models").status == 401
        assert ask(found.url, "/v1/models", "cw-" + "x" * 40).status == 401
        for key in (found.key, "a-key-of-the-users-own"):
            listed = ask(found.url, "/v1/models", key)
            assert listed.status == 200 and listed.backend and listed.body["data"]
    assert noted_gateways(tmp_path / "data") == []
    assert not answers(found.url)


def command(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "CARETWAY_DATA_DIR": str(home / "data")}
    return subprocess.run(
        [sys.executable, "-m", "caretway", *words], capture_output=True, text=True, env=environ, check=False, timeout=60
    )


def test_a_plain_gateway_is_opened_restarted_and_stopped(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    with serving(tmp_path, "--log-file", str(log)) as process:
        before = only_one(tmp_path)
        assert command(tmp_path, "open", "--print").stdout == f"{before.url}/\n"
        done = command(tmp_path, "service", "restart")
        assert (done.returncode, done.stdout) == (0, f"Restarted {before.url}.\n"), done.stderr
        after = only_one(tmp_path)
        assert after.pid == process.pid and after.started > before.started
        assert answers(after.url)
        assert f"gateway  {after.url} runs without the service\n" in command(tmp_path, "service", "status").stdout
        log.write_text("a line\n")
        assert command(tmp_path, "service", "logs").stdout == "a line\n"
        done = command(tmp_path, "service", "stop")
        assert (done.returncode, done.stdout) == (0, f"Stopped {after.url}.\n"), done.stderr
        assert process.wait(30) == 0
    for words in (("open",), ("service", "stop"), ("service", "restart")):
        done = command(tmp_path, *words)
        assert done.returncode == 1 and "no gateway is running; start one: caretway serve" in done.stderr, words


def test_a_gateway_that_does_not_start_again_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.touch()
    with serving(tmp_path, "--config", str(file)) as process:
        url = only_one(tmp_path).url
        file.write_text("[mcp.demo]\ncommand = 'x'\n")
        reaped = threading.Thread(target=process.wait)  # as a shell does
        reaped.start()
        done = command(tmp_path, "service", "restart")
        reaped.join(30)
    assert (done.returncode, process.returncode) == (1, 2)
    assert f"{url} stopped and did not start again; find out why: caretway doctor" in " ".join(done.stderr.split())


@pytest.mark.skipif(sys.platform != "linux", reason="where a process began is known on Linux only")
@pytest.mark.parametrize("word", ["stop", "restart"])
def test_the_process_that_has_the_number_of_a_killed_gateway_gets_no_signal(tmp_path: Path, word: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            note = RunningGateway("http://127.0.0.1:9", other.pid, "0", "agent", False, "", 1.7e9, restarts=True)
            write_file(tmp_path / "data" / running.FOLDER / f"{other.pid}-9.json", json.dumps(asdict(note)))
            done = command(tmp_path, "service", word)
            assert done.returncode == 1 and "no gateway is running" in done.stderr
            assert other.poll() is None
        finally:
            other.kill()


def test_of_two_gateways_one_is_chosen_by_its_port(tmp_path: Path) -> None:
    with serving(tmp_path), serving(tmp_path):
        ports = [note.url.rpartition(":")[2] for note in noted_gateways(tmp_path / "data")]
        done = command(tmp_path, "service", "stop")
        assert done.returncode == 1 and all(port in done.stderr for port in ports)
        assert command(tmp_path, "service", "stop", "--port", ports[0]).returncode == 0
        assert [note.url.rpartition(":")[2] for note in noted_gateways(tmp_path / "data")] == ports[1:]


def test_a_killed_one_is_forgotten(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        assert answers(only_one(tmp_path).url)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert noted_gateways(tmp_path / "data") == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a socket is")
def test_another_user_s_gateway_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PROBE_S", 30.0)
    with serving(tmp_path):
        url = only_one(tmp_path).url
        port = int(url.rpartition(":")[2])
        assert listening_users("127.0.0.1", port) == {os.getuid()}
        assert listening_users("127.0.0.2", port) == frozenset()
        somebody = frozenset({os.getuid() + 1})
        for data in ("data", "elsewhere"):  # with a note of it and without
            settings = Settings(port=port, data_dir=tmp_path / data)
            found = running_gateway(settings)
            assert found is not None and found.url == url
            assert running_gateway(settings, trusted=somebody) is None
            assert "is another user's" in capsys.readouterr().err


def test_a_program_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections on the usual port, as some servers of other protocols do."""
    waits: list[float | None] = []

    class Watched(http.client.HTTPConnection):
        def connect(self) -> None:
            waits.append(self.timeout)
            super().connect()

    monkeypatch.setattr(http.client, "HTTPConnection", Watched)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Settings(port=silent.getsockname()[1], data_dir=tmp_path)
        assert running_gateway(settings) is None
        assert not check_port(tmp_path, "127.0.0.1", settings.port).ok
    assert sum(wait or 60 for wait in waits) <= 2


def test_looking_for_the_gateway_costs_no_refusal_in_its_log(tmp_path: Path) -> None:
    with serving(tmp_path, CARETWAY_API_KEY="a-key-of-the-users-own") as process:
        found = running_gateway(Settings(data_dir=tmp_path / "data"))
        assert found is not None and found.keyed and found.models
        key = {"authorization": "Bearer a-key-of-the-users-own"}
        refused = httpx.get(f"{found.url}/caretway/v1/health", headers=key, trust_env=False).json()["refused"]
        assert refused == []
        process.send_signal(signal.SIGTERM)
        process.wait(30)
