"""`caretway setup` and `--undo` on a home of their own, and `caretway env`: files, modes, links, what a shell reads."""

import os
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from contract.test_launch import caretway
from contract.test_running import only_one, serving

MINE = '{\n\t// mine\n\t"model": "anthropic/x", // dear\n}\n'


def tree(home: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, every directory; not what is ours."""
    return {
        str(path.relative_to(home)): path.read_bytes() if path.is_file() else None
        for path in home.rglob("*")
        if path.relative_to(home).parts[0] not in ("bin", "data")
    }


def test_in_and_out_byte_for_byte(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "opencode.jsonc"
    real.parent.mkdir()
    real.write_text(MINE)
    real.chmod(0o664)
    link = tmp_path / ".config" / "opencode" / "opencode.jsonc"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    before = tree(tmp_path)

    refused = caretway(tmp_path, "setup", "opencode")
    assert (refused.returncode, tree(tmp_path)) == (2, before)
    assert "caretway setup opencode --yes" in refused.stderr
    assert "+++ ~/.config/opencode/opencode.jsonc" in refused.stdout
    assert caretway(tmp_path, "setup", "opencode", "--print").returncode == 0 and tree(tmp_path) == before

    done = caretway(tmp_path, "setup", "opencode", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Use it: opencode --model caretway/default" in done.stdout
    assert "no gateway is running; start one: caretway serve" in done.stderr
    text = real.read_text()
    assert text.startswith('{\n\t// mine\n\t"model": "anthropic/x", // dear\n\t"provider": {\n\t\t"caretway": {')
    assert '"baseURL": "http://127.0.0.1:32124/v1"' in text
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o664
    assert "opencode  " in caretway(tmp_path, "setup").stdout
    assert "set up already" in caretway(tmp_path, "setup", "opencode").stdout

    assert caretway(tmp_path, "setup", "opencode", "--undo", "--yes").returncode == 0
    assert tree(tmp_path) == before and link.is_symlink()
    assert "Nothing has been set up" in caretway(tmp_path, "setup").stdout


def test_a_file_that_the_client_rewrote_keeps_what_the_client_wrote(tmp_path: Path) -> None:
    assert caretway(tmp_path, "setup", "codex", "--yes").returncode == 0
    config = tmp_path / ".codex" / "config.toml"
    config.write_text(config.read_text() + '\n[projects."/w"]\ntrust_level = "trusted"\n')
    again = caretway(tmp_path, "setup", "codex", "--yes", "--model", "sim-think")
    assert 'model = "sim-think"' in again.stdout
    undone = caretway(tmp_path, "setup", "codex", "--undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert {name for name, data in tree(tmp_path).items() if data} == {".codex/config.toml"}
    assert config.read_text() == '[projects."/w"]\ntrust_level = "trusted"\n'


def test_a_second_place_is_undone_with_the_first(tmp_path: Path) -> None:
    before = tree(tmp_path)
    assert caretway(tmp_path, "setup", "codex", "--yes").returncode == 0
    other = {"CODEX_HOME": str(tmp_path / "other")}
    assert caretway(tmp_path, "setup", "codex", "--yes", given=other).returncode == 0
    assert {".codex/config.toml", "other/config.toml"} <= set(tree(tmp_path))
    assert caretway(tmp_path, "setup", "codex", "--undo", "--yes").returncode == 0
    assert tree(tmp_path) == before


def test_a_key_with_a_name_makes_the_gateway_ask_for_one(tmp_path: Path) -> None:
    assert caretway(tmp_path, "key", "new", "--name", "mine").returncode == 0
    assert '"apiKey": "{env:CARETWAY_API_KEY}"' in caretway(tmp_path, "setup", "opencode", "--print").stdout


def test_directories_of_ours_go_too(tmp_path: Path) -> None:
    assert caretway(tmp_path, "setup", "goose", "--yes").returncode == 0
    assert ".config/goose/custom_providers/caretway.json" in tree(tmp_path)
    assert caretway(tmp_path, "setup", "goose", "--undo", "--yes").returncode == 0
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"{'a': 1}", "is left alone: line 1"), (b"\xff{}", "is not UTF-8"), (b'{"provider": 1}', "is not an object")],
)
def test_what_cannot_be_changed_safely_is_left_alone(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / ".config" / "opencode" / "opencode.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    done = caretway(tmp_path, "setup", "opencode", "--yes")
    assert (done.returncode, file.read_bytes()) == (1, content)
    assert says in done.stderr and not (tmp_path / "data" / "setup").exists()


def test_what_to_add_by_hand_is_in_the_words_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('model_providers = { own = { name = "x" } }\n')
    done = caretway(tmp_path, "setup", "codex", "--yes")
    assert done.returncode == 1 and "cannot be added to safely" in done.stderr
    assert tomllib.loads(done.stderr.partition("by hand:")[2])["model_providers"]["caretway"]["wire_api"] == "responses"


def test_a_link_to_nothing_is_a_link_to_nothing_again(tmp_path: Path) -> None:
    link = tmp_path / ".config" / "opencode" / "opencode.json"
    link.parent.mkdir(parents=True)
    (tmp_path / "dotfiles").mkdir()
    link.symlink_to(tmp_path / "dotfiles" / "opencode.json")
    assert caretway(tmp_path, "setup", "opencode", "--yes").returncode == 0
    assert link.is_symlink() and link.exists()
    assert caretway(tmp_path, "setup", "opencode", "--undo", "--yes").returncode == 0
    assert link.is_symlink() and not link.exists()


def test_a_link_into_a_missing_directory_leaves_nothing_to_undo(tmp_path: Path) -> None:
    link = tmp_path / ".config" / "opencode" / "opencode.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "unmounted" / "opencode.json")
    failed = caretway(tmp_path, "setup", "opencode", "--yes")
    assert failed.returncode == 1 and "opencode.json cannot be written" in failed.stderr
    assert link.is_symlink() and "Nothing has been set up" in caretway(tmp_path, "setup").stdout


def test_a_file_that_is_all_ours_is_said_to_go_as_a_whole(tmp_path: Path) -> None:
    """Codex has one of each kind: our entries in its settings, and a profile of our own."""
    assert caretway(tmp_path, "setup", "codex", "--yes").returncode == 0
    home = tmp_path / ".codex"
    for name in ("config.toml", "caretway.config.toml"):
        (home / name).write_text((home / name).read_text() + "\n# mine\n")
    undone = caretway(tmp_path, "setup", "codex", "--undo", "--yes")
    assert undone.returncode == 0
    assert "goes as a whole, because setup made it: ~/.codex/caretway.config.toml\n" in undone.stderr
    assert "only our entries are taken out: ~/.codex/config.toml\n" in undone.stderr
    assert [path.name for path in home.iterdir()] == ["config.toml"]


def test_a_model_that_is_not_listed_is_named(tmp_path: Path) -> None:
    for command in ("setup", "launch"):
        done = caretway(tmp_path, command, "codex", "--print", "--model", "sim-thnk")
        assert done.returncode == 0
        assert "sim-thnk is not in the list of models; did you mean sim-think?" in done.stderr


def test_the_variables_lack_a_key_that_only_a_client_knows(tmp_path: Path) -> None:
    assert caretway(tmp_path, "key", "new", "--name", "ci").returncode == 0
    told = caretway(tmp_path, "env", "openai")
    assert "OPENAI_API_KEY=local" in told.stdout and "it asks for a key: put one in place of local" in told.stderr


def test_the_variables_of_a_running_gateway(tmp_path: Path) -> None:
    nobody = caretway(tmp_path, "env", "anthropic", "--shell", "fish")
    assert nobody.stdout == (
        "set -gx ANTHROPIC_BASE_URL 'http://127.0.0.1:32124'\nset -gx ANTHROPIC_AUTH_TOKEN 'local'\n"
    )
    assert "no gateway is running" in nobody.stderr
    with serving(tmp_path, CARETWAY_API_KEY="a-key-of-the-users-own"):
        found = only_one(tmp_path)
        lines = caretway(tmp_path, "env").stdout
        shell = 'eval "$1"; echo "$OPENAI_BASE_URL $OPENAI_API_KEY $ANTHROPIC_BASE_URL $ANTHROPIC_AUTH_TOKEN"'
        read = subprocess.run(
            ["sh", "-c", shell, "sh", lines], capture_output=True, text=True, check=True, env=os.environ
        )
        assert read.stdout.split() == [f"{found.url}/v1", found.key, found.url, found.key]
        power = caretway(tmp_path, "env", "openai", "--shell", "powershell").stdout
        assert power.splitlines()[0] == f"$env:OPENAI_BASE_URL = '{found.url}/v1'"
