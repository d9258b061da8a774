"""`caretway service`: flags that the service gets, variables that it does not see, what uninstalling leaves."""

import json
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import asdict

from caretway.cli.main import main
from caretway.cli.process import CommandFailed
from caretway.cli.running import RunningGateway
from caretway.cli.service import flag_words, left_behind, service_definition, unseen
from caretway.cli.service_manager import Launchd, Systemd, manager_here
from caretway.config import load


def test_flags_are_passed_on_and_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = {"port": "8080", "workspace": "here", "strict_models": True, "models": "a,b", "agent_ghost_mode": False}
    settings = load(flags, {"HOME": "/home/anna"})
    words = flag_words(flags, settings)
    assert words[:2] == ["--port", "8080"]
    assert ["--workspace", str(tmp_path / "here")] == words[words.index("--workspace") :][:2]
    assert "--strict-models" in words
    assert "--no-agent-ghost-mode" in words


def test_variables_that_the_service_does_not_see_are_named_without_their_values() -> None:
    environ = {"HOME": "/home/anna", "CURSOR_API_KEY": "key_secret", "CARETWAY_LOG_LEVEL": "debug"}
    printed = "\n".join(unseen(load({"port": "1"}, environ)))
    assert "CURSOR_API_KEY; keep the key with: caretway login --api-key-stdin" in printed
    assert "CARETWAY_LOG_LEVEL; caretway config set log_level VALUE" in printed
    assert "key_secret" not in printed
    assert "port" not in printed


def test_launchd_gets_a_log_file(tmp_path: Path) -> None:
    settings = load({"data_dir": str(tmp_path), "backend": "agent"}, {"HOME": "/home/anna"})
    assert service_definition(settings, {}, Systemd).log_file is None
    mac = service_definition(settings, {}, Launchd)
    assert mac.command[-2:] == ["--log-file", str(tmp_path / "log" / "caretway.log")]


def test_what_is_left_is_listed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "setup").mkdir(parents=True)
    (data / "setup" / "opencode.json").write_text("{}")
    config = tmp_path / "config.toml"
    config.write_text("")
    environ = {"HOME": str(tmp_path), "CARETWAY_DATA_DIR": str(data), "CARETWAY_CONFIG": str(config)}
    printed = "\n".join(left_behind(load({}, environ)))
    for words in (f"rm -r {data}", str(config), "caretway setup opencode --undo"):
        assert words in printed


def test_a_platform_without_a_manager_is_told_what_to_do() -> None:
    with pytest.raises(CommandFailed, match=r"docs/deploy\.md"):
        manager_here({}, Path("/"), "freebsd14")


def test_print_and_status_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "cfg"))
    monkeypatch.setenv("CARETWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("sys.platform", "linux")
    assert main(["service", "install", "--print", "--port", "8080", "--backend", "simulator"]) == 0
    assert "serve --port 8080 --backend simulator\n" in capsys.readouterr().out
    assert main(["service", "status", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["state"] == "not installed"
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_names_a_gateway_that_still_runs(tmp_path: Path) -> None:
    """Under another supervisor, say: uninstalling the service does not end it."""
    with subprocess.Popen(["sleep", "60"]) as process:
        note = RunningGateway("http://127.0.0.1:18099", process.pid, "0.2.0", "simulator", False, "k", 1.0)
        (tmp_path / "gateways").mkdir()
        (tmp_path / "gateways" / f"{process.pid}.json").write_text(json.dumps(asdict(note)))
        settings = load({"data_dir": str(tmp_path)}, {"HOME": str(tmp_path)})
        assert f"http://127.0.0.1:18099 runs: kill {process.pid}" in "\n".join(left_behind(settings))
        process.kill()
    assert "runs" not in "\n".join(left_behind(settings))


@pytest.mark.parametrize("state", ["offline", ""])
def test_without_a_user_manager_nothing_is_written_and_a_file_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    """A container, or `su`: there is a systemctl, and nobody who answers it."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text(f"#!/bin/sh\necho {state}\nexit 1\n")
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "cfg"))
    monkeypatch.setenv("CARETWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("sys.platform", "linux")
    assert main(["service", "install", "--backend", "simulator"]) == 1
    assert "does not run here; run `caretway serve`" in capsys.readouterr().err
    unit = tmp_path / "cfg" / "systemd" / "user" / "caretway.service"
    assert not unit.exists()
    assert main(["service", "status"]) == 3
    printed = capsys.readouterr().out
    assert "run `caretway serve`" in printed and "caretway service install" not in printed, "nobody is sent in a circle"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]")
    assert main(["service", "status"]) == 3
    assert "does not run here" in capsys.readouterr().out
    assert main(["service", "uninstall"]) == 0
    assert "only the file was removed" in capsys.readouterr().err
    assert not unit.exists()
