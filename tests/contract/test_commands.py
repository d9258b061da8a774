"""`caretway serve` and `caretway simulate` as real processes: the line scripts wait for, the answer, the end."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Final

import pytest

from caretway import __version__

ADDRESS = re.compile(r"https?://127\.0\.0\.1:\d+")


@contextmanager
def caretway(*arguments: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    """The command with an empty environment; killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "caretway", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], pattern: re.Pattern[str]) -> str:
    """The first text that fits, from the lines printed so far; the process' own end is the time limit."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := pattern.search(line):
            return found[0]
    assert process.stderr is not None
    raise AssertionError(f"it ended without saying {pattern.pattern}: {process.stderr.read()}")


def get(url: str, context: ssl.SSLContext | None = None) -> dict[str, object]:
    with urllib.request.urlopen(url, timeout=20, context=context) as response:
        answer: dict[str, object] = json.load(response)
        return answer


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors


@pytest.mark.seed("A01")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_serve_answers_and_ends_quietly(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with caretway("serve", "--port", "0", home=tmp_path) as process:
        url = read_until(process, ADDRESS)
        read_until(process, re.compile("SIMULATED ANSWERS"))
        assert get(f"{url}/health")["status"] == "ok"
        read_until(process, re.compile(r"models +default, sim-auto, sim-fast, sim-think, .* and \d+ more$"))
        read_until(process, re.compile(f"OPENAI_BASE_URL={url}/v1"))
        assert end(process, number) == (code, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_does_not_wait_for_answers(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """The first says what is waited for; the second ends it, and the client is told in words it understands."""
    with caretway("serve", *GRACEFUL, "--backend", "simulator", home=tmp_path) as process, hanging(process) as answer:
        assert first_words_of_stopping(process, number).startswith("1 answer has up to 600 s to end; ")
        assert end(process, number) == (code, "")
        told = answer.read()
        assert b"The gateway is stopping." in told
        assert b'"should_retry":true' in told  # the next one that runs answers it


GRACEFUL: Final = ("--port", "0", "--shutdown-grace", "600s", "--log-level", "error")


@contextmanager
def hanging(process: subprocess.Popen[str], key: str = "") -> Iterator[HTTPResponse]:
    """An answer of this gateway that has begun and does not end."""
    asked = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: say on\nsim: hang"}]}
    headers = {"content-type": "application/json"} | ({"x-api-key": key} if key else {})
    url = f"{read_until(process, ADDRESS)}/v1/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(asked).encode(), headers), timeout=20) as answer:
        while b'"content":"on"' not in answer.readline():
            pass
        yield answer


def first_words_of_stopping(process: subprocess.Popen[str], number: signal.Signals) -> str:
    process.send_signal(number)
    assert process.stderr is not None
    told = process.stderr.readline()
    assert told.startswith("caretway: stopping: ") and "again" in told
    return told.removeprefix("caretway: stopping: ")


def test_stopping_counts_the_answers_to_all_accounts(tmp_path: Path) -> None:
    with caretway("simulate", "--port", "0", home=tmp_path) as simulator:
        reach = ("--agent-url", read_until(simulator, ADDRESS), "--auth-mode", "passthrough")
        with caretway("serve", *GRACEFUL, *reach, home=tmp_path) as process, hanging(process, "key-of-ada"):
            assert first_words_of_stopping(process, signal.SIGINT).startswith("1 answer has up to 600 s to end; ")
            assert end(process, signal.SIGINT) == (130, "")


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    for command in ("serve", "simulate"):
        with caretway(command, "--port", "0", home=tmp_path) as first:
            port = int(read_until(first, ADDRESS).rpartition(":")[2])
            with caretway(command, "--port", str(port), home=tmp_path) as second:
                output, errors = second.communicate(timeout=30)
            assert (second.returncode, output) == (1, "")
            by = f" by a Caretway gateway (version {__version__}, backend simulator, process {first.pid})"
            said = f"caretway: port {port} on 127.0.0.1 is already in use{by if command == 'serve' else ''}; "
            assert errors.startswith(f"{said}try: caretway {command} --port ") and errors.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_simulate_answers_and_ends_quietly(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with caretway("simulate", "--port", "0", "--prefer", "h2", home=tmp_path) as process:
        line = read_until(process, re.compile(r"^listening on http://127\.0\.0\.1:\d+$"))
        assert get(f"{line.removeprefix('listening on ')}/_sim/stats")["runs_opened"] == 0
        assert end(process, number) == (code, "")


def test_simulate_over_tls_makes_and_removes_its_authority(tmp_path: Path) -> None:
    with caretway("simulate", "--port", "0", "--tls", home=tmp_path) as process:
        url = read_until(process, ADDRESS)
        authority = Path(read_until(process, re.compile(r"(?<=authority  )\S+")))
        assert get(f"{url}/_sim/stats", ssl.create_default_context(cafile=authority))["runs_opened"] == 0
        assert end(process, signal.SIGTERM) == (0, "")
    assert not authority.exists()


def test_models_and_status_of_a_simulator_elsewhere(tmp_path: Path) -> None:
    with caretway("simulate", "--port", "0", home=tmp_path) as simulator:
        reach = ("--backend", "agent", "--agent-url", read_until(simulator, ADDRESS), "--json")
        with caretway("models", *reach, home=tmp_path) as signed_out:
            _, errors = signed_out.communicate(timeout=30)
        assert signed_out.returncode == 1 and "Traceback" not in errors
        settings = tmp_path / "key.toml"
        settings.write_text('api_key = "any"')
        with caretway("models", *reach, "--config", str(settings), home=tmp_path) as listing:
            output, errors = listing.communicate(timeout=30)
        assert (listing.returncode, errors) == (0, "")
        assert {"sim-auto", "sim-fast", "sim-think"} <= {model["id"] for model in json.loads(output)}
        with caretway("status", *reach, "--config", str(settings), home=tmp_path) as status:
            output, errors = status.communicate(timeout=30)
        assert (status.returncode, errors) == (0, "")
        assert json.loads(output)["signed_in"] is True
