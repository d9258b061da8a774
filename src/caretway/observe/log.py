"""The one log line at the end of each response: which facts it has, how estimates are marked, and text of clients
without line breaks (log injection). No prompt, no answer, no secret.
"""

import logging
import re
from typing import Final

from ..core.events import RunUsage, Usage
from ..core.turn import TurnRecord

log = logging.getLogger("caretway.turns")

_ODD: Final = re.compile(r"[^!-~]")
_UNKNOWN: Final = Usage()


class LogObserver:
    def response_ended(self, record: TurnRecord) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        usage = record.usage if isinstance(record.usage, Usage) else _UNKNOWN
        first = f"{record.first_event_ms:.0f}" if record.first_event_ms is not None else "-"
        log.info(
            "%s %s %s/%s %s (%s) %s calls=%d first=%sms total=%.0fms in=%s cached=%s out=%s%s%s%s",
            record.request_id,
            record.dialect + ("+stream" if record.stream else ""),
            record.backend,
            one_line(record.model),
            record.session,
            record.reason,
            record.outcome,
            record.calls,
            first,
            record.total_ms,
            _figure(usage.input_tokens, usage),
            "-" if usage.cache_read_tokens is None else usage.cache_read_tokens,
            _figure(usage.output_tokens, usage),
            _run(usage.run) if usage.run is not None else "",
            f" ignored={one_line(','.join(record.ignored))}" if record.ignored else "",
            f" recovered={','.join(_recovery(one) for one in record.recoveries)}" if record.recoveries else "",
        )


def _recovery(recovery: tuple[str, str]) -> str:
    how, cause = recovery
    return f"{how.replace(' ', '_')}:{cause}"


def _figure(count: int | None, usage: Usage) -> str:
    """Estimates are marked with a tilde."""
    return "-" if count is None else f"{'~' if usage.estimated else ''}{count}"


def _run(run: RunUsage) -> str:
    """The run that this response ended, as Cursor counted it."""
    counts = (run.input_tokens, run.cache_read_tokens, run.cache_write_tokens, run.output_tokens)
    text = "/".join(["-" if count is None else str(count) for count in counts])
    return f" run={text} steps={run.steps}{'' if run.complete else '+'}"


def one_line(text: str) -> str:
    """Text from a client, made safe for one log line: no line breaks, and a bounded length."""
    return _ODD.sub("?", text[:200])
