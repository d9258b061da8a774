"""`caretway setup`: adds the gateway to a client's own files as a provider or profile, after showing a diff; `--undo`
restores the files.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct, field, structs

from ..config import Settings, home_directory
from ..storage.private_file import write_file
from .clients.edits import applied, undone
from .clients.table import BY_NAME, ClientProgram
from .clients.values import FilePlan, Target
from .flags import REACHING_CURSOR, add_setting_flags, given, settings_from
from .launch import client_named, surroundings, unlisted
from .process import CommandFailed, confirmed, remark, say, shown_width, tell
from .process import run as run_loop
from .running import NOT_RUNNING, START_ONE
from .terminal import Style, columns, folded, style_for

if TYPE_CHECKING:
    from .client_gateway import ClientGateway

NAME: Final = "setup"
SUMMARY: Final = "write the gateway into a client's own files"
USAGE: Final = "caretway setup [CLIENT] [flags]"
DESCRIPTION: Final = (
    "Add the gateway to a client's own configuration, as one more provider or\n"
    "profile: defaults, comments and all else there stay. The change is shown first.\n"
    "Without CLIENT: what has been set up. `caretway launch` needs none of this."
)
EXAMPLES: Final = """\
examples:
  caretway setup opencode
  caretway setup codex --yes          without a question
  caretway setup claude --print       only show the change
  caretway setup opencode --undo      put it back
"""


@dataclass(frozen=True, slots=True)
class FileChange:
    path: Path
    now: str | None
    then: str | None
    """The new text; None if the file is deleted."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    able = ", ".join(name for name, client in BY_NAME.items() if client.setup)
    parser.add_argument("client", metavar="CLIENT", nargs="?", help=f"One of: {able}.")
    parser.add_argument("--model", metavar="MODEL", help="The model where a client names one; see `caretway models`.")
    parser.add_argument("--undo", action="store_true", help="Take it out again.")
    parser.add_argument("--yes", "-y", action="store_true", help="Do not ask.")
    parser.add_argument("--print", action="store_true", help="Only show the change.")
    add_setting_flags(parser, REACHING_CURSOR)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    style = style_for(sys.stdout)
    journal = Journal(settings.data_dir)
    if arguments.client is None:
        say(listed(journal, style))
        return 0
    client = client_named(arguments.client)
    if arguments.undo:
        return _undo(client, journal, arguments, style)
    if client.setup is None:
        raise CommandFailed(f"{client.title} cannot be set up: {client.then}", f"use: {client.starts_with}")
    target, running = run_loop(_target(settings, arguments))
    code = _set_up(client, target, journal, arguments, style)
    if not (code or running or arguments.print):
        remark([f"{NOT_RUNNING}; {START_ONE}"])
    return code


async def _target(settings: Settings, arguments: argparse.Namespace) -> tuple[Target, bool]:
    """The running gateway, else the address at which one would listen; and whether one is running."""
    from .client_gateway import client_gateway, requires_key, usual_url

    async with client_gateway(settings, given(arguments)) as gateway:
        target = gateway.target(arguments.model)
        _warn(gateway)
        remark(unlisted(gateway, target))
        if gateway.running:
            return target, True
        return structs.replace(target, url=usual_url(settings), keyed=requires_key(settings)), False


def _warn(gateway: ClientGateway) -> None:
    if gateway.simulated:
        remark(["these are the simulator's models; after `caretway login` run this again"])


def _set_up(
    client: ClientProgram, target: Target, journal: Journal, arguments: argparse.Namespace, style: Style
) -> int:
    assert client.setup is not None
    old = journal.read(client.name)
    records = []
    changes = []
    for plan in client.setup(target, surroundings()):
        now = read_text(plan.path)
        try:
            before = _baseline(old, plan, now)
            after = applied(plan, now)
        except ValueError as problem:
            raise CommandFailed(
                f"{plan.path} is left alone: {problem}", f"add this by hand: {_by_hand(plan)}"
            ) from problem
        records.append(FileRecord(plan, before, after))
        changes.append(FileChange(plan.path, now, after))
    if all(change.now == change.then for change in changes):
        tell([f"{client.title} is set up already. Use it: {used(client, target)}"])
        return 0
    _show(changes, style, arguments, f"caretway setup {client.name} --print")
    if arguments.print:
        return 0
    if not (arguments.yes or confirmed("Write this?", f"caretway setup {client.name} --yes")):
        return 1
    paths = [change.path for change in changes]
    made = [make_folders(path) for path in paths]
    made = [folders or _made_before(old, record.plan.path) for folders, record in zip(made, records, strict=True)]
    files = tuple(structs.replace(record, made=folders) for record, folders in zip(records, made, strict=True))
    elsewhere = [record for record in (old.files if old else ()) if record.plan.path not in paths]
    journal.keep(SetupRecord(client.name, (*files, *elsewhere)))  # first: an incomplete change can be undone
    try:
        _write(changes)
    except CommandFailed:
        if all(
            read_text(change.path) == change.now for change in changes
        ):  # nothing was changed, so there is nothing to undo
            journal.put_back(client.name, old)
            for folders in made:
                remove_folders(folders)
        raise
    lines = [f"{client.title} is set up. Use it: {used(client, target)}"]
    if target.keyed:
        lines.append(client.key_from)
    tell([*lines, f"Undo it: caretway setup {client.name} --undo"])
    return 0


