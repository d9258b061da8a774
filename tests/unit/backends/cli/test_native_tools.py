"""What is written so that cursor-agent uses our MCP server, and that nothing of it stays."""

import json
from pathlib import Path

import pytest

from caretway.backends.cli.native_tools import Approvals, approval, project_slug


def test_the_names_are_those_that_the_program_looks_for() -> None:
    """Seen in public: a path, a server and the key that Cursor's program wrote for it."""
    config = {"url": "https://mcp.example.com/mcp"}
    assert approval("mcp-gateway", "/Users/alice/src/demo-app", config) == "mcp-gateway-790a71ad022ef2d7"
    assert project_slug("/Users/alice/.config/my-app/project") == "Users-alice-config-my-app-project"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def file_of(home: Path, place: Path) -> Path:
    return home / ".cursor" / "projects" / project_slug(str(place.resolve())) / "mcp-approvals.json"


def test_given_and_taken_back(home: Path, place: Path) -> None:
    approvals, file = Approvals(home, place), file_of(home, place)
    approvals.give("http://127.0.0.1:1/a")
    approvals.give("http://127.0.0.1:1/b")
    assert len(json.loads(file.read_text())) == 2
    assert file.stat().st_mode & 0o077 == 0
    approvals.take_back("http://127.0.0.1:1/a")
    assert json.loads(file.read_text()) == [
        approval("caretway", str(place.resolve()), {"url": "http://127.0.0.1:1/b"}),
    ]
    approvals.close()
    assert not file.parent.exists()


def test_what_the_program_keeps_there_stays(home: Path, place: Path) -> None:
    file = file_of(home, place)
    file.parent.mkdir(parents=True)
    file.write_text('["other-0123456789abcdef", "caretway-of-a-killed-gateway"]')
    (file.parent / "chats.db").write_bytes(b"x")
    approvals = Approvals(home, place)
    approvals.give("http://127.0.0.1:1/a")
    approvals.close()
    assert json.loads(file.read_text()) == ["other-0123456789abcdef"]
    assert (file.parent / "chats.db").exists()


@pytest.mark.parametrize("broken", ["", "{", '{"a": 1}', "[1, null]"])
def test_a_broken_file_is_replaced(home: Path, place: Path, broken: str) -> None:
    file = file_of(home, place)
    file.parent.mkdir(parents=True)
    file.write_text(broken)
    approvals = Approvals(home, place)
    approvals.give("http://127.0.0.1:1/a")
    assert len(json.loads(file.read_text())) == 1


def test_calls_of_ours_are_allowed_in_our_directory_and_nothing_else_is(home: Path, place: Path) -> None:
    Approvals(home, place).allow(own_tools=False)
    rules = json.loads((place / ".cursor" / "cli.json").read_text())["permissions"]
    assert rules == {"allow": ["Mcp(caretway:*)"], "deny": ["Shell(*)", "Write(**)"]}
    Approvals(home, place).allow(own_tools=True)
    assert json.loads((place / ".cursor" / "cli.json").read_text())["permissions"]["deny"] == []
    assert not home.exists()
