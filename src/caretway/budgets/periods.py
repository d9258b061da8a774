"""When a period of a budget began and when it ends: days of the user's time zone, months of Cursor's billing cycle
where that is known and of the calendar where it is not, or ever. Pure; time and zone are handed in.

Days are counted apart and a period is a sum of whole days, so nothing is lost when the billing cycle becomes known in
the middle of a month.
"""

from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

from msgspec import Struct

from .budget import Period

EVER: Final = ""
"""Earlier than every day."""


class BillingCycle(Struct, frozen=True):
    starts_at: float
    ends_at: float


class Window(Struct, frozen=True):
    since: str
    """Its first day, as in `2026-11-17`; `EVER` when it has none."""
    resets_at: float | None
    """Unix seconds; None: never."""


def day_of(now: float, zone: tzinfo | None = None) -> str:
    """The day that it is. `zone`: None is that of the machine."""
    return _local(now, zone).date().isoformat()


def window(period: Period, now: float, cycle: BillingCycle | None = None, zone: tzinfo | None = None) -> Window:
    today = _local(now, zone).date()
    if period is Period.DAY:
        return Window(today.isoformat(), _midnight(today + timedelta(days=1), zone))
    if period is Period.ALL:
        return Window(EVER, None)
    if cycle is not None and cycle.starts_at <= now < cycle.ends_at:
        return Window(day_of(cycle.starts_at, zone), cycle.ends_at)
    first_day = _local(cycle.starts_at, zone).day if cycle is not None else 1
    first = _on(today.year, today.month, first_day)
    if first > today:
        first = _on(today.year, today.month - 1, first_day)
    return Window(first.isoformat(), _midnight(_on(first.year, first.month + 1, first_day), zone))


def _on(year: int, month: int, day: int) -> date:
    """That day of the month, or its last one; months beyond the year's belong to its neighbours."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    last = (date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)).day
    return date(year, month, min(day, last))


def _local(now: float, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(now, zone)


def _midnight(day: date, zone: tzinfo | None) -> float:
    return datetime.combine(day, time(), zone).timestamp()