def _baseline(old: SetupRecord | None, plan: FilePlan, now: str | None) -> str | None:
    """The file without our entries: the text that a later undo restores."""
    for record in old.files if old else ():
        if record.plan.path == plan.path:
            return undone(record.plan, record.before, record.after, now)
    return now


def _made_before(old: SetupRecord | None, path: Path) -> tuple[str, ...]:
    return next((record.made for record in (old.files if old else ()) if record.plan.path == path), ())


def _undo(client: ClientProgram, journal: Journal, arguments: argparse.Namespace, style: Style) -> int:
    record = journal.read(client.name)
    if record is None:
        raise CommandFailed(f"{client.title} was not set up from here, so there is nothing to undo")
    changes = []
    for file in record.files:
        now = read_text(file.plan.path)
        try:
            then = undone(file.plan, file.before, file.after, now)
        except ValueError as problem:
            raise CommandFailed(
                f"{file.plan.path} is left alone: {problem}", f"take this out by hand: {_by_hand(file.plan)}"
            ) from problem
        changes.append(FileChange(file.plan.path, now, then))
    touched = [file.plan for file, change in zip(record.files, changes, strict=True) if _touched(file, change)]
    ours = [_short(plan.path) for plan in touched if plan.kind == "whole"]
    shared = [_short(plan.path) for plan in touched if plan.kind != "whole"]
    if ours:
        remark([f"changed since it was set up, and goes as a whole, because setup made it: {', '.join(ours)}"])
    if shared:
        remark([f"changed since it was set up, so only our entries are taken out: {', '.join(shared)}"])
    _show(changes, style, arguments, f"caretway setup {client.name} --undo --print")
    if arguments.print:
        return 0
    if not (arguments.yes or confirmed("Write this?", f"caretway setup {client.name} --undo --yes")):
        return 1
    _write(changes)
    for file in record.files:
        remove_folders(file.made)
    journal.forget(client.name)
    tell([f"{client.title} is as it was." if not touched else f"{client.title} no longer knows the gateway."])
    return 0


def _touched(file: FileRecord, change: FileChange) -> bool:
    return change.now not in (file.after, file.before)


def _write(changes: Sequence[FileChange]) -> None:
    for change in changes:
        if change.then is None:
            change.path.resolve().unlink(missing_ok=True)  # the path was a link
        elif change.then != change.now:
            write_text(change.path, change.then)


def _by_hand(plan: FilePlan) -> str:
    return f"\n{applied(plan, None)}" if plan.entries else plan.text


def used(client: ClientProgram, target: Target) -> str:
    return client.then.replace("{model}", target.model)


# ---------------------------------------------------------------------------------------------- what is shown


def _show(changes: Sequence[FileChange], style: Style, arguments: argparse.Namespace, whole: str) -> None:
    """Shows the changes; a terminal gets a shortened diff unless `--print` is given."""
    width = shown_width(sys.stdout)
    say(diff(changes, style, width, whole if width and not arguments.print else ""))


def diff(changes: Sequence[FileChange], style: Style, width: int = 0, whole: str = "") -> list[str]:
    """A unified diff with the paths as users type them. `width`: the terminal's, or 0. `whole`: the command that shows
    the full diff; if given, long rows of additions or removals are cut."""
    lines: list[str] = []
    for change in changes:
        name = _short(change.path)
        old = name if change.now is not None else "/dev/null"
        new = name if change.then is not None else "/dev/null"
        before, after = (change.now or "").splitlines(), (change.then or "").splitlines()
        if change.now == change.then:
            lines.append(f"{name}: nothing to change")
            continue
        unified = [*difflib.unified_diff(before, after, old, new, lineterm="")]
        for line in shortened(unified, whole) if whole else unified:
            mark = {"+": style.good, "-": style.bad, "@": style.dim}.get(line[:1], str)
            lines += map(mark, _folded(line, width))
    return lines


