"""The table of clients: its rows lead to what exists, the docs show them, and what is handed over is right."""

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from caretway.cli.clients.edits import KINDS, applied
from caretway.cli.clients.table import ALSO, BY_NAME, CLIENTS, ClientProgram, launch_codex
from caretway.cli.clients.values import FILES, KEY_VARIABLE, OfferedModel, Surroundings, Target, with_automatic_window

DOCS = Path(__file__).parents[4] / "docs" / "clients"
RIG = Path(__file__).parents[3] / "clients" / "rig"
MODELS = (
    OfferedModel("default", "Auto"),
    OfferedModel("claude-opus-5", "Opus 5", 200_000, images=True, reasoning=True),
    OfferedModel("gpt-5.5", 'with "quotes" and: colons', 272_000),
)
SECRET = "cw-secret-of-this-gateway"
OPEN = Target("http://127.0.0.1:4000", "local", MODELS, "claude-opus-5")
KEYED = Target("http://127.0.0.1:4000", SECRET, MODELS, "claude-opus-5", keyed=True)
HOME = Path("/home/ada")
EMPTY = Surroundings(HOME, {}, lambda _path: False)

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
each_setup = pytest.mark.parametrize("client", [c for c in CLIENTS if c.setup], ids=lambda client: client.name)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(RIG)
    clients = loaded("rig_clients", RIG / "clients.py")
    monkeypatch.setitem(sys.modules, "clients", clients)  # tests/clients is called so too, once it was collected
    return clients


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_docs_show_the_table(rig: ModuleType) -> None:
    page = (DOCS / "README.md").read_text(encoding="utf-8")
    script = loaded("scripts_clients", DOCS.parents[1] / "scripts" / "clients.py")
    assert page == script.with_tables(page), "run: ./scripts/clients --table"


def test_the_pins_are_the_tested_releases(rig: ModuleType) -> None:
    """tests/clients/tested.md is written by `scripts/clients --newest`: raise the pins to it."""
    text = (RIG.parent / "tested.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (\S+) \| `(.+?)` \|", text, re.MULTILINE)
    assert rows and "FAILED" not in text
    pinned = [
        (one.title, re.split("==|@", [*one.pip, *one.npm][0])[-1], model) for one in rig.CLIENTS for model in one.models
    ]
    assert rows == pinned


@each_client
def test_a_page_says_how_it_is_launched(client: ClientProgram) -> None:
    page = (DOCS / client.page).read_text(encoding="utf-8")
    assert client.starts_with in page
    assert client.install in page
    if client.setup and client.page != "README.md":
        assert f"caretway setup {client.name}" in page


def test_names() -> None:
    assert len(BY_NAME) == len(CLIENTS)
    assert set(ALSO.values()) <= set(BY_NAME) and not set(ALSO) & set(BY_NAME)


@each_client
def test_a_launch_leads_to_the_gateway_and_keeps_the_key_off_the_command_line(client: ClientProgram) -> None:
    plan = client.launch(KEYED)
    handed = [*plan.arguments, *plan.environment.values(), *plan.files.values()]
    assert any("http://127.0.0.1:4000" in text for text in handed)
    assert any("claude-opus-5" in text for text in handed)
    assert any(SECRET in text for text in handed)
    assert not any(SECRET in word for word in plan.arguments)
    assert not {name for name in plan.environment if name in plan.without}
    assert bool(plan.files) == any(FILES in text for text in [*plan.arguments, *plan.environment.values()])


WITH_WINDOWS = ("opencode", "kilo", "claude", "codex", "aider", "goose", "continue", "pi", "copilot")
"""Clients that can be told a model's window."""


@pytest.mark.parametrize("name", WITH_WINDOWS)
def test_windows_are_the_account_s(name: str) -> None:
    plan = BY_NAME[name].launch(OPEN)
    assert "200000" in "".join([*plan.arguments, *plan.environment.values(), *plan.files.values()])


WINDOWS = [
    ({"default": None, "a": 300_000, "b": 200_000, "c": None}, 200_000),
    ({"default": 1_000_000, "a": 200_000}, 1_000_000),
    ({"default": None, "a": None}, None),
    ({"default": None}, None),
]


@pytest.mark.parametrize(("windows", "expected"), WINDOWS)
def test_the_automatic_choice_has_the_smallest_window_of_the_list(
    windows: dict[str, int | None], expected: int | None
) -> None:
    """It may take any of them. Claude Code warns where it is not told one."""
    models = with_automatic_window(OfferedModel(name, window=window) for name, window in windows.items())
    target = Target("http://127.0.0.1:4000", "local", models, "default")
    assert target.window == expected
    assert [model.window for model in models if model.id != "default"] == [*windows.values()][1:]
    printed = BY_NAME["claude"].launch(target).environment.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW")
    assert printed == (str(expected) if expected else None)


