"""Setting up and undoing: byte for byte where nobody touched the file, otherwise without exactly our entries."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from caretway.cli.clients.edits import applied, undone
from caretway.cli.clients.values import Entry, FilePlan

JSON = FilePlan(Path("f"), "json", (Entry(("provider", "caretway"), {"name": "Caretway", "models": {"a": {}}}),))
TOML = FilePlan(Path("f"), "toml", (Entry(("model_providers", "caretway"), {"name": "Caretway"}),))
YAML = FilePlan(
    Path("f"), "yaml-list", text='- model_id: "caretway/a"\n  model_name: a\n', mark='- model_id: "caretway/'
)
WHOLE = FilePlan(Path("f"), "whole", text="ours\n")

CONFIGS = Path(__file__).parents[3] / "data" / "client_configs"
FILES = sorted(path for path in CONFIGS.iterdir() if path.name != "README.md")
PLANS = {".json": JSON, ".jsonc": JSON, ".toml": TOML, ".yaml": YAML}


def text_of(path: Path) -> str:
    return path.read_bytes().decode()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_configurations_survive(path: Path) -> None:
    plan, before = PLANS[path.suffix], text_of(path)
    after = applied(plan, before)
    assert after != before
    there = iter(after)
    assert all(mark in there for mark in before if mark not in ", \t\r\n")  # all that was there is there, in its order
    assert undone(plan, before, after, after) == before
    assert applied(plan, after) == after


def rewritten(text: str) -> str:
    """As programs do it that read the values and write them all: comments and order are gone."""
    return json.dumps(json.loads(text), indent=4, sort_keys=True)


BETWEEN: list[tuple[FilePlan, str | None, Callable[[str], str], str | None]] = [
    (JSON, '{\n  "model": "x"\n}\n', rewritten, '{\n    "model": "x"\n}'),
    (JSON, '{\n  "model": "x"\n}\n', lambda text: text.replace('"x"', '"y"'), '{\n  "model": "y"\n}\n'),
    (JSON, None, lambda text: text.replace("{\n", '{\n  "$schema": "s",\n', 1), '{\n  "$schema": "s"\n}\n'),
    (JSON, None, rewritten, None),
    (JSON, "", rewritten, ""),
    (JSON, None, lambda text: text.replace("{\n", "{\n  // mine\n", 1), "{\n  // mine\n}\n"),
    (
        JSON,
        '{"provider": {"caretway": {"by": "hand"}, "own": {}}}',
        lambda text: text.replace('"own": {}', '"own": {"a": 1}'),
        '{"provider": {"caretway": {"by": "hand"}, "own": {"a": 1}}}',
    ),
    (
        TOML,
        'model = "x"\n',
        lambda text: text + '\n[projects."/w"]\ntrust = 1\n',
        'model = "x"\n\n[projects."/w"]\ntrust = 1\n',
    ),
    (TOML, None, lambda text: text + '\n[projects."/w"]\ntrust = 1\n', '[projects."/w"]\ntrust = 1\n'),
    (TOML, None, lambda text: text + "other = 1\n", None),
    (YAML, "- model_id: own\n", lambda text: text + "- model_id: new\n", "- model_id: own\n- model_id: new\n"),
    (WHOLE, None, lambda text: text + "edited\n", None),
    (WHOLE, "theirs\n", lambda text: text + "edited\n", "theirs\n"),
]


@pytest.mark.parametrize(("plan", "before", "change", "left"), BETWEEN)
def test_touched_in_between(plan: FilePlan, before: str | None, change: Callable[[str], str], left: str | None) -> None:
    after = applied(plan, before)
    current = change(after)
    assert current != after
    assert undone(plan, before, after, current) == left


def test_what_is_gone_or_was_never_written_stays_so() -> None:
    after = applied(JSON, "{}")
    assert undone(JSON, "{}", after, None) is None
    assert undone(JSON, "{}", after, "{}") == "{}"


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (JSON, "{'single': 1}"),
        (JSON, "[]"),
        (JSON, '{"provider": null}'),
        (TOML, "model_providers = { own = { name = 'x' } }\n"),
        (TOML, "model_providers = 1\n"),
        (TOML, "not toml"),
        (YAML, "models:\n  - x\n"),
    ],
)
def test_what_cannot_be_changed_safely_is_refused(plan: FilePlan, text: str) -> None:
    with pytest.raises(ValueError):
        applied(plan, text)


def test_a_table_in_one_line_is_not_called_broken() -> None:
    with pytest.raises(ValueError, match="cannot be added to safely"):
        applied(TOML, "model_providers = { own = { name = 'x' } }\n")


def test_an_entry_that_was_moved_where_it_cannot_be_cut_is_refused() -> None:
    after = applied(TOML, "")
    moved = "model_providers = { caretway = { name = 'x' }, own = { name = 'y' } }\n"
    with pytest.raises(ValueError, match="taken out"):
        undone(TOML, "", after, moved)
