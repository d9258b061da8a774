"""Mistakes on the command line in one sentence: an unknown command or flag and the nearest one ("did you mean"), a
missing or wrong word, and where the help is. Exit code 2.

argparse prints its usage, which hides the mistake. Everything is read from the tree of parsers, so that a command has
this without doing anything for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from ..config.kinds import hint, nearest
from .process import remark

PROGRAM: Final = "caretway"
WRONG_USE: Final = 2

_REMOVED: Final = {
    "capabilities": "use `caretway status`, `caretway doctor` and `caretway launch`",
    "help": "use `caretway --help` and `caretway COMMAND --help`",
}
"""Commands of earlier releases, and what replaces them."""


class CommandParser(argparse.ArgumentParser):
    """`prog` is `caretway` or `caretway COMMAND ...`, as it is typed."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.color = False  # argparse colours help since Python 3.14, and counts the escape codes as letters

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        self.exit_with(wrong_word(self.prog, action, str(value)))

    def error(self, message: str) -> NoReturn:
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            wanted = [
                one for one in self._actions if _called(one) in missing.split(", ") and one.nargs not in ("*", "?")
            ]
            message = "; ".join(map(needs, wanted))
        self.exit_with(f"{self.prog.removeprefix(f'{PROGRAM} ')}: {message}")

    def exit_with(self, sentence: str) -> NoReturn:
        remark([f"{sentence} (see: {self.prog} --help)"])
        self.exit(WRONG_USE)


def wrong_word(program: str, action: argparse.Action, value: str) -> str:
    choices = [str(choice) for choice in action.choices or ()]
    near = nearest(value, choices)
    if program == PROGRAM:
        return f'there is no command "{value}"' + (f"; {_REMOVED[value]}" if value in _REMOVED else near)
    command = program.removeprefix(f"{PROGRAM} ")
    return f'{command} does not know "{value}"; expected {one_of(choices)}{near}'


def needs(action: argparse.Action) -> str:
    if action.choices:
        return f"say what to do: {one_of([str(choice) for choice in action.choices])}"
    return f"{_called(action)} is missing" + (f" ({action.help.rstrip('.')})" if action.help else "")


def one_of(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _called(action: argparse.Action) -> str:
    """As argparse calls it in its messages."""
    if action.option_strings:
        return "/".join(action.option_strings)
    return action.metavar if isinstance(action.metavar, str) else action.dest


def unknown(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What is wrong with words that no parser took."""
    command = parser.prog.removeprefix(PROGRAM).strip()
    flag = next((word for word in words if word.startswith("-") and word != "-"), None)
    if flag is None:
        return f'{command} does not take the word "{words[0]}"'
    name = flag.partition("=")[0]
    if command:
        return f"{command} has no flag {name}{hint(name, flags_of(parser))}"
    owners = [one for one, own in subcommands(parser).items() if name in flags_of(own)]
    owned = f"; it is a flag of {one_of([f'`{PROGRAM} {one}`' for one in owners[:3]])}" if owners else ""
    return f"there is no flag {name} without a command{owned or hint(name, flags_of(parser))}"


def flags_of(parser: argparse.ArgumentParser) -> Iterable[str]:
    return [text for action in parser._actions for text in action.option_strings]


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Name -> parser, of the commands below this one; empty if it has none."""
    return {
        name: own
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, own in action.choices.items()
    }
