"""The settings as command line flags: the flags of `--help` and `--help-all`, `--no-...` switches, repeatable flags.

Values stay text here. The config room parses them, so a mistake gets the same message from every source.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill, wrap
from types import MappingProxyType
from typing import Any, Final, NoReturn

from ..config import ADVANCED, CURSOR, GROUPS, SETTINGS, Setting, Settings, load_from_process, unknown_variables
from ..config.kinds import hint, nearest
from .process import remark

_DEST: Final = "setting "  # with a space: no other argument can have this name


EVERY_SETTING: Final = tuple(setting.name for setting in SETTINGS)
REACHING_CURSOR: Final = (
    *(setting.name for setting in SETTINGS if setting.group == CURSOR),
    *("config", "data_dir", "workspace"),
)
"""The settings of commands that call Cursor without serving."""

COMMON_FLAGS: Final = ("backend", "agent_url", "config", "data_dir")
"""The flags that `--help` of such a command names in one line."""

_ABOUT_ADVANCED: Final = f"Few people need these. In the TOML file, put them in the table [{ADVANCED}]."

_ABOUT_WIDTH: Final = 76
"""Descriptions are printed unchanged, indented by two."""

_MARGIN: Final = 2
"""Columns at the right that argparse leaves empty and our texts use."""

_NOTES_FROM: Final = 8
"""From this indentation on, a line of an example belongs to a note."""
_BELOW: Final = " " * 6
"""The indentation of a note that does not fit next to its example."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, **{"max_help_position": 26} | more)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False)  # keeps `read-only` one word

    def _format_usage(self, *given: Any) -> str:
        text = super()._format_usage(*given)
        width = self._width + _MARGIN
        return text if len(text.strip()) <= width else f"{_filled(text.strip(), width, '', ' ' * 7)}\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return narrowed(text, width + _MARGIN)


def narrowed(text: str, width: int) -> str:
    """Adapts a text for 80 columns to a narrower terminal: refills paragraphs, and moves notes below their examples."""
    lines = text.splitlines()
    if all(len(line) <= width for line in lines):
        return text
    done: list[str] = []
    prose = ""
    for line in [*lines, ""]:
        if line and not line.startswith(" "):
            prose = f"{prose} {line}".strip()
            continue
        if prose:
            done.append(_filled(prose, width))
            prose = ""
        done += _narrow(line, width)
    return "\n".join(done[: len(done) if text.endswith("\n") else -1])


