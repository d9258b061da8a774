"""`caretway launch` with a client of ours: the gateway it gets, signals, exit codes, what is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from caretway.cli.running import LAUNCH_LOG, answers, noted_gateways
from contract.test_running import only_one, serving

FAKE = Path(__file__).with_name("fake_client.py")


def environment(home: Path, **more: str) -> dict[str, str]:
    """A fresh home, with programs called `opencode` and `claude` on the PATH."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("opencode", "claude"):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        (programs / name).chmod(0o755)
    return {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "COLUMNS": "80"} | more


def command(home: Path, *words: str) -> list[str]:
    cut = words.index("--") if "--" in words else len(words)
    return [sys.executable, "-m", "caretway", *words[:cut], "--data-dir", str(home / "data"), *words[cut:]]


def caretway(home: Path, *words: str, given: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(home, *words),
        env=environment(home, **(given or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def config_of(client: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client["environment"]["OPENCODE_CONFIG_CONTENT"])
    return found


def test_a_gateway_is_started_and_ends_with_the_client(tmp_path: Path) -> None:
    done = caretway(tmp_path, "launch", "opencode", "--", "ask", "--model", "--", "x y")
    assert done.returncode == 0, done.stderr
    client = told(done)
    assert client["words"] == ["ask", "--model", "--", "x y"]
    assert client["answer"] == "PONG"
    config = config_of(client)
    assert config["model"] == "caretway/default"
    models = config["provider"]["caretway"]["models"]
    assert models["composer-2.5"]["limit"]["context"] == 200_000
    assert "limit" not in models["sim-fast"]  # nobody has said it, so nobody makes it up
    assert "started for it" in done.stderr and "SIMULATED ANSWERS" in done.stderr
    assert not answers(config["provider"]["caretway"]["options"]["baseURL"].removesuffix("/v1"))
    used = json.loads(caretway(tmp_path, "usage", "--by", "key", "--json").stdout)
    assert [row["key"] for row in used["rows"]] == [""], "the user made no key"
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "data"}


def test_the_running_one_is_used_whatever_its_port_and_key(tmp_path: Path) -> None:
    with serving(tmp_path, CARETWAY_API_KEY="a-key-of-the-users-own"):
        url = only_one(tmp_path).url
        done = caretway(tmp_path, "launch", "opencode", "--model", "sim-think", "--", "ask")
        client = told(done)
        assert (done.returncode, client["answer"]) == (0, "PONG")
        assert config_of(client)["provider"]["caretway"]["options"]["baseURL"] == f"{url}/v1"
        assert config_of(client)["model"] == "caretway/sim-think"
        assert f"{url} (simulator, running)" in done.stderr
        assert answers(url)
        shown = caretway(tmp_path, "launch", "opencode", "--print")
        assert f"# gateway: {url} (simulator) runs" in shown.stdout and only_one(tmp_path).key not in shown.stdout
        other = caretway(tmp_path, "launch", "opencode", "--backend", "simulator", "--", "ask")
        assert told(other)["answer"] == "PONG" and "started for it" in other.stderr


def test_the_client_gets_none_of_the_gateways_secrets(tmp_path: Path) -> None:
    secrets = {
        "CURSOR_AUTH_TOKEN": "of-cursor-agent",
        "CURSOR_API_KEY": "key_0123456789abcdef-of-cursor",
        "CARETWAY_API_KEY": "cw-0123456789abcdef-of-the-gateway",
        "CARETWAY_GATEWAY_KEY": "cw-fedcba9876543210-of-the-gateway",
        "CARETWAY_ACCESS_TOKEN": "token-0123456789abcdef",
        "CARETWAY_CLUSTER_KEY": "cw-0123456789abcdef-of-the-cluster",
        "CARETWAY_HOOK": "http://127.0.0.1:9/?token=0123456789abcdef",
        "CARETWAY_PROXY": "direct",
    }
    given = {"OTHER_API_KEY": "of-the-user", "CARETWAY_DATA_DIR": str(tmp_path / "data"), **secrets}
    done = caretway(tmp_path, "launch", "opencode", "--backend", "simulator", "--", "ask", given=given)
    client = told(done)
    assert (done.returncode, client["answer"]) == (0, "PONG"), done.stderr
    seen = client["environment"]
    print(sorted(seen))
    assert not [name for name in secrets if name in seen]
    assert not [name for name, value in seen.items() if value in secrets.values()]
    assert seen["OTHER_API_KEY"] == "of-the-user" and seen["CARETWAY_DATA_DIR"] == given["CARETWAY_DATA_DIR"]
    shown = caretway(tmp_path, "launch", "opencode", "--backend", "simulator", "--print", given=secrets).stdout
    assert not [value for value in secrets.values() if value in shown]


@pytest.mark.parametrize(
    ("words", "code"), [(("exit", "7"), 7), (("kill", "9"), 137), (("kill", str(int(signal.SIGTERM))), 143)]
)
def test_exit_codes_pass(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    assert caretway(tmp_path, "launch", "opencode", "--", *words).returncode == code


def test_signals_pass(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, "launch", "opencode", "--", "wait"),
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # no terminal: nobody but us passes Ctrl-C on
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        for number, line in [(signal.SIGINT, "INT 1"), (signal.SIGTERM, "TERM 1"), (signal.SIGHUP, "HUP 1")]:
            process.send_signal(number)
            assert process.stdout.readline() == f"{line}\n"
        assert process.communicate("\n", timeout=30)[0] == "in all 1 1 1\n"
        assert process.returncode == 5


def test_its_gateway_is_found_and_stopped_and_given_to_no_other_client(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, "launch", "opencode", "--", "wait"),
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        found = only_one(tmp_path)
        assert (found.pid, found.launched) == (process.pid, True) and answers(found.url)
        (tmp_path / "data" / LAUNCH_LOG).write_text("a line\n")
        assert caretway(tmp_path, "service", "logs").stdout == "a line\n"
        assert found.url in caretway(tmp_path, "top", "--json").stdout
        for words, says in [
            (("service", "restart"), f"{found.url} ends with the client it was started for"),
            (("open", "--print"), f"{found.url} serves the client it was started for"),
        ]:
            done = caretway(tmp_path, *words)
            assert done.returncode == 1 and says in " ".join(done.stderr.split()), words
        other = caretway(tmp_path, "launch", "opencode", "--", "ask")
        assert told(other)["answer"] == "PONG" and "started for it" in other.stderr
        with serving(tmp_path):
            assert noted_gateways(tmp_path / "data")[-1] == found
            assert caretway(tmp_path, "service", "stop").returncode == 0
        assert only_one(tmp_path) == found
        with subprocess.Popen(command(tmp_path, "service", "stop"), env=environment(tmp_path)) as stop:
            assert process.stdout.readline() == "TERM 1\n"
            process.communicate("\n", timeout=30)
            assert stop.wait(30) == 0
        assert process.returncode == 5 and noted_gateways(tmp_path / "data") == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_a_killed_launch_leaves_neither_gateway_nor_client(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, "launch", "opencode", "--", "wait"),
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        address = re.search(r"http://[\d.]+:\d+", process.stderr.readline())
        assert address is not None
        assert process.stdout.readline() == "waiting\n"
        assert answers(address[0])
        process.kill()
        assert process.stdout.readline() == "HUP 1\n"
        assert not answers(address[0])
        process.communicate("\n", timeout=30)


IN_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


def test_a_terminal_s_ctrl_c_arrives_once(tmp_path: Path) -> None:
    """The terminal sends it to the client and to us: we must not send it once more."""
    terminal, inside = os.openpty()
    with (
        os.fdopen(terminal, "r+b", buffering=0) as screen,
        subprocess.Popen(
            [sys.executable, "-c", IN_A_TERMINAL, *command(tmp_path, "launch", "opencode", "--", "wait")],
            env=environment(tmp_path),
            stdin=inside,
            stdout=inside,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process,
    ):
        os.close(inside)
        seen = b""

        def until(mark: bytes) -> None:
            nonlocal seen
            while mark not in seen:
                seen += screen.read(1000)

        until(b"waiting")
        screen.write(b"\x03")
        until(b"INT 1")
        screen.write(b"\n")
        until(b" 0 0")
        assert b"in all 1 0 0" in seen
        assert process.wait(30) == 5


def test_a_proxy_is_not_for_the_gateway(tmp_path: Path) -> None:
    given = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "NO_PROXY": "intra.example"}
    client = told(caretway(tmp_path, "launch", "opencode", "--", "ask", given=given))
    assert client["answer"] == "PONG"
    assert client["environment"]["NO_PROXY"] == "intra.example,127.0.0.1,localhost,::1"


def test_files_of_a_launch_are_gone_after_it(tmp_path: Path) -> None:
    given = {"ANTHROPIC_API_KEY": "sk-theirs", "CLAUDE_CODE_USE_BEDROCK": "1", "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    client = told(caretway(tmp_path, "launch", "claude", "--", "exit", "0", given=given))
    flag, settings, *rest = client["words"]
    assert (flag, rest) == ("--settings", ["exit", "0"])
    assert settings.startswith(str(tmp_path / "tmp")) and list((tmp_path / "tmp").iterdir()) == []
    assert not {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"} & set(client["environment"])


@pytest.mark.parametrize(("own", "search"), [({}, "false"), ({"ENABLE_TOOL_SEARCH": "true"}, "true")])
def test_a_default_does_not_replace_the_user_s_own(own: dict[str, str], search: str, tmp_path: Path) -> None:
    client = told(caretway(tmp_path, "launch", "claude", "--", "exit", "0", given=own))
    assert client["environment"]["ENABLE_TOOL_SEARCH"] == search


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (
            ("launch", "codex", "--", "x"),
            127,
            "Codex is not installed: no `codex` on the PATH; install it: npm install",
        ),
        (("launch", "opncode"), 2, "no such client: opncode; did you mean opencode?"),
        (("launch", "--", "x"), 2, "which client?"),
        (("setup", "copilot"), 1, "GitHub Copilot CLI cannot be set up"),
        (("setup", "opencode", "--undo"), 1, "was not set up from here"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    without = {"PATH": str(tmp_path / "bin")}
    done = caretway(tmp_path, *words, given=without)
    assert done.returncode == code and says in done.stderr, done.stderr


def test_the_list(tmp_path: Path) -> None:
    only_ours = {"PATH": str(tmp_path / "bin")}
    lines = caretway(tmp_path, "launch", given=only_ours).stdout.splitlines()
    assert lines[0].split() == ["client", "installed", "set", "up", "install", "it", "with"]
    assert lines[1].split() == ["opencode", "yes", "no"]
    assert next(line for line in lines if line.startswith("codex")).endswith("npm install -g @openai/codex")
    assert max(map(len, lines)) <= 80
    narrow = caretway(tmp_path, "launch", given={**only_ours, "COLUMNS": "60"}).stdout.splitlines()
    assert max(map(len, narrow)) <= 60
    assert "codex npm install -g @openai/codex" in [" ".join(line.split()) for line in narrow]


def test_the_list_says_who_was_seen(tmp_path: Path) -> None:
    with serving(tmp_path):
        body = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: say PONG"}]}
        headers = {"user-agent": "claude-cli/2.1 (external, cli)", "content-type": "application/json"}
        request = urllib.request.Request(
            only_one(tmp_path).url + "/v1/chat/completions", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200
    lines = caretway(tmp_path, "launch", given={"PATH": str(tmp_path / "bin")}).stdout.splitlines()
    assert lines[0].split()[:5] == ["client", "installed", "set", "up", "seen"]
    assert [line.split()[3:] for line in lines if line.startswith(("opencode", "claude"))] == [[], ["now"]]