@each_client
def test_a_model_that_is_not_listed_can_be_chosen(client: ClientProgram) -> None:
    plan = client.launch(Target("http://127.0.0.1:4000", "local", MODELS, "new-model"))
    assert "new-model" in "".join([*plan.arguments, *plan.environment.values(), *plan.files.values()])


def test_claude_code_sends_all_tools_unless_its_user_wants_the_search() -> None:
    """It cannot call a tool that it has only searched for without a second run."""
    plan = BY_NAME["claude"].launch(OPEN)
    assert plan.defaults == {"ENABLE_TOOL_SEARCH": "false"}
    assert "ENABLE_TOOL_SEARCH" not in "".join([*plan.environment, *plan.files.values()])  # these win over the user's
    assert BY_NAME["claude"].setup is not None
    (written,) = BY_NAME["claude"].setup(OPEN, EMPTY)
    assert json.loads(applied(written, None))["env"]["ENABLE_TOOL_SEARCH"] == "false"


def test_claude_code_lists_the_gateway_s_models() -> None:
    plan = BY_NAME["claude"].launch(OPEN)
    assert plan.environment["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] == "1"
    assert json.loads(plan.files["settings.json"])["env"]["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] == "1"


def test_pi_reads_the_key_by_a_command() -> None:
    """Up to 0.74 a variable is named without `$`, later with it; a command is one in all."""
    assert BY_NAME["pi"].setup is not None
    (written,) = BY_NAME["pi"].setup(KEYED, EMPTY)
    provider = json.loads(applied(written, None))["providers"]["caretway"]
    assert provider["apiKey"] == f'!printf %s "${KEY_VARIABLE}"'
    (extension,) = BY_NAME["pi"].launch(KEYED).files.values()
    assert json.dumps('!printf %s "$PI_CARETWAY_KEY"') in extension


def test_cline_leaves_no_daemon_behind() -> None:
    """Its hub would outlive it, with the path of a file of ours that is gone, and serve the user's next `cline`."""
    assert BY_NAME["cline"].launch(OPEN).environment["CLINE_SESSION_BACKEND_MODE"] == "local"


def test_codex_reads_its_flags_as_toml() -> None:
    words = [word for word in launch_codex(OPEN).arguments if word != "-c"]
    read = tomllib.loads("\n".join(words))
    assert read["model_context_window"] == 200_000
    assert read["model_providers"]["caretway"]["supports_websockets"] is True


@each_setup
@pytest.mark.parametrize("target", [OPEN, KEYED], ids=["open", "keyed"])
def test_a_setup_writes_files_of_the_user_without_the_key(client: ClientProgram, target: Target) -> None:
    assert client.setup is not None
    for plan in client.setup(target, EMPTY):
        assert plan.path.is_relative_to(HOME)
        assert plan.kind in {*KINDS, "whole", "yaml-list"}
        text = applied(plan, None)
        assert SECRET not in text
        if plan.path.suffix == ".json":
            json.loads(text)
        if plan.path.suffix == ".toml":
            tomllib.loads(text)


@each_setup
def test_a_keyed_gateway_s_key_is_named(client: ClientProgram) -> None:
    assert client.setup is not None
    written = "".join(applied(plan, None) for plan in client.setup(KEYED, EMPTY))
    assert KEY_VARIABLE in written or client.key_from != BY_NAME["opencode"].key_from


PLACES = [
    ("opencode", {}, [], [".config/opencode/opencode.json"]),
    ("opencode", {}, [".config/opencode/opencode.jsonc"], [".config/opencode/opencode.jsonc"]),
    ("opencode", {"XDG_CONFIG_HOME": "/home/ada/x"}, [], ["x/opencode/opencode.json"]),
    ("opencode", {"XDG_CONFIG_HOME": "relative"}, [], [".config/opencode/opencode.json"]),
    ("codex", {"CODEX_HOME": "/home/ada/c"}, [], ["c/config.toml", "c/caretway.config.toml"]),
    ("claude", {"CLAUDE_CONFIG_DIR": "/home/ada/d"}, [], ["d/caretway.json"]),
    ("pi", {"PI_CODING_AGENT_DIR": "/home/ada/p"}, [], ["p/models.json"]),
    ("continue", {"CONTINUE_GLOBAL_DIR": "/home/ada/g"}, [], ["g/agents/caretway.yaml"]),
    ("llm", {"LLM_USER_PATH": "/home/ada/l"}, [], ["l/extra-openai-models.yaml"]),
]


@pytest.mark.parametrize(("name", "environment", "there", "written"), PLACES)
def test_places(name: str, environment: dict[str, str], there: list[str], written: list[str]) -> None:
    existing = {HOME / path for path in there}
    setup = BY_NAME[name].setup
    assert setup is not None
    plans = setup(OPEN, Surroundings(HOME, environment, existing.__contains__))
    assert [plan.path for plan in plans] == [HOME / path for path in written]
