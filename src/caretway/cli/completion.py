"""`caretway completion bash|zsh|fish`: prints a completion script with all commands, flags and values of the parsers.
Pure except for printing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from .flags import subcommands
from .process import say

NAME: Final = "completion"
SUMMARY: Final = "print a completion script for your shell"
DESCRIPTION: Final = "Print a script that completes commands, flags and values when you press Tab."
EXAMPLES: Final = """\
examples:
  source <(caretway completion bash)      now; add the line to ~/.bashrc
  caretway completion zsh > ~/.zfunc/_caretway
                                          a folder of $fpath, before compinit
  caretway completion fish > ~/.config/fish/completions/caretway.fish
"""

_FILES: Final = {"FILE": "file", "DIR": "directory", "RECEIPT": "file"}


@dataclass(frozen=True, slots=True)
class FlagWords:
    names: tuple[str, ...]
    help: str
    takes: Literal["", "text", "file", "directory"] = ""
    """The kind of its argument; empty if it takes none."""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandWords:
    name: str
    help: str
    flags: tuple[FlagWords, ...]
    actions: tuple[str, ...] = ()
    """The possible first words."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "caretway completion bash|zsh|fish"
    parser.add_argument("shell", choices=tuple(_SHELLS), help="Which shell.")


def run(arguments: argparse.Namespace) -> int:
    say([_SHELLS[arguments.shell](list(words(arguments.tree)))])
    return 0


def words(top: argparse.ArgumentParser) -> Iterator[CommandWords]:
    """All commands of the parsers."""
    briefs = {
        choice.dest: _brief(choice.help or "")
        for action in top._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }
    for name, parser in subcommands(top).items():
        yield CommandWords(name, briefs.get(name, ""), tuple(_flags(parser)), _actions(parser))


def _actions(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    first = next((action for action in parser._actions if not action.option_strings), None)
    return () if first is None else tuple(map(str, first.choices or ()))


def _flags(parser: argparse.ArgumentParser) -> Iterator[FlagWords]:
    hidden = {id(action): text for one in parser._actions for action, text in getattr(one, "texts", ())}
    for action in parser._actions:
        if not action.option_strings:
            continue
        help_text = hidden.get(id(action), action.help or "")
        names = tuple(action.option_strings)
        if action.nargs == 0:
            yield FlagWords(names, _brief(help_text))
            continue
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        values = tuple(map(str, action.choices or ())) or (tuple(metavar.split("|")) if "|" in metavar else ())
        yield FlagWords(names, _brief(help_text), _takes(metavar), values)


def _takes(metavar: str) -> Literal["text", "file", "directory"]:
    return "directory" if metavar == "DIR" else "file" if metavar in _FILES else "text"


def _brief(text: str) -> str:
    """The first sentence, without characters that are special to shells or argparse. Apostrophes are quoted later."""
    first = text.replace("%%", "%").partition(". ")[0].partition(" [")[0].rstrip(".")
    return "".join(" " if letter in '"`$\\[]:\n' else letter for letter in first).strip()


def bash(commands: list[CommandWords]) -> str:
    values = [
        f"    {'|'.join(f'{one.name}:{name}' for name in flag.names)}) "
        + (
            f"COMPREPLY=($(compgen -W '{' '.join(flag.values)}' -- \"$word\"))"
            if flag.values
            else _BASH_FILES[flag.takes]
        )
        + " ;;"
        for one in commands
        for flag in one.flags
        if flag.takes
    ]
    flags = [f"    {one.name}) words='{_flag_names(one)}' ;;" for one in commands]
    actions = [f"    {one.name}) words='{' '.join(one.actions)}' ;;" for one in commands if one.actions]
    return _BASH.format(
        commands=" ".join(one.name for one in commands),
        values="\n".join(values),
        flags="\n".join(flags),
        actions="\n".join(actions),
    )


def _flag_names(command: CommandWords) -> str:
    return " ".join(name for flag in command.flags for name in flag.names)


_BASH_FILES: Final = {
    "text": ":",
    "file": 'COMPREPLY=($(compgen -f -- "$word"))',
    "directory": 'COMPREPLY=($(compgen -d -- "$word"))',
}
_BASH: Final = """\
# bash completion for caretway; made by `caretway completion bash`
_caretway() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} words=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{commands} --help --version' -- "$word"))
    return
  fi
  case "$command:$before" in
{values}
    *)
      case "$word" in
        -*) case "$command" in
{flags}
          esac ;;
        *) [ "$COMP_CWORD" -eq 2 ] && case "$command" in
{actions}
          esac ;;
      esac
      [ -n "$words" ] && COMPREPLY=($(compgen -W "$words" -- "$word"))
      ;;
  esac
}}
complete -o filenames -o bashdefault -F _caretway caretway"""


def zsh(commands: list[CommandWords]) -> str:
    parts = [
        f"    {one.name}) _arguments -s : {' '.join([*_zsh_flags(one), *_zsh_actions(one)])} ;;" for one in commands
    ]
    return _ZSH.format(
        commands=" ".join(f"'{one.name}:{_in_quotes(one.help)}'" for one in commands),
        parts="\n".join(parts),
    )


def _zsh_flags(command: CommandWords) -> Iterator[str]:
    for flag in command.flags:
        after = {"": "", "text": ":value:", "file": ":file:_files", "directory": ":folder:_files -/"}[flag.takes]
        if flag.values:
            after = f":value:({' '.join(flag.values)})"
        for name in flag.names:
            yield f"'*{name}[{_in_quotes(flag.help)}]{after}'"


def _in_quotes(text: str) -> str:
    """Quotes a text with single quotes for zsh and fish; an apostrophe closes and reopens the quotes."""
    return text.replace("'", "'\\''")


def _zsh_actions(command: CommandWords) -> Iterator[str]:
    if command.actions:
        yield f"'1:what:({' '.join(command.actions)})'"
    yield "'*:file:_files'"


_ZSH: Final = """\
#compdef caretway
# zsh completion for caretway; made by `caretway completion zsh`
_caretway() {{
  local -a commands=({commands})
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{parts}
  esac
}}
if [ "$funcstack[1]" = _caretway ]; then _caretway "$@"; else compdef _caretway caretway; fi"""


def fish(commands: list[CommandWords]) -> str:
    lines = ["# fish completion for caretway; made by `caretway completion fish`"]
    first = "complete -c caretway -f -n __fish_use_subcommand"
    lines += [f"{first} -a {one.name} -d '{_in_quotes(one.help)}'" for one in commands]
    for one in commands:
        here = f"complete -c caretway -n '__fish_seen_subcommand_from {one.name}'"
        lines += [f"{here} -f -a '{' '.join(one.actions)}'"] if one.actions else []
        lines += [f"{here}{_fish_flag(flag)}" for flag in one.flags]
    return "\n".join(lines)


def _fish_flag(flag: FlagWords) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag.names)
    takes = {"": "", "text": " -x", "file": " -r -F", "directory": " -x -a '(__fish_complete_directories)'"}[flag.takes]
    if flag.values:
        takes = f" -x -a '{' '.join(flag.values)}'"
    return f"{names}{takes} -d '{_in_quotes(flag.help)}'"


_SHELLS: Final = {"bash": bash, "zsh": zsh, "fish": fish}
