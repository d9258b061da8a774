"""One line at the end of each response, with everything about it that may be said."""

import logging

from ..core.events import Usage
from ..core.turn import TurnRecord

log = logging.getLogger("caretway.turns")


class LogObserver:
    def response_ended(self, record: TurnRecord) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        usage = record.usage if isinstance(record.usage, Usage) else Usage()
        first = f"{record.first_event_ms:.0f}" if record.first_event_ms is not None else "-"
        log.info(
            "%s %s %s/%s %s (%s) %s calls=%d first=%sms total=%.0fms in=%s cached=%s out=%s%s",
            record.request_id,
            record.dialect + ("+stream" if record.stream else ""),
            record.backend,
            _plain(record.model),
            record.session,
            record.reason,
            record.outcome,
            record.calls,
            first,
            record.total_ms,
            _shown(usage.input_tokens),
            _shown(usage.cache_read_tokens),
            _shown(usage.output_tokens),
            f" ignored={_plain(','.join(record.ignored))}" if record.ignored else "",
        )


def _plain(text: str) -> str:
    """A client's own words in one line of the log: they can neither end it nor fill it."""
    return "".join(c if "!" <= c <= "~" else "?" for c in text[:200])


def _shown(count: int | None) -> str:
    return "-" if count is None else str(count)
