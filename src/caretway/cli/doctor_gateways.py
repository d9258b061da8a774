"""What `doctor` and `status` say of gateways that are running: an old version, another backend than the settings choose
now, simulated answers although there is a sign-in since; and whether a live account has ever answered.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from .. import __version__
from ..dashboard.local_checks import Finding
from .running import RunningGateway, answers, is_another_process, noted_gateways

_SIMULATOR: Final = "simulator"


def check_gateways(data_dir: Path, backend: str) -> list[Finding]:
    """`backend`: what `caretway serve` would use now; empty if it would not start."""
    asked = [(note, answers(note.url)) for note in noted_gateways(data_dir)]
    return [judged(note, backend, alive=alive) for note, alive in asked if alive or not is_another_process(note)]


def judged(note: RunningGateway, backend: str, *, alive: bool, version: str = __version__) -> Finding:
    """Pure. What is wrong with a gateway that runs."""
    what = f"{note.url}, backend {note.backend}, version {note.version}, process {note.pid}"
    again = f"Stop it (kill {note.pid}, or Ctrl-C where it runs), then start it again: caretway serve"
    if not alive and note.url.startswith("http:"):
        return Finding("gateway", False, f"does not answer: {what}", again)
    if note.version != version:
        return Finding("gateway", False, f"is of another version than this one ({version}): {what}", again)
    if note.backend == _SIMULATOR and backend not in ("", _SIMULATOR):
        told = f"its answers are simulated, and `{backend}` could be used now: {what}"
        return Finding("gateway", False, told, again)
    if backend and note.backend != backend:
        return Finding("gateway", True, f"uses another backend than these settings choose (`{backend}`): {what}")
    simulated = "its answers are simulated: " if note.backend == _SIMULATOR else "runs: "
    return Finding("gateway", True, simulated + what)


def check_history(data_dir: Path) -> Finding:
    """Whether an account of Cursor has answered here, ever: no check is as good as that."""
    answered = last_answer(data_dir)
    if answered is None:
        return Finding("history", True, "no account of Cursor has answered here yet")
    backend, model, at = answered
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    return Finding("history", True, f"last answer of Cursor: {when}, {backend}, {model}")


def last_answer(data_dir: Path) -> tuple[str, str, float] | None:
    """(backend, model, when) of the last answer that was no simulation; None: there is none, or no ledger."""
    from ..storage.database import read_database
    from ..usage.queries import last_answer as answered
    from ..usage.writing import FILE_NAME, LEDGER

    try:
        book = read_database(data_dir / FILE_NAME, LEDGER)
        if book is None:
            return None
        with closing(book):
            return answered(book)
    except sqlite3.Error:
        return None