def shortened(lines: Sequence[str], whole: str) -> list[str]:
    """Cuts the middle of long rows of lines with one sign, and states how many lines are left out. Pure."""
    kept: list[str] = []
    for sign, row in groupby(lines, key=lambda line: line[:1]):
        same = [*row]
        left_out = len(same) - _ROW_BEGINS - _ROW_ENDS
        if left_out > 1:
            same[_ROW_BEGINS : _ROW_BEGINS + left_out] = [f"{sign}... {left_out} more lines; all: {whole}"]
        kept += same
    return kept


_ROW_BEGINS: Final = 12
_ROW_ENDS: Final = 6
"""Lines that are shown of a long row, at its start and its end: few enough that the question and the start of the diff
fit on one screen."""


def _folded(line: str, width: int) -> list[str]:
    """Folds a long line of a diff, with its sign and some indentation on each following line."""
    if not 0 < width < len(line):
        return [line]
    sign, text = line[:1], line[1:]
    inner = text[: len(text) - len(text.lstrip())] + _FURTHER_IN
    first, *rest = folded(text, width - 1)
    below = folded("".join(rest), max(_LEAST_ROOM, width - 1 - len(inner)))
    return [sign + first.rstrip(), *(f"{sign}{inner}{part.strip()}" for part in below)]


_FURTHER_IN: Final = "    "
_LEAST_ROOM: Final = 20


def _short(path: Path) -> str:
    home = home_directory()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def listed(journal: Journal, style: Style) -> list[str]:
    rows = []
    for name in journal.clients():
        record = journal.read(name)
        assert record is not None
        day = time.strftime("%Y-%m-%d", time.localtime(record.when))
        rows += [(name, day, _short(file.plan.path)) for file in record.files]
    if not rows:
        return ["Nothing has been set up. The clients: caretway launch"]
    return columns(("client", "when", "file"), rows, style)


# ---- the journal

# What `setup` has changed, with the original texts: one file for each client in the data directory. Also reads and
# writes clients' files: atomically, following links, keeping mode and line ends.

FOLDER: Final = "setup"
_MAX_FILE: Final = 10_000_000
"""The maximum size of a configuration."""


class FileRecord(Struct, frozen=True):
    plan: FilePlan
    before: str | None
    """The original text; None if there was no file."""
    after: str
    made: tuple[str, ...] = ()
    """Directories that were created for the file."""


class SetupRecord(Struct, frozen=True):
    client: str
    files: tuple[FileRecord, ...]
    when: float = field(default_factory=time.time)


class Journal:
    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(file.stem for file in self._folder.glob("*.json")))

    def read(self, client: str) -> SetupRecord | None:
        text = read_text(self._folder / f"{client}.json")
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=SetupRecord, dec_hook=lambda kind, value: kind(value))
        except (msgspec.DecodeError, RecursionError) as problem:
            raise CommandFailed(f"{self._folder / client}.json cannot be read: {problem}") from problem

    def keep(self, record: SetupRecord) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = msgspec.json.encode(record, enc_hook=str).decode()
        write_text(self._folder / f"{record.client}.json", body, 0o600)

    def put_back(self, client: str, record: SetupRecord | None) -> None:
        """Restores the earlier record; None deletes the client's record."""
        if record is None:
            self.forget(client)
        else:
            self.keep(record)

    def forget(self, client: str) -> None:
        (self._folder / f"{client}.json").unlink(missing_ok=True)


def read_text(path: Path) -> str | None:
    """Reads a file with its line ends; None if there is none."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise CommandFailed(f"{path} is not a regular file, so it is left alone")
    try:
        with path.open("rb") as opened:
            data = opened.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise CommandFailed(f"{path} is larger than any configuration")
        return data.decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not UTF-8 text, so it is left alone") from None
    except OSError as failure:
        raise CommandFailed(f"{path} cannot be read: {failure.strerror}") from failure


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes the whole file or nothing. A link stays a link, and an existing file keeps its mode."""
    try:
        path.resolve().parent.stat()  # does not create the directory that a link leads to
        write_file(path, text, mode=mode, keep=True)
    except OSError as failure:
        raise CommandFailed(f"{path} cannot be written: {failure.strerror}") from failure


def make_folders(path: Path) -> tuple[str, ...]:
    """Creates the directories above a file; returns the created ones, innermost first."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise CommandFailed(f"{path.parent} cannot be made: {failure.strerror}") from failure
    return tuple(map(str, missing))


def remove_folders(folders: Sequence[str]) -> None:
    """Removes the directories that are empty."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)
