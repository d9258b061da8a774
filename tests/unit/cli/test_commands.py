"""The commands as a user meets them: real processes for help and exit codes, pure functions for what they print."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from caretway import __version__
from caretway.cli import config as config_command
from caretway.cli import main as entry
from caretway.cli.flags import given
from caretway.cli.models import as_json, as_table
from caretway.cli.simulate import ready
from caretway.cli.status import AccountFacts, Report, as_lines
from caretway.cli.terminal import Style
from caretway.config import SETTINGS, Settings, load
from caretway.core.turn import ModelInfo

ROOT = Path(__file__).parents[3]
COMMANDS = ("serve", "login", "logout", "models", "status", "doctor", "config", "simulate")
PLAIN = Style()


def caretway(*arguments: str, home: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "caretway", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=kept | {"HOME": str(home), "COLUMNS": "120"} | environ,
        check=False,
    )


# ---- real processes


def test_without_a_command_help_is_short(tmp_path: Path) -> None:
    done = caretway(home=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert all(command in done.stdout for command in COMMANDS)
    assert len(done.stdout.splitlines()) < 40
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_version(tmp_path: Path) -> None:
    assert caretway("--version", home=tmp_path).stdout == f"caretway {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(command: str, tmp_path: Path) -> None:
    done = caretway(command, "--help", home=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"usage: caretway {command} ")
    assert "examples:" in done.stdout


SCREEN = 40
LENGTHS = {"serve": 2 * SCREEN} | dict.fromkeys(
    ("login", "logout", "status", "models", "mcp", "doctor", "prove", "key", "config", "simulate"), SCREEN
)


@pytest.mark.parametrize(("command", "most"), LENGTHS.items())
def test_help_fits_a_terminal_of_80_columns(command: str, most: int, tmp_path: Path) -> None:
    lines = caretway(command, "--help", home=tmp_path, COLUMNS="80").stdout.splitlines()
    assert len(lines) <= most
    assert [line for line in lines if len(line) > 80] == []


def test_help_of_serve_shows_ten_settings_and_how_to_see_all(tmp_path: Path) -> None:
    shown = caretway("serve", "--help", home=tmp_path).stdout
    flags = [one.flag for one in SETTINGS if one.flag and f"  {one.flag} " in shown]
    assert len(flags) == 10 and "--backend" in flags and "--port" in flags
    assert "--help-all" in shown and "CURSOR_API_KEY" in shown and "CARETWAY_API_KEY" in shown


def test_flags_that_help_does_not_show_still_work() -> None:
    arguments = entry.parser().parse_args(["status", "--no-agent-ghost-mode", "--agent-retries", "1"])
    assert given(arguments) == {"agent_ghost_mode": False, "agent_retries": "1"}


@pytest.mark.parametrize(
    "command", ["serve", "config", "login", "logout", "status", "models", "doctor", "mcp", "prove"]
)
def test_all_help_says_more_than_help(command: str, tmp_path: Path) -> None:
    brief = caretway(command, "--help", home=tmp_path).stdout
    full = caretway(command, "--help-all", home=tmp_path)
    assert full.returncode == 0 and full.stderr == ""
    assert len(full.stdout) > len(brief)
    assert "\nadvanced:\n" in full.stdout and "advanced:" not in brief


def test_all_help_of_serve_names_every_flag_default_and_variable(tmp_path: Path) -> None:
    words = " ".join(caretway("serve", "--help-all", home=tmp_path).stdout.split())
    for setting in SETTINGS:
        if setting.secret:
            assert f"{setting.env_names[-1]} (variable, no flag): {setting.help}" in words
        else:
            assert f"{setting.flag} " in words or f"{setting.flag}," in words
            assert f"[default: {setting.shown_default()}; env: {', '.join(setting.env_names)}]" in words


@pytest.mark.parametrize("command", ["serve", "models", "status", "config"])
def test_a_bad_setting_is_one_line_and_exit_code_2(command: str, tmp_path: Path) -> None:
    done = caretway(command, home=tmp_path, CARETWAY_BACKEND="agnt")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        'caretway: environment CARETWAY_BACKEND: backend: "agnt" is not valid; expected one of auto, sdk, cli, agent, '
        'legacy-chat, simulator; did you mean "agent"?\n'
    )


@pytest.mark.parametrize("command", ["status", "models", "launch", "setup", "doctor", "ask"])
def test_a_broken_settings_file_says_how_to_mend_it(command: str, tmp_path: Path) -> None:
    file = tmp_path / "my file.toml"
    file.write_text("port 1")
    done = caretway(command, home=tmp_path, CARETWAY_CONFIG=str(file))
    assert done.returncode == 2
    assert "this is not TOML" in done.stderr and done.stderr.endswith("fix it with: caretway config edit\n")


def test_a_wrong_value_in_a_file_that_a_flag_names(tmp_path: Path) -> None:
    file = tmp_path / "my file.toml"
    file.write_text("port = 'x'")
    done = caretway("status", "--config", str(file), home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith(f"fix it with: caretway config edit --config '{file}'\n")


def test_flags_are_not_abbreviated(tmp_path: Path) -> None:
    assert caretway("serve", "--por", "1", home=tmp_path).returncode == 2


def test_config_says_where_values_came_from(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('session = "fresh"')
    done = caretway(
        "config",
        "--json",
        "--config",
        str(file),
        "--no-agent-ghost-mode",
        home=tmp_path,
        PORT="8080",
        CURSOR_API_KEY="crsr_secret",
        CARETWAY_PROT="1",
    )
    printed = json.loads(done.stdout)
    assert printed["session"] == {"value": "fresh", "from": f"file {file}"}
    assert printed["port"] == {"value": 8080, "from": "environment PORT"}
    assert printed["agent_ghost_mode"] == {"value": False, "from": "flag --no-agent-ghost-mode"}
    assert printed["api_key"] == {"value": "set", "from": "environment CURSOR_API_KEY"}
    assert printed["access_token"] == {"value": "not set", "from": "default"}
    assert list(printed) == [setting.name for setting in SETTINGS]
    assert "crsr_secret" not in done.stdout + done.stderr
    assert done.stderr == 'caretway: CARETWAY_PROT is not a setting; did you mean "CARETWAY_PORT"?\n'


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "caretway", "config"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=60,
            env={"HOME": str(tmp_path)},
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


# ---- what they print


def test_wide_config_table_has_a_line_for_each_setting() -> None:
    lines = config_command.as_wide_table(load({"port": "1"}, {"HOME": "/h"}), PLAIN)
    assert len(lines) == len(SETTINGS) + 1
    port = next(line for line in lines if line.startswith("port "))
    assert port.split() == ["port", "1", "flag", "--port"]


SOURCES = [
    ("port", {"port": "1"}, {}, "port 1 flag"),
    ("port", {}, {"PORT": "1"}, "port 1 variable PORT"),
    ("port", {}, {"CARETWAY_PORT": "1"}, "port 1 variable"),
    ("port", {}, {}, "port 7 file"),
    ("host", {}, {}, "host 127.0.0.1 default"),
    ("cli_queue", {"cli_queue": "0"}, {}, "cli_queue 0 flag"),
]


@pytest.mark.parametrize(("name", "argv", "environ", "line"), SOURCES)
def test_config_table_says_the_source_in_a_word(
    name: str, argv: dict[str, object], environ: dict[str, str], line: str, tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("port = 7")
    lines = config_command.as_table(load(argv, {"HOME": "/h"} | environ, file), PLAIN)
    assert [" ".join(one.split()) for one in lines if one.startswith(f"{name} ")] == [line]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_config_table_fits_the_terminal_and_loses_nothing(width: int) -> None:
    aliases = {f"name-{number}": f"some-rather-long-model-id-{number}" for number in range(9)}
    settings = Settings(model_aliases=aliases, workspace=Path("/a" + "/very-long-directory" * 12))
    lines = config_command.as_table(settings, PLAIN, width, "all")
    assert max(map(len, lines)) <= width
    text = "".join(line.strip() for line in lines)
    assert [name for name in aliases.values() if name.rpartition("-")[0] not in text] == []
    assert {setting.name for setting in SETTINGS} <= {line.split(" ")[0] for line in lines}


def test_config_table_counts_the_advanced_settings_that_nobody_changed() -> None:
    advanced = [setting.name for setting in SETTINGS if setting.advanced]
    lines = config_command.as_table(Settings(cli_queue=5), PLAIN)
    assert [name for name in advanced if any(line.startswith(f"{name} ") for line in lines)] == ["cli_queue"]
    assert lines[-1] == f"{len(advanced) - 1} advanced settings have their defaults; --all shows them."


def test_config_json_is_plain() -> None:
    settings = Settings(workspaces=(Path("/a"),), model_aliases={"a": "b"}, api_key="crsr_secret")
    printed = json.loads(config_command.as_json(settings))
    assert printed["workspaces"]["value"] == ["/a"]
    assert printed["model_aliases"]["value"] == {"a": "b"}
    assert printed["api_key"]["value"] == "set"


def test_the_reference_in_docs_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["config", "--markdown"]) == 0
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == capsys.readouterr().out, "run: caretway config --markdown > docs/settings.md"


def test_flags_reach_settings_as_text() -> None:
    arguments = entry.parser().parse_args(
        ["serve", "--port", "8", "--workspaces", "/a", "--workspaces", "/b", "--strict-models", "--models", "x,y"]
    )
    assert given(arguments) == {"port": "8", "workspaces": ["/a", "/b"], "strict_models": True, "models": ["x,y"]}


MODELS = (
    ModelInfo("sim-auto", "Auto", aliases=("auto", "default")),
    ModelInfo("sim-think", "Thinker", reasoning=True, context_window=1000, parameters=(("effort", ("low", "high")),)),
)


def test_models_table() -> None:
    assert as_table(MODELS, PLAIN) == [
        "id         name     reasoning  parameters       aliases",
        "sim-auto   Auto                                 auto, default",
        "sim-think  Thinker  yes        effort=low|high",
    ]
    assert as_table((), PLAIN) == ["no models"]
    assert as_table((ModelInfo("a"),), PLAIN) == ["id", "a"]


def test_models_json() -> None:
    assert json.loads(as_json(MODELS))[1] == {
        "id": "sim-think",
        "name": "Thinker",
        "aliases": [],
        "stands_for": "",
        "reasoning": True,
        "context_window": 1000,
        "max_context_window": None,
        "images": None,
        "parameters": {"effort": ["low", "high"]},
        "variants": [],
    }


def test_status_lines() -> None:
    assert as_lines(Report("agent", "unofficial", True, "ada@example.org", "https://api2.cursor.sh"), PLAIN) == [
        "backend    agent (unofficial, private protocol)",
        "signed in  yes",
        "detail     ada@example.org",
        "url        https://api2.cursor.sh",
    ]
    assert as_lines(Report("cli", "official", False, "run cursor-agent login", None), PLAIN)[1:] == [
        "signed in  no",
        "detail     run cursor-agent login",
    ]


def test_status_of_an_api_key() -> None:
    facts = AccountFacts(credential="API key (environment CURSOR_API_KEY)")
    report = Report("agent", "unofficial", True, "over h2", None, facts)
    assert as_lines(report, PLAIN)[3:] == [
        "with       API key (environment CURSOR_API_KEY)",
        "until      no expiry known",
    ]


def test_status_when_clients_bring_their_keys() -> None:
    report = Report("agent", "unofficial", False, "every client brings its own Cursor API key", None, passthrough=True)
    assert as_lines(report, PLAIN)[1:] == [
        "signed in  not here",
        "detail     every client brings its own Cursor API key",
    ]


SIGNING_IN = [
    ("simulator", 0, "The simulator needs no sign-in.", ""),
    ("sdk", 2, "", "type: caretway login --backend sdk --api-key-stdin"),
]


@pytest.mark.parametrize(("backend", "code", "said", "complaint"), SIGNING_IN)
def test_login_starts_no_browser_for_nothing(
    backend: str, code: int, said: str, complaint: str, tmp_path: Path
) -> None:
    done = caretway("login", "--backend", backend, home=tmp_path)
    assert done.returncode == code
    assert said in done.stdout and complaint in done.stderr
    assert "loginDeepControl" not in done.stdout


def test_login_for_the_sdk_takes_over_no_sign_in_without_a_key(tmp_path: Path) -> None:
    theirs = tmp_path / "auth.json"
    theirs.write_text(json.dumps({"accessToken": "a", "refreshToken": "r"}))
    done = caretway("login", "--backend", "sdk", "--import", str(theirs), home=tmp_path)
    assert done.returncode == 2 and "without an API key" in done.stderr
    assert not (tmp_path / ".local").exists(), "nothing is kept"


def test_simulate_says_how_to_use_it() -> None:
    assert ready("127.0.0.1", 7, None, PLAIN) == [
        "listening on http://127.0.0.1:7",
        "  counters  curl http://127.0.0.1:7/_sim/stats",
        "  gateway   CURSOR_API_KEY=any caretway serve --backend agent --agent-url http://127.0.0.1:7",
    ]
    secure = ready("::1", 7, Path("/t/ca.pem"), PLAIN)
    assert secure[0] == "listening on https://[::1]:7"
    assert any("--cacert /t/ca.pem https://[::1]:7/_sim/stats" in line for line in secure)
    assert any(line.endswith("--agent-url https://[::1]:7 --agent-ca /t/ca.pem") for line in secure)
    behind = ready("127.0.0.1", 7, Path("/t/ca.pem"), PLAIN, "me:word@127.0.0.1:8")
    assert "  proxy      http://me:word@127.0.0.1:8 or socks5h://me:word@127.0.0.1:8" in behind
    assert any("--proxy http://me:word@127.0.0.1:8 https://cursor.test:7/_sim/stats" in line for line in behind)
    assert any(
        "  HTTPS_PROXY=http://me:word@127.0.0.1:8 " in line and "https://cursor.test:7 " in line for line in behind
    )


SIMULATE = [
    (["--switch", "refuses_direct=true"], "add --proxy PORT"),
    (["--proxy", "me:word@x"], "expected a whole number from 0 to 65535"),
    (["--profile", "classic", "--like", "mine.json"], "not allowed with"),
    (["--proxy", "70000"], "--proxy"),
]


@pytest.mark.parametrize(("flags", "says"), SIMULATE)
def test_simulate_says_what_is_wrong_with_its_flags(flags: list[str], says: str, tmp_path: Path) -> None:
    done = caretway("simulate", "--port", "0", *flags, home=tmp_path)
    assert done.returncode == 2 and says in done.stderr