def _narrow(line: str, width: int) -> list[str]:
    """Folds an indented line: an example or a word, often with a note in its own column."""
    example, gap, note = line.strip().partition("  ")
    note = note.strip()
    column = line.rfind(note) if gap else len(line) - len(line.lstrip())
    if gap and column <= width // 2:
        return [_filled(note, width, line[:column], " " * column)]
    if gap and len(line) > width:
        return [f"  {example}", _filled(note, width, _BELOW)]
    if column >= _NOTES_FROM:  # the line continues the note above
        return [_filled(line.strip(), width, " " * column if column <= width // 2 else _BELOW)]
    return [_filled(line.strip(), width, line[:column], _BELOW)]


def _filled(text: str, width: int, first: str = "", later: str | None = None) -> str:
    return fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )


class _HelpAll(argparse.Action):
    """`--help-all`: adds the texts that `--help` omits, then prints the help."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **more)
        self.texts: list[tuple[argparse.Action, str]] = []
        self.abouts: list[tuple[argparse._ArgumentGroup, str]] = []

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        for action, text in self.texts:
            action.help = text
        for group, about in self.abouts:
            group.description = about
        parser.print_help()
        parser.exit()


def add_setting_flags(
    parser: argparse.ArgumentParser, names: Iterable[str] = EVERY_SETTING, *, shown: Sequence[str] = ()
) -> None:
    """Add a flag for each of the settings. `--help` lists the flags in `shown`, `--help-all` lists all by section."""
    wanted = {*names, *shown}
    by_name = {setting.name: setting for setting in SETTINGS if setting.name in wanted}
    common = [f"--{name.replace('_', '-')}" for name in COMMON_FLAGS if name in by_name and name not in shown]
    named = f", {', '.join(common)} among them," if common else ""
    everything = parser.add_argument("--help-all", action=_HelpAll, help=f"Show all flags{named} and exit.")
    assert isinstance(everything, _HelpAll)
    for name in shown:
        setting = by_name.pop(name)
        default = setting.shown_default()
        _add(parser, setting, _text(setting, "" if default == "none" else f"[default: {default}]"), everything)
    for section in (*GROUPS, ADVANCED):
        members = [setting for setting in by_name.values() if setting.section == section]
        if members:
            group = parser.add_argument_group(section)
            everything.abouts.append((group, _about(section, members)))
            for setting in members:
                _add(group, setting, argparse.SUPPRESS, everything)


def _about(section: str, members: Iterable[Setting]) -> str:
    secrets = [f"{setting.env_names[-1]} (variable, no flag): {setting.help}" for setting in members if setting.secret]
    about = [_ABOUT_ADVANCED] if section == ADVANCED else secrets
    return "\n".join(fill(line, _ABOUT_WIDTH, subsequent_indent="  ", break_on_hyphens=False) for line in about)


def _text(setting: Setting, note: str) -> str:
    several = " May be given several times." if setting.kind.several else ""
    return f"{setting.help}{several} {note}".strip().replace("%", "%%")


def _add(
    place: argparse.ArgumentParser | argparse._ArgumentGroup, setting: Setting, brief: str, everything: _HelpAll
) -> None:
    if setting.flag is None:
        return
    dest = _DEST + setting.name
    if setting.kind.switch:
        action = place.add_argument(
            setting.flag, dest=dest, default=None, help=brief, action=argparse.BooleanOptionalAction
        )
    else:
        how = "append" if setting.kind.several else "store"
        action = place.add_argument(setting.flag, dest=dest, metavar=setting.kind.metavar, action=how, help=brief)
    note = f"[default: {setting.shown_default()}; env: {', '.join(setting.env_names)}]"
    everything.texts.append((action, _text(setting, note)))


def given(arguments: argparse.Namespace) -> dict[str, object]:
    """Setting name -> the value of its flag, for the flags on the command line."""
    return {
        name.removeprefix(_DEST): value
        for name, value in vars(arguments).items()
        if name.startswith(_DEST) and value is not None
    }


def settings_from(arguments: argparse.Namespace, more: Mapping[str, object] = MappingProxyType({})) -> Settings:
    """The settings of this run. Warns about suspicious variables. `more`: further values from the command line."""
    settings = load_from_process({**given(arguments), **more})
    remark(unknown_variables())
    return settings


# ---- parsing

# One sentence for each mistake on the command line: an unknown command or flag with the nearest one ("did you mean"), a
# missing or wrong word, and how to get help. Exit code 2.

PROGRAM: Final = "caretway"
WRONG_USE: Final = 2

_REMOVED: Final = {
    "capabilities": "use `caretway status`, `caretway doctor` and `caretway launch`",
    "help": "use `caretway --help` and `caretway COMMAND --help`",
}
"""Commands of earlier releases, and what replaces them."""


class CommandParser(argparse.ArgumentParser):
    """Parses the command line or one command. `prog` is `caretway` or `caretway COMMAND ...`, as typed."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.color = False  # argparse colours help since Python 3.14 and counts escape codes as letters

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
    """The name of the argument in argparse's messages."""
    if action.option_strings:
        return "/".join(action.option_strings)
    return action.metavar if isinstance(action.metavar, str) else action.dest


def unknown(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The error for words that no parser accepted."""
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
    """Name -> parser of each subcommand; empty without subcommands."""
    return {
        name: own
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, own in action.choices.items()
    }
