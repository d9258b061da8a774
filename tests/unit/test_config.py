"""Settings from tables: who wins, what is remembered about it, how values are written, what is said about mistakes."""

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from caretway.config import (
    GROUPS,
    SETTINGS,
    ConfigError,
    Setting,
    Settings,
    data_directory,
    load,
    load_from_process,
    unknown_variables,
    user_config_file,
    wants_colour,
)
from caretway.config.kinds import show_duration, show_size

HOME = {"HOME": "/home/ada"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "caretway.toml"


# ---- the table itself


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
class TestEverySetting:
    def test_has_a_sentence_of_help(self, setting: Setting) -> None:
        assert re.fullmatch(r"\S.{10,}\.", setting.help)

    def test_belongs_to_a_group(self, setting: Setting) -> None:
        assert setting.group in GROUPS

    def test_names_follow_from_its_name(self, setting: Setting) -> None:
        if setting.prefixed_env:
            assert setting.env_names[0] == "CARETWAY_" + setting.name.upper()
        assert setting.flag == (None if setting.secret else "--" + setting.name.replace("_", "-"))

    def test_default_fits_and_reading_it_changes_nothing(self, setting: Setting) -> None:
        if setting.default is not None:
            assert setting.read(setting.default, "default") == setting.default

    def test_what_is_shown_can_be_read_back(self, setting: Setting) -> None:
        shown = setting.show(setting.default)
        if shown and not setting.secret:
            assert setting.read(shown, "test") == setting.default

    def test_describes_its_default(self, setting: Setting) -> None:
        assert setting.shown_default()


def test_every_field_is_a_setting() -> None:
    assert [item.name for item in dataclasses.fields(Settings)] == [*(s.name for s in SETTINGS), "origins"]


def test_advanced_settings_are_a_third_of_all_and_not_those_people_start_with() -> None:
    advanced = {setting.name for setting in SETTINGS if setting.advanced}
    assert 30 <= len(advanced) <= len(SETTINGS) / 3
    assert not advanced & {"host", "port", "backend", "api_key", "gateway_key", "config", "data_dir", "workspace"}
    assert "advanced" not in {setting.name for setting in SETTINGS}, "the name of the table is not a setting"


def test_no_two_settings_share_a_variable() -> None:
    names = [name for setting in SETTINGS for name in setting.env_names]
    assert len(names) == len(set(names))


def test_the_names_people_already_use() -> None:
    legacy = {name: setting.name for setting in SETTINGS for name in setting.extra_env}
    assert legacy == {
        "HOST": "host",
        "PORT": "port",
        "TOOL_LOOP_MAX_REPEAT": "tool_loop_max_repeat",
        "KILO_TOOL_STRICT": "tool_strict",
        "CURSOR_ACP_AUTH_CHECK_TIMEOUT": "auth_check_timeout",
        "MODELS": "models",
        "CURSOR_API_KEY": "api_key",
        "CARETWAY_API_KEY": "gateway_key",
        "CURSOR_AGENT_BIN": "agent_bin",
    }


# ---- precedence and provenance


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
    Case("advanced, in its table", "gather", 0.0, "file FILE", "port = 1\n[advanced]\ngather = 0"),
    Case("advanced, where it once stood", "gather", 0.0, "file FILE", "gather = 0"),
    Case("advanced, variable", "gather", 0.0, "environment CARETWAY_GATHER", "", {"CARETWAY_GATHER": "0"}),
    Case("advanced, flag", "gather", 0.0, "flag --gather", "[advanced]\ngather = 1", {}, {"gather": "0"}),
    Case("data directory", "data_dir", Path("/d"), "environment CARETWAY_DATA_DIR", "", {"CARETWAY_DATA_DIR": "/d"}),
]


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


# ---- how values are written

