"""The table of cases fits what it points to: rows of the wire's page, questions, facts, settings, 80 columns."""

import re
from pathlib import Path
from typing import Final

import caretway
from caretway.cli.prove import row
from caretway.cli.terminal import Style
from caretway.config import SETTINGS
from caretway.prove.cases import BY_NAME, CASES, CHEAPEST
from caretway.prove.facts import CaseVerdict
from caretway.prove.questions import QUESTIONS

PAGE: Final = (Path(caretway.__file__).parent / "cursor" / "wire" / "README.md").read_text(encoding="utf-8")
ROWS: Final = [line.removeprefix("| ") for line in PAGE.splitlines() if line.startswith("| ")]
FLAGS: Final = {setting.flag for setting in SETTINGS} | {"--model", "--second-model", "--other-version", "--live"}


def test_every_case_is_named_after_a_row() -> None:
    for case in CASES:
        assert [line for line in ROWS if line.startswith(case.row)], f"no row of wire/README.md: {case.row!r}"


def test_every_question_has_a_case_and_the_other_way_round() -> None:
    assert {case.question for case in CASES} == set(QUESTIONS)
    assert len(BY_NAME) == len(CASES)
    for backend, names in CHEAPEST.items():
        assert len(names) == 3
        assert all(backend in BY_NAME[name].backends for name in names)


def test_only_the_first_case_of_a_question_costs_runs() -> None:
    seen: set[str] = set()
    for case in CASES:
        assert not case.runs or case.question not in seen, case.name
        seen.add(case.question)


def test_settings_that_help_exist() -> None:
    source = "".join(
        (Path(caretway.__file__).parent / "prove" / name).read_text(encoding="utf-8")
        for name in ("cases.py", "questions.py")
    )
    named = set(re.findall(r"--[a-z][a-z-]+", source))
    assert len(named) > 8
    assert named <= FLAGS


def test_a_row_fits_80_columns_and_loses_nothing() -> None:
    verdict = CaseVerdict("differs", "words " * 30, "Set --agent-quirks model=details, " * 5)
    lines = row("checkpoint at a call", verdict, Style())
    assert max(map(len, lines)) <= 80
    assert "".join("".join(lines).split()) == "".join(
        f"differs checkpoint at a call {verdict.says}{verdict.helps}".split()
    )
    painted = row("text", CaseVerdict("holds", "a marker comes back"), Style(colour=True))
    assert painted[0].startswith("\x1b[32mholds")
