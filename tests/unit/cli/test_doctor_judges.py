"""What `doctor` thinks of running gateways and of clients' base URLs: tables."""

import json
import os
from pathlib import Path

import pytest

from caretway.cli.doctor import Api, check_clients, check_history, judged, mistake_in, right
from caretway.cli.running import RunningGateway
from caretway.core.records import TurnRecord
from caretway.usage.ledger import Ledger
from caretway.usage.writing import FILE_NAME

PORTS, TLS = {32124, 443}, {443}

URLS: list[tuple[str, Api, str]] = [
    ("http://127.0.0.1:32124/v1", "openai", ""),
    ("http://localhost:32124/v1/", "openai", ""),
    ("http://127.0.0.1:32124", "openai", "ends in /v1"),
    ("http://127.0.0.1:32124/openai/v1", "openai", "ends in /v1"),
    ("http://127.0.0.1:32124/v1/chat/completions", "openai", "ends in /v1"),
    ("https://127.0.0.1:32124/v1", "openai", "plain HTTP"),
    ("http://127.0.0.1:443/v1", "openai", "speaks TLS"),
    ("https://127.0.0.1:443/v1", "openai", ""),
    ("http://127.0.0.1:32124", "anthropic", ""),
    ("http://127.0.0.1:32124/", "anthropic", ""),
    ("http://127.0.0.1:32124/v1", "anthropic", "add /v1 themselves"),
    ("http://127.0.0.1:11434", "openai", ""),  # somebody else's
    ("https://api.openai.com/v1", "openai", ""),
    ("http://127.0.0.1:notaport/v1", "openai", ""),
]


@pytest.mark.parametrize(("url", "api", "mistake"), URLS)
def test_base_urls(url: str, api: Api, mistake: str) -> None:
    found = mistake_in(url, api, PORTS, TLS)
    assert (mistake in found) if mistake else found == ""
    if mistake:
        assert mistake_in(right(url, api, TLS), api, PORTS, TLS) == "", "what it says to write is right"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    os.mkfifo(tmp_path / ".claude" / "settings.json")
    assert check_clients(tmp_path, {}, [32124]) == []


def test_files_and_variables_are_read(tmp_path: Path) -> None:
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:32124/v1", "OTHER": "https://x.org"}}))
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('base_url = "http://localhost:32124/v1"\n')
    found = check_clients(tmp_path, {"OPENAI_BASE_URL": "https://127.0.0.1:32124/v1"}, [32124])
    assert [one.detail.partition(": http")[0] for one in found] == ["the variable OPENAI_BASE_URL", str(file)]
    assert [one.hint for one in found] == ["Write http://127.0.0.1:32124/v1", "Write http://127.0.0.1:32124"]
    assert not any(one.ok for one in found)


NOTES = [
    ("simulator", "1", "agent", True, False, "its answers are simulated, and `agent` could be used now"),
    ("simulator", "1", "simulator", True, True, "its answers are simulated: "),
    ("agent", "1", "agent", True, True, "runs: "),
    ("agent", "0", "agent", True, False, "another version than this one (1)"),
    ("agent", "1", "sdk", True, True, "another backend than these settings choose (`sdk`)"),
    ("agent", "1", "", True, True, "runs: "),
    ("agent", "1", "agent", False, False, "does not answer"),
]


@pytest.mark.parametrize(("backend", "version", "now", "alive", "ok", "says"), NOTES)
def test_running_gateways(backend: str, version: str, now: str, alive: bool, ok: bool, says: str) -> None:
    note = RunningGateway("http://127.0.0.1:1", 7, version, backend, False, "key", 0.0)
    found = judged(note, now, alive=alive, version="1")
    assert found.ok is ok and says in found.detail and bool(found.hint) is not ok
    assert "key" not in found.detail, "it stays in the note"


def test_whether_an_account_has_ever_answered(tmp_path: Path) -> None:
    assert "has answered here yet" in check_history(tmp_path).detail
    book = Ledger(tmp_path / FILE_NAME, max_age_s=9e9, max_bytes=10**8)
    for backend, error in (("agent", ""), ("agent", "quota"), ("simulator", "")):
        book.response_ended(
            TurnRecord("r", "chat", backend, f"m-{error}", "fresh", "", True, "end", error=error, started_at=1e9)
        )
    book.close()
    assert check_history(tmp_path).detail.endswith(", agent, m-")
    (tmp_path / FILE_NAME).write_bytes(b"not a ledger" * 100)
    assert "has answered here yet" in check_history(tmp_path).detail