VALUES = [
    ("parked_timeout", "90", 90.0),
    ("parked_timeout", "90s", 90.0),
    ("parked_timeout", "15m", 900.0),
    ("parked_timeout", "2 h", 7200.0),
    ("parked_timeout", "7d", 604800.0),
    ("parked_timeout", "1.5m", 90.0),
    ("parked_timeout", 90, 90.0),
    ("sibling_quiet", "150ms", 0.15),
    ("sibling_quiet", 0, 0.0),
    ("sibling_quiet", ".5", 0.5),
    ("auth_check_timeout", "5000", 5000),
    ("auth_check_timeout", "2s", 2000),
    ("auth_check_timeout", 250, 250),
    ("max_body_bytes", "64MiB", 64 * 2**20),
    ("max_body_bytes", "200kB", 200_000),
    ("max_body_bytes", "1.5KiB", 1536),
    ("max_body_bytes", 4096, 4096),
    ("models", "a, b,,a", ("a", "b")),
    ("models", ["a,b", "c"], ("a", "b", "c")),
    ("model_aliases", "a=b, c=d", {"a": "b", "c": "d"}),
    ("model_aliases", ["a=b", "c=d=e"], {"a": "b", "c": "d=e"}),
    ("model_aliases", {"gpt-4": "x"}, {"gpt-4": "x"}),
    ("strict_models", "yes", True),
    ("strict_models", "Off", False),
    ("backend", "SDK", "sdk"),
    ("agent_url", "http://127.0.0.1:9/", "http://127.0.0.1:9"),
    ("agent_url", "https://[::1]:9/base", "https://[::1]:9/base"),
    ("workspaces", os.pathsep.join(("/a", "/b,c")), (Path("/a"), Path("/b,c"))),
    ("workspaces", ["/a", "/b"], (Path("/a"), Path("/b"))),
    ("port", "0", 0),
]


@pytest.mark.parametrize(("name", "given", "value"), VALUES)
def test_values(name: str, given: object, value: object) -> None:
    assert getattr(load({name: given}, HOME), name) == value


BAD_VALUES = [
    ("port", "abc", "a whole number from 0 to 65535"),
    ("port", 65536, "from 0 to 65535"),
    ("port", "-1", "from 0 to 65535"),
    ("port", True, "a whole number"),
    ("port", 1.5, "a whole number"),
    ("max_parked", "0", "of at least 1"),
    ("parked_timeout", "0", "a duration of more than 0"),
    ("parked_timeout", "-3", "a duration"),
    ("parked_timeout", "3 weeks", "a duration"),
    ("parked_timeout", float("nan"), "a duration"),
    ("parked_timeout", float("inf"), "a duration"),
    ("parked_timeout", 10**400, "a duration"),
    ("parked_timeout", True, "a duration"),
    ("parked_timeout", "٣", "a duration"),
    ("auth_check_timeout", "0", "milliseconds"),
    ("max_body_bytes", "1.5B", "a size of at least 1KiB"),
    ("max_body_bytes", "64mib", "a size"),
    ("max_body_bytes", "12", "a size"),
    ("strict_models", "maybe", "true or false"),
    ("strict_models", 1, "true or false"),
    ("backend", "agnt", 'one of auto, sdk, cli, agent, legacy-chat, simulator; did you mean "agent"?'),
    ("session", 3, "one of auto, fresh, required"),
    ("agent_url", "api2.cursor.sh", "an http:// or https:// address"),
    ("agent_url", "ftp://x", "an http:// or https:// address"),
    ("agent_url", "http://x:port", "an http:// or https:// address"),
    ("agent_url", "http://[::1", "an http:// or https:// address"),
    ("models", 3, "a list"),
    ("models", [3], "a list"),
    ("model_aliases", "a", "a table"),
    ("model_aliases", {"a": 3}, "a table"),
    ("host", " ", "text that is not empty"),
    ("workspace", 3, "a directory"),
]


