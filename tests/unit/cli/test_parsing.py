"""Mistakes on the command line: one sentence, what was meant, exit code 2."""

from collections.abc import Sequence

import pytest

from caretway.cli.main import main, parser
from caretway.cli.parsing import CommandParser, flags_of, subcommands

MISTAKES = [
    (["sevre"], 'there is no command "sevre"; did you mean "serve"?'),
    (["quux"], 'there is no command "quux"'),
    (["help", "sevre"], 'there is no command "sevre"; did you mean "serve"?'),
    (["serve", "--prot", "1"], 'serve has no flag --prot; did you mean "--port"?'),
    (["serve", "--por=1"], 'serve has no flag --por; did you mean "--port"?'),
    (["status", "now"], 'status does not take the word "now"'),
    (["--verison"], 'there is no flag --verison without a command; did you mean "--version"?'),
    (["mcp"], "mcp: say what to do: list, tools, call or serve"),
    (["mcp", "lst"], 'mcp does not know "lst"; expected list, tools, call or serve; did you mean "list"?'),
    (["completion"], "completion: say what to do: bash, zsh or fish"),
    (["config", "st"], 'config does not know "st"; expected path, get, set, unset or edit; did you mean "set"?'),
    (["serve", "--port"], "serve: argument --port: expected one argument"),
]


@pytest.mark.parametrize(("typed", "says"), MISTAKES, ids=[" ".join(row[0]) for row in MISTAKES])
def test_a_mistake_is_one_sentence(typed: Sequence[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed)
    assert ended.value.code == 2
    told, _, see = capsys.readouterr().err.partition(" (see: caretway ")
    assert told == f"caretway: {says}" and see.endswith("--help)\n")


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


def _help(typed: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code = main(typed)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["", *subcommands(parser())])
def test_help_is_a_command_too(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command] if command else []
    assert _help(["help", *words], capsys) == _help([*words, "--help"], capsys)
    if command and "--help-all" in flags_of(subcommands(parser())[command]):
        assert _help(["help", "--all", command], capsys) == _help([command, "--help-all"], capsys)
