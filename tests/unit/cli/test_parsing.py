"""Mistakes on the command line: one sentence, what was meant, exit code 2."""

from collections.abc import Sequence

import pytest

from caretway.cli.flags import CommandParser
from caretway.cli.main import main

MISTAKES = [
    (["sevre"], 'there is no command "sevre"; did you mean "serve"?'),
    (["quux"], 'there is no command "quux"'),
    (["help"], 'there is no command "help"; use `caretway --help` and `caretway COMMAND --help`'),
    (["help", "--all", "serve"], 'there is no command "help"; use `caretway --help` and `caretway COMMAND --help`'),
    (
        ["capabilities", "--json"],
        'there is no command "capabilities"; use `caretway status`, `caretway doctor` and `caretway launch`',
    ),
    (["serve", "--prot", "1"], 'serve has no flag --prot; did you mean "--port"?'),
    (["serve", "--por=1"], 'serve has no flag --por; did you mean "--port"?'),
    (
        ["serve", "--no-update-check"],
        "serve has no flag --no-update-check: the gateway no longer looks for newer versions; delete it",
    ),
    (["status", "now"], 'status does not take the word "now"'),
    (["--verison"], 'there is no flag --verison without a command; did you mean "--version"?'),
    (["mcp"], "mcp: say what to do: list, tools, call, login, logout or serve"),
    (
        ["mcp", "lst"],
        'mcp does not know "lst"; expected list, tools, call, login, logout or serve; did you mean "list"?',
    ),
    (["completion"], "completion: say what to do: bash, zsh or fish"),
    (["config", "st"], 'config does not know "st"; expected path, get, set, unset or edit; did you mean "set"?'),
    (["serve", "--port"], "serve: argument --port: expected one argument"),
]


@pytest.mark.parametrize(("typed", "says"), MISTAKES, ids=[" ".join(row[0]) for row in MISTAKES])
def test_a_mistake_is_one_sentence(typed: Sequence[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed)
    assert ended.value.code == 2
    printed, _, see = capsys.readouterr().err.partition(" (see: caretway ")
    assert printed == f"caretway: {says}" and see.endswith("--help)\n")


def test_a_flag_without_its_command_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--port", "8080"])
    assert "it is a flag of `caretway serve`" in capsys.readouterr().err


def test_a_word_that_is_missing_is_named_with_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    one = CommandParser(prog="caretway give")
    one.add_argument("file", metavar="FILE", help="What to give.")
    with pytest.raises(SystemExit):
        one.parse_args([])
    assert capsys.readouterr().err == "caretway: give: FILE is missing (What to give) (see: caretway give --help)\n"


@pytest.mark.parametrize("typed", [["-V"], ["--version"]])
def test_version_has_a_short_form(typed: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed)
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("caretway ")