@pytest.mark.parametrize(("name", "given", "expected"), BAD_VALUES)
def test_bad_values_are_described(name: str, given: object, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({name: given}, HOME)
    assert caught.value.key == name
    assert str(caught.value).startswith(f"flag --{name.replace('_', '-')}: {name}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


ERRORS = [
    ("unknown key", "prot = 1", {}, {}, 'file FILE: there is no setting "prot"; did you mean "port"?'),
    ("dash in key", 'agent-url = "http://x"', {}, {}, 'no setting "agent-url"; did you mean "agent_url"?'),
    ("nothing near", "xyzzy = 1", {}, {}, 'file FILE: there is no setting "xyzzy"'),
    ("a table that is none", "[server]\nport = 1", {}, {}, 'there is no setting "server"'),
    ("value in file", "port = 'x'", {}, {}, 'file FILE: port: "x" is not valid; expected a whole number'),
    ("value in variable", "", {"PORT": "x"}, {}, 'environment PORT: port: "x" is not valid'),
    ("unknown flag", "", {}, {"prot": "1"}, 'there is no setting "prot"; did you mean "port"?'),
    ("unknown advanced key", "[advanced]\ngathr = 1", {}, {}, 'no setting "gathr"; did you mean "gather"?'),
    ("not advanced", "[advanced]\nport = 1", {}, {}, "port is not an advanced setting; move it above [advanced]"),
    ("no table", "advanced = 1", {}, {}, "advanced is a table of settings: write [advanced]"),
    ("twice", "gather = 1\n[advanced]\ngather = 2", {}, {}, "gather is set twice, inside and outside of [advanced]"),
    ("advanced value", "[advanced]\ngather = 'x'", {}, {}, 'file FILE: gather: "x" is not valid; expected a duration'),
    ("not TOML", "port 1", {}, {}, "file FILE: this is not TOML: "),
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


# ---- paths


def test_relative_paths_start_at_the_file_and_tilde_at_home(file: Path) -> None:
    file.write_text('workspace = "src"\nworkspaces = ["~/a", "/b", "../c"]\ndata_dir = "~"')
    settings = load({"agent_ca": "ca.pem"}, HOME, file)
    assert settings.workspace == file.parent / "src"
    assert settings.workspaces == (Path("/home/ada/a"), Path("/b"), file.parent / "../c")
    assert settings.data_dir == Path("/home/ada")
    assert settings.agent_ca == Path("ca.pem")


PLACES = [
    ("linux", {}, "/home/ada/.config", "/home/ada/.local/share"),
    ("linux", {"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"}, "/c", "/d"),
    ("linux", {"XDG_CONFIG_HOME": "c", "XDG_DATA_HOME": ""}, "/home/ada/.config", "/home/ada/.local/share"),
    ("freebsd14", {}, "/home/ada/.config", "/home/ada/.local/share"),
    ("darwin", {}, "/home/ada/Library/Application Support", "/home/ada/Library/Application Support"),
    ("win32", {"APPDATA": "/roaming", "LOCALAPPDATA": "/local"}, "/roaming", "/local"),
    ("win32", {}, "/home/ada/AppData/Roaming", "/home/ada/AppData/Local"),
]


@pytest.mark.parametrize(("platform", "environ", "config", "data"), PLACES)
def test_places(platform: str, environ: dict[str, str], config: str, data: str) -> None:
    assert user_config_file(HOME | environ, platform) == Path(config, "caretway", "config.toml")
    assert data_directory(HOME | environ, platform) == Path(data, "caretway")


# ---- the process


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
    seen = {"CARETWAY_PROT": "1", "CARETWAY_PORT": "1", "PATH": "/bin", "CARETWAY_QWXZ": ""}
    assert unknown_variables(seen) == (
        'CARETWAY_PROT is not a setting; did you mean "CARETWAY_PORT"?',
        "CARETWAY_QWXZ is not a setting",
    )


@pytest.mark.parametrize(
    ("tty", "environ", "colour"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True)],
)
def test_colour_only_where_wanted(tty: bool, environ: dict[str, str], colour: bool) -> None:
    assert wants_colour(tty, environ) is colour


# ---- made by hand


def test_settings_made_by_hand_are_checked() -> None:
    settings = Settings(port=0, parked_timeout=5)
    assert [settings.origin(name) for name in ("port", "parked_timeout", "host", "data_dir", "model_aliases")] == [
        "code",
        "code",
        "default",
        "default",
        "default",
    ]
    with pytest.raises(ConfigError, match="code: port: 70000 is not valid"):
        Settings(port=70000)
    with pytest.raises(ConfigError, match='there is no setting "prot"'):
        settings.origin("prot")


def test_settings_cannot_be_changed() -> None:
    settings = Settings(model_aliases={"a": "b"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]  # the point of the test
    with pytest.raises(TypeError):
        settings.model_aliases["c"] = "d"  # type: ignore[index]  # the point of the test


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.15, "0.15s"), (0, "0s"), (90, "90s"), (60, "1m"), (5400, "90m"), (604800, "7d")]
)
def test_durations_are_shown_short(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "1B"), (1000, "1kB"), (1024, "1KiB"), (2**20, "1MiB"), (200_000, "200kB"), (1025, "1025B")]
)
def test_sizes_are_shown_short(count: int, shown: str) -> None:
    assert show_size(count) == shown
