"""The record of changes by `caretway setup`, with the original texts: one file for each client in the data directory.
Also reads and writes clients' files: atomically, following links, keeping mode and line ends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from ..storage.private_file import write_file
from .clients.values import Entry, FilePlan
from .process import CommandFailed

FOLDER: Final = "setup"
_MAX_FILE: Final = 10_000_000
"""The maximum size of a configuration."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    plan: FilePlan
    before: str | None
    """The original text; None if there was no file."""
    after: str
    made: tuple[str, ...] = ()
    """Directories that were created for the file."""


@dataclass(frozen=True, slots=True)
class SetupRecord:
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
            return _record(json.loads(text))
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise CommandFailed(f"{self._folder / client}.json cannot be read: {problem}") from problem

    def keep(self, record: SetupRecord) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = to_builtins(record, enc_hook=str)
        write_text(self._folder / f"{record.client}.json", json.dumps(body, ensure_ascii=False), 0o600)

    def put_back(self, client: str, record: SetupRecord | None) -> None:
        """Restores the earlier record; None deletes the client's record."""
        if record is None:
            self.forget(client)
        else:
            self.keep(record)

    def forget(self, client: str) -> None:
        (self._folder / f"{client}.json").unlink(missing_ok=True)


def _record(body: Any) -> SetupRecord:
    files = []
    for row in body["files"]:
        plan = row["plan"]
        entries = tuple(Entry(tuple(entry["path"]), entry["value"]) for entry in plan["entries"])
        restored = FilePlan(Path(plan["path"]), plan["kind"], entries, plan["text"], plan["mark"])
        files.append(FileRecord(restored, row["before"], row["after"], tuple(row["made"])))
    return SetupRecord(body["client"], tuple(files), body["when"])


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
