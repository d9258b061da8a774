"""Formats log lines: short and coloured on a terminal, with the date in a file, or one JSON object each (`--log-format
json`). A repeated warning is counted instead of written, and a cancelled name lookup is not reported. Every line is
redacted.

Lines of answers are written together, a moment later; other lines at once.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable
from textwrap import wrap
from typing import Final, TextIO

from ..observe.log import AnswerNote, Part, RefusalNote, joined
from ..observe.redact import Redactor
from .terminal import Style

TOGETHER_S: Final = 0.05
"""How long the line of an answer waits for further lines."""
MOST_TOGETHER: Final = 200
QUIET_S: Final = 60.0
"""After this time a repeated line is written again."""
_MARGIN: Final = " " * 9
"""The indentation below a line's text, as wide as its time."""
_KNOWN: Final = 64
"""The number of different warnings that are remembered."""


class LineFormatter(logging.Formatter):
    """Formats a record as one line for people. `width`: the terminal's, or 0 for a file, which gets the date."""

    def __init__(self, redactor: Redactor, style: Style, width: int = 0) -> None:
        super().__init__()
        self._redactor = redactor
        self._look = style
        self._width = width
        self._when = "%H:%M:%S" if width else "%Y-%m-%d %H:%M:%S"
        self._tones: dict[str, Callable[[str], str]] = {
            "plain": str,
            "strong": style.bold,
            "quiet": style.dim,
            "good": style.good,
            "bad": style.bad,
        }
        self._second = -1
        self._spelt = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging names it
        """The time of a line; lines of the same second share the text."""
        second = int(record.created)
        if second != self._second:
            self._second, self._spelt = second, time.strftime(self._when, time.localtime(second))
        return self._spelt

    def format(self, record: logging.LogRecord) -> str:
        note = record.msg
        text = self._note(note) if isinstance(note, AnswerNote | RefusalNote) else self._line(record)
        more = getattr(record, "repeated", 0)
        again = f" ({more} more like it before)" if more else ""
        return self._redactor.text(f"{self._look.dim(self.formatTime(record))} {text}{again}")

    def _note(self, note: AnswerNote | RefusalNote) -> str:
        parts = note.parts()
        if not self._width:
            return f"{self._coloured(parts)} {note.remedy}".rstrip()
        room = self._width - len(_MARGIN)
        if len(joined(parts)) > room:
            parts = note.parts(brief=True)
        lines: list[list[Part]] = [[]]
        for tone, text in parts:
            if lines[-1] and len(joined([*lines[-1], (tone, text)])) > room:
                lines.append([])
            first, *more = wrap(text, room, break_on_hyphens=False) or [""]
            lines[-1].append((tone, first))
            lines += [[(tone, line)] for line in more]
        below = [self._look.careful(line) for line in wrap(note.remedy, room, break_on_hyphens=False)]
        return f"\n{_MARGIN}".join([*map(self._coloured, lines), *below])

    def _folded(self, text: str) -> str:
        if not self._width:
            return text
        lines = wrap(text, self._width - len(_MARGIN), break_on_hyphens=False, break_long_words=False)
        return f"\n{_MARGIN}".join(lines)

    def _coloured(self, parts: list[Part]) -> str:
        return "  ".join([self._tones[tone](text) for tone, text in parts if text])

    def _line(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.levelno != logging.INFO:
            mark = self._look.bad if record.levelno >= logging.ERROR else self._look.careful
            level = record.levelname.lower()
            text = self._folded(f"{level} {record.name.removeprefix('caretway.')}: {text}")
            text = f"{mark(level)}{text.removeprefix(level)}"
        else:
            text = self._folded(text)
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return text


class JsonFormatter(logging.Formatter):
    """Formats one object per line: `event` is `answer`, `refused` or `log`."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields: dict[str, object] = {"time": when, "level": record.levelname.lower(), "logger": record.name}
        note = record.msg
        if isinstance(note, AnswerNote | RefusalNote):
            fields |= note.facts()
        else:
            fields |= {"event": "log", "message": record.getMessage()}
            if record.exc_info:
                fields["exception"] = self.formatException(record.exc_info)
        if more := getattr(record, "repeated", 0):
            fields["repeated"] = more
        return self._redactor.text(json.dumps(fields, ensure_ascii=False))


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines of answers together after a moment, so that a busy gateway formats them in one go and not between
    the events of other answers. Any other line is written at once, after the waiting ones."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(record)
        if record.levelno > logging.INFO or type(record.msg) is not AnswerNote or len(self._waiting) >= MOST_TOGETHER:
            self.flush()
        elif len(self._waiting) == 1:
            self._flush_soon()

    def _flush_soon(self) -> None:
        from asyncio import get_running_loop  # imported late: not needed by commands without answers

        try:
            get_running_loop().call_later(TOGETHER_S, self.flush)
        except RuntimeError:  # another thread has no loop
            self.flush()

    def flush(self) -> None:
        self.acquire()
        try:
            records, self._waiting = self._waiting, []
            if records:
                self._write(records)
        finally:
            self.release()

    def _write(self, records: list[logging.LogRecord]) -> None:
        """Reports failures on standard error, as logging does. A failure never reaches an answer."""
        lines = []
        for record in records:
            try:
                lines.append(f"{self.format(record)}\n")
            except Exception:  # only this line is lost
                self.handleError(record)
        try:
            self.stream.write("".join(lines))
            self.stream.flush()
        except Exception:
            self.handleError(records[-1])


class NotTwice(logging.Filter):
    """Passes a warning once. After a while an equal warning passes again, with the number of repetitions."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        super().__init__()
        self._quiet = quiet_s
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}
        """Line -> (when it was written, the number of repetitions left out since)."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        line = record.name, record.levelno, record.getMessage()
        at, left_out = self._seen.pop(line, (float("-inf"), 0))
        if record.created - at < self._quiet:
            self._seen[line] = at, left_out + 1
            return False
        while len(self._seen) >= _KNOWN:
            del self._seen[next(iter(self._seen))]
        self._seen[line] = record.created, 0
        if left_out:
            record.repeated = left_out
        return True


class NotGivenUp(logging.Filter):
    """Drops the failure of an abandoned name lookup, for example after Ctrl-C: uvloop does not retrieve it."""

    def filter(self, record: logging.LogRecord) -> bool:
        failure = record.exc_info[1] if record.exc_info else None
        given_up = record.name == "asyncio" and record.getMessage().startswith(_NEVER_RETRIEVED)
        return not (given_up and isinstance(failure, socket.gaierror))


_NEVER_RETRIEVED: Final = "Future exception was never retrieved"
