"""The log line of each response and each refused request: caller, model, session and reason, tokens, time to the first
token, outcome. Failures and refusals are warnings with reason and remedy. Contains no prompt, answer or secret, and no
line breaks from clients (log injection).

The message of the log record is a note object: the formatter chooses between one line and all facts.
"""

import logging
import re
from typing import Final, Literal

from ..core.errors import ErrorKind
from ..core.events import RunUsage, Usage
from ..core.records import Observer, RefusedRequest, TurnRecord

log = logging.getLogger("caretway.turns")

Tone = Literal["plain", "strong", "quiet", "good", "bad"]
Part = tuple[Tone, str]

MAX_TOLD: Final = 600
"""The maximum length of an error message in a line."""
_ODD: Final = re.compile(r"[^!-~]")
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\U00010000-\U0010ffff]+")
_LATE: Final = ErrorKind.TIMEOUT.value
_UNKNOWN: Final = Usage()


class AnswerNote:
    """The log line of a finished response."""

    __slots__ = ("record",)
    remedy = ""

    def __init__(self, record: TurnRecord) -> None:
        self.record = record

    @property
    def failed(self) -> bool:
        return bool(self.record.error) or self.record.outcome == _LATE

    def parts(self, *, brief: bool = False) -> list[Part]:
        """The parts of the line. `brief` leaves out rarely used parts."""
        record = self.record
        why = f" ({record.reason})" if record.reason and not brief else ""
        found: list[Part] = [
            ("strong", record.caller.client or record.dialect),
            ("plain", _models(record, brief=brief)),
            ("quiet", f"{record.session}{why}"),
            ("plain", _tokens(record.usage or _UNKNOWN)),
        ]
        if record.first_event_ms is not None:
            found.append(("quiet", f"{record.first_event_ms / 1000:.1f}s"))
        found += [("quiet", f"after {how}: {cause}") for how, cause in record.recoveries if not brief]
        return [*found, ("bad", self._failure()) if self.failed else ("good", _outcome(record))]

    def _failure(self) -> str:
        record = self.record
        said = one_sentence(record.message) if record.message else ""
        return f"failed: {record.error or record.outcome}{f': {said}' if said else ''}"

    def facts(self) -> dict[str, object]:
        record, usage = self.record, self.record.usage or _UNKNOWN
        return {
            "event": "answer",
            "request_id": record.request_id,
            "client": record.caller.client,
            "key": record.caller.key,
            "dialect": record.dialect,
            "stream": record.stream,
            "backend": record.backend,
            "asked": record.asked,
            "model": record.variant or record.model,
            "session": record.session,
            "reason": record.reason,
            "outcome": record.outcome,
            "error": record.error or None,
            "message": one_sentence(record.message) or None,
            "status": record.status,
            "calls": record.calls,
            "first_ms": None if record.first_event_ms is None else round(record.first_event_ms, 1),
            "total_ms": round(record.total_ms, 1),
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens,
            "estimated": usage.estimated,
            "run": None if usage.run is None else _run(usage.run),
            "ignored": list(record.ignored),
            "recoveries": [f"{how}: {cause}" for how, cause in record.recoveries],
        }

    def __str__(self) -> str:
        return joined(self.parts())


class RefusalNote:
    """The log line of a refused request: the fault and the remedy."""

    __slots__ = ("record",)

    def __init__(self, record: RefusedRequest) -> None:
        self.record = record

    @property
    def remedy(self) -> str:
        return one_sentence(self.record.hint)

    def parts(self, *, brief: bool = False) -> list[Part]:
        record = self.record
        asked = f"{one_line(record.method)} {one_line(record.path)}".strip()
        return [
            ("strong", record.caller.client or "someone"),
            ("bad", f"refused: {record.status}" + (f" {asked}" if asked and not brief else "")),
            ("plain", one_sentence(record.message)),
        ]

    def facts(self) -> dict[str, object]:
        record = self.record
        return {
            "event": "refused",
            "request_id": record.request_id,
            "client": record.caller.client,
            "key": record.caller.key,
            "method": one_line(record.method),
            "path": one_line(record.path),
            "status": record.status,
            "error": record.code or record.kind,
            "message": one_sentence(record.message),
            "hint": self.remedy or None,
            "asked": one_line(record.model) or None,
        }

    def __str__(self) -> str:
        return f"{joined(self.parts())} {self.remedy}".rstrip()


class LogObserver(Observer):
    def response_ended(self, record: TurnRecord) -> None:
        level = logging.WARNING if record.error or record.outcome == _LATE else logging.INFO
        if log.isEnabledFor(level):
            log.log(level, AnswerNote(record))

    def request_refused(self, record: RefusedRequest) -> None:
        log.warning(RefusalNote(record))


def joined(parts: list[Part]) -> str:
    return "  ".join([text for _, text in parts if text])


def _models(record: TurnRecord, *, brief: bool) -> str:
    taken = one_line(record.model if brief else record.variant or record.model)
    asked = one_line(record.asked)
    return taken if not asked or asked == taken else f"{asked} -> {taken}"


def _outcome(record: TurnRecord) -> str:
    if record.calls:
        return "1 call" if record.calls == 1 else f"{record.calls} calls"
    return "done" if record.outcome == "end" else record.outcome.replace("_", " ")


def _tokens(usage: Usage) -> str:
    """Fresh, cache-written, cached and output tokens; a tilde marks estimates."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return ""
    cached, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    fresh = None if usage.input_tokens is None else usage.fresh
    about = "~" if usage.estimated else ""
    kept = f" + {short(written)} written" if written else ""
    kept += f" + {short(cached)} cached" if cached else ""
    return f"{about}{short(fresh)}{kept} > {about}{short(usage.output_tokens)}"


def short(count: int | None) -> str:
    """Formats a count in at most four characters and a unit: 999, 1.2k, 120k, 3.4M."""
    if count is None:
        return "?"
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count // size}{unit}"
    return str(count)


def _run(run: RunUsage) -> dict[str, object]:
    """The run that this response ended, as Cursor counted it."""
    return {
        "input_tokens": run.input_tokens,
        "cached_tokens": run.cache_read_tokens,
        "cache_write_tokens": run.cache_write_tokens,
        "output_tokens": run.output_tokens,
        "steps": run.steps,
        "complete": run.complete,
    }


def one_line(text: str) -> str:
    """Makes a client's word safe for one log line: no line breaks, bounded length."""
    return _ODD.sub("?", text[:200])


def one_sentence(text: str) -> str:
    """Makes a sentence safe for one log line."""
    return _BREAKS.sub(" ", text[:MAX_TOLD])
