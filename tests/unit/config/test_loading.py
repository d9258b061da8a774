"""Settings from several sources: which one wins, what is remembered about it, what is said about mistakes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from caretway.config import (
    ConfigError,
    Settings,
    data_directory,
    load,
    load_from_process,
    unknown_variables,
    user_config_file,
    wants_colour,
)

HOME = {"HOME": "/home/ada"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "caretway.toml"


@dataclass(frozen=True)
class Case:
    name: str
    setting: str
    value: object
    origin: str
    """FILE stands for the path of the file."""
    toml: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    argv: Mapping[str, object] = field(default_factory=dict)


PRECEDENCE = [
    Case("nothing said", "port", 32124, "default"),
    Case("file", "port", 1, "file FILE", "port = 1"),
    Case("file does not say", "port", 32124, "default", 'host = "::1"'),
    Case("variable over file", "port", 2, "environment CARETWAY_PORT", "port = 1", {"CARETWAY_PORT": "2"}),
    Case("known name over file", "port", 2, "environment PORT", "port = 1", {"PORT": "2"}),
    Case(
        "our name over the known one", "port", 2, "environment CARETWAY_PORT", "", {"PORT": "3", "CARETWAY_PORT": "2"}
    ),
    Case("flag over all", "port", 4, "flag --port", "port = 1", {"PORT": "3", "CARETWAY_PORT": "2"}, {"port": "4"}),
    Case("a flag left out", "port", 2, "environment PORT", "", {"PORT": "2"}, {"port": None}),
    Case("an empty variable says nothing", "port", 1, "file FILE", "port = 1", {"PORT": " "}),
    Case("a beaten value is not read", "port", 4, "flag --port", "", {"PORT": "tcp://10.0.0.1:80"}, {"port": "4"}),
    Case("switch on", "strict_models", True, "flag --strict-models", "", {}, {"strict_models": True}),
    Case("switch off", "agent_ghost_mode", False, "flag --no-agent-ghost-mode", "", {}, {"agent_ghost_mode": False}),
    Case("dashes in the flag", "agent_url", "http://x", "flag --agent-url", "", {}, {"agent_url": "http://x/"}),
    Case("secret", "api_key", "crsr_1", "environment CURSOR_API_KEY", "", {"CURSOR_API_KEY": "crsr_1\n"}),
    Case("secret from file", "access_token", "t", "file FILE", 'access_token = "t"'),
    Case("advanced, in its table", "cli_queue", 0, "file FILE", "port = 1\n[advanced]\ncli_queue = 0"),
    Case("advanced, where it once stood", "cli_queue", 0, "file FILE", "cli_queue = 0"),
    Case("advanced, variable", "cli_queue", 0, "environment CARETWAY_CLI_QUEUE", "", {"CARETWAY_CLI_QUEUE": "0"}),
    Case("advanced, flag", "cli_queue", 0, "flag --cli-queue", "[advanced]\ncli_queue = 1", {}, {"cli_queue": "0"}),
    Case("data directory", "data_dir", Path("/d"), "environment CARETWAY_DATA_DIR", "", {"CARETWAY_DATA_DIR": "/d"}),
]


@pytest.mark.seed("M03")
@pytest.mark.parametrize("case", PRECEDENCE, ids=lambda case: case.name)
def test_precedence_and_origin(case: Case, file: Path) -> None:
    file.write_text(case.toml)
    settings = load(case.argv, HOME | dict(case.environ), file)
    assert getattr(settings, case.setting) == case.value
    assert settings.origin(case.setting) == case.origin.replace("FILE", str(file))


def test_config_file_is_chosen_by_flag_then_variable_then_default(tmp_path: Path) -> None:
    by = {}
    for number, name in enumerate(("flag", "variable", "usual"), start=1):
        by[name] = tmp_path / f"{name}.toml"
        by[name].write_text(f"port = {number}")
    variable = {"CARETWAY_CONFIG": str(by["variable"])}
    chosen = [
        load({"config": str(by["flag"])}, variable, by["usual"]),
        load({}, variable, by["usual"]),
        load({}, {}, by["usual"]),
        load({}, {}, None),
    ]
    assert [settings.port for settings in chosen] == [1, 2, 3, 32124]
    assert [settings.origin("config") for settings in chosen] == [
        "flag --config",
        "environment CARETWAY_CONFIG",
        "default",
        "default",
    ]
    assert [settings.config for settings in chosen] == [by["flag"], by["variable"], by["usual"], None]


ERRORS = [
    ("unknown key", "prot = 1", {}, {}, 'file FILE: there is no setting "prot"; did you mean "port"?'),
    ("dash in key", 'agent-url = "http://x"', {}, {}, 'no setting "agent-url"; did you mean "agent_url"?'),
    (
        "removed",
        "update_check = true",
        {},
        {},
        'file FILE: there is no setting "update_check": the gateway no longer looks for newer versions; delete it',
    ),
    ("removed, fixed", "max_headers = 9", {}, {}, 'there is no setting "max_headers": it is fixed now; delete it'),
    (
        "removed, a quirk",
        "[advanced]\nsystem_delivery = 'message'",
        {},
        {},
        'there is no setting "system_delivery": it is `system` in agent_quirks now',
    ),
    ("nothing near", "xyzzy = 1", {}, {}, 'file FILE: there is no setting "xyzzy"'),
    ("a table that is none", "[server]\nport = 1", {}, {}, 'there is no setting "server"'),
    ("value in file", "port = 'x'", {}, {}, 'file FILE: port: "x" is not valid; expected a whole number'),
    ("value in variable", "", {"PORT": "x"}, {}, 'environment PORT: port: "x" is not valid'),
    ("unknown flag", "", {}, {"prot": "1"}, 'there is no setting "prot"; did you mean "port"?'),
    ("unknown advanced key", "[advanced]\ncli_queu = 1", {}, {}, 'no setting "cli_queu"; did you mean "cli_queue"?'),
    ("not advanced", "[advanced]\nport = 1", {}, {}, "port is not an advanced setting; move it above [advanced]"),
    ("no table", "advanced = 1", {}, {}, "advanced is a table of settings: write [advanced]"),
    (
        "twice",
        "cli_queue = 1\n[advanced]\ncli_queue = 2",
        {},
        {},
        "cli_queue is set twice, inside and outside of [advanced]",
    ),
    (
        "advanced value",
        "[advanced]\ncli_queue = 'x'",
        {},
        {},
        'file FILE: cli_queue: "x" is not valid; expected a whole number',
    ),
    ("not TOML", "port 1", {}, {}, "file FILE: this is not TOML: "),
    ("nested", "port = " + "[" * 5000, {}, {}, "file FILE: this is not TOML: "),
    ("file names a file", 'config = "x"', {}, {}, "use --config or CARETWAY_CONFIG"),
    ("no such file", "", {"CARETWAY_CONFIG": "/nowhere/x.toml"}, {}, "environment CARETWAY_CONFIG: cannot read "),
    ("a directory", "", {}, {"config": "/"}, "flag --config: cannot read /: "),
]


@pytest.mark.parametrize(
    ("toml", "environ", "argv", "message"), [row[1:] for row in ERRORS], ids=[r[0] for r in ERRORS]
)
def test_errors_name_the_place(
    toml: str, environ: dict[str, str], argv: dict[str, object], message: str, file: Path
) -> None:
    file.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load(argv, HOME | environ, file)
    assert message.replace("FILE", str(file)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_that_is_not_utf8_is_described(file: Path) -> None:
    file.write_bytes(b'host = "\xff"')
    with pytest.raises(ConfigError, match="this is not TOML"):
        load({}, HOME, file)


def test_long_values_are_cut_in_errors() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"port": "9" * 5000}, HOME)
    assert len(str(caught.value)) < 250


def test_secrets_stay_out_of_errors_and_reprs(file: Path) -> None:
    file.write_text("api_key = 12345678")
    with pytest.raises(ConfigError) as caught:
        load({}, HOME, file)
    assert "12345678" not in str(caught.value)
    assert caught.value.__cause__ is None
    settings = Settings(api_key="crsr_secret", access_token="hush-hush")
    assert "crsr_secret" not in repr(settings) and "hush-hush" not in repr(settings)


def test_relative_paths_start_at_the_file_and_tilde_at_home(file: Path) -> None:
    file.write_text('workspace = "src"\nworkspaces = ["~/a", "/b", "../c"]\ndata_dir = "~"')
    settings = load({"agent_ca": "ca.pem"}, HOME, file)
    assert settings.workspace == file.parent / "src"
    assert settings.workspaces == (Path("/home/ada/a"), Path("/b"), file.parent / "../c")
    assert settings.data_dir == Path("/home/ada")
    assert settings.agent_ca == Path("ca.pem")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process with an empty environment and this home directory."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_users_file_is_found(process: Path) -> None:
    assert load_from_process({}).config is None
    usual = user_config_file(os.environ)
    usual.parent.mkdir(parents=True)
    usual.write_text("port = 7")
    settings = load_from_process({})
    assert (settings.port, settings.config, settings.origin("port")) == (7, usual, f"file {usual}")
    assert settings.data_dir == data_directory(os.environ)


@pytest.mark.parametrize(
    ("name", "what"), [("workspace", "directory"), ("agent_ca", "file"), ("workspaces", "directory")]
)
def test_paths_must_exist_when_the_process_starts(process: Path, name: str, what: str) -> None:
    missing = process / "missing"
    given: object = [str(missing)] if name == "workspaces" else str(missing)
    with pytest.raises(ConfigError) as caught:
        load_from_process({name: given})
    assert str(caught.value) == f"flag --{name.replace('_', '-')}: {name}: {missing} does not exist or is not a {what}"
    missing.mkdir() if what == "directory" else missing.touch()
    assert load_from_process({name: given}).origin(name).startswith("flag")


def test_variables_that_look_like_a_mistake() -> None:
    seen = {
        "CARETWAY_PROT": "1",
        "CARETWAY_PORT": "1",
        "PATH": "/bin",
        "CARETWAY_QWXZ": "",
        "CARETWAY_UPDATE_CHECK": "1",
    }
    assert unknown_variables(seen) == (
        'CARETWAY_PROT is not a setting; did you mean "CARETWAY_PORT"?',
        "CARETWAY_QWXZ is not a setting",
        "CARETWAY_UPDATE_CHECK is not a setting: the gateway no longer looks for newer versions; delete it",
    )


@pytest.mark.parametrize(
    ("tty", "environ", "colour"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True)],
)
def test_colour_only_where_wanted(tty: bool, environ: dict[str, str], colour: bool) -> None:
    assert wants_colour(tty, environ) is colour
