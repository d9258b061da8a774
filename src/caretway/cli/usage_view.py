"""The view of `caretway usage`: a table of groups with compact figures and bars, the parts of the cost, savings by
sessions, reasons of replays. Fits 80 columns, or the terminal's width.
"""

from collections.abc import Sequence
from typing import Final

from ..usage.prices import AS_OF, SOURCE, STALE_DAYS
from ..usage.queries import By, EventCost, Replayed, Totals
from .figures import bar, compact, dollars
from .terminal import Style, chart, columns, folded, printable

BAR: Final = 8
LEAST_NAME: Final = 10
"""The minimum width of a group's name."""
WHOLE_NAME: Final = 20
"""Names up to this length are not shortened to make room for a bar."""
NAMELESS: Final[dict[By, str]] = {
    "key": "(no key)",
    "client": "(not named)",
    "model": "(none)",
    "conversation": "(none)",
    "kind": "(not known)",
}
_HEADS: Final = ("resp", "runs", "unreported", "fresh", "written", "cached", "output", "cost")


def table(rows: Sequence[Totals], total: Totals, by: By, style: Style, width: int, *, bars: bool) -> list[str]:
    """The groups and their sum. A column that is empty in every row is left out."""
    named = [(row.group or NAMELESS.get(by, "all"), row) for row in rows if row.responses or row.runs]
    if by == "all":
        named = [("all", total)]
    largest = max([row.tokens for _, row in named], default=0)
    shares = [bar(row.tokens / largest, BAR).rstrip("-") if largest else "" for _, row in named]
    several = len(named) > 1
    cells = [(name, *_cells(row)) for name, row in named] + ([("total", *_cells(total))] if several else [])
    header = ("" if by == "all" else by, *_HEADS)
    figures = range(1, len(header))
    if bars and several:
        drawn = [(*row, share) for row, share in zip(cells, [*shares, ""], strict=True)]
        lines = columns((*header, ""), drawn, Style(), right=figures, width=width, shortened={0: WHOLE_NAME})
        bars = max(map(len, lines)) <= width
    if not (bars and several):
        lines = columns(header, cells, Style(), right=figures, width=width, shortened={0: LEAST_NAME})
    head, *body = lines
    last = [style.bold(body.pop())] if several else []
    return [style.dim(head), *body, *last]


def _cells(row: Totals) -> tuple[str, ...]:
    counted = row.runs > row.unreported  # uncounted runs have no figures
    read = (compact(row.input), compact(row.cache_write) if row.cache_write else "", compact(row.cache_read))
    return (
        *(str(count) if count else "" for count in (row.responses, row.runs, row.unreported)),
        *((*read, compact(row.output)) if counted else ("", "", "", "")),
        "" if row.cents is None else dollars(row.cents),
    )


CHART_LINES: Final = 4


def over_time(rows: Sequence[Totals], by: By, style: Style, width: int, levels: str) -> list[str]:
    """Two charts, tokens and cost, on one axis of hours or days; empty for a single column."""
    if len(rows) < 2:
        return []
    most = max(row.tokens for row in rows)
    dearest = max(row.cents or 0.0 for row in rows)
    margin = max(len(compact(most)), len(dollars(dearest))) + 2
    each = max(1, min(3, (width - margin - 2) // len(rows)))

    def drawn(values: Sequence[float], top: str, height: int) -> list[str]:
        # a gap between columns if there is room
        wide = [value for value in values for _ in range(max(1, each - 1))]
        lines = chart(wide, height, levels)
        if each > 1:
            step = each - 1
            lines = ["".join(line[at : at + step] + " " for at in range(0, len(line), step)) for line in lines]
        return [f"{top if number == 0 else '':>{margin}}  {line}".rstrip() for number, line in enumerate(lines)]

    first, last = (rows[at].group.removesuffix(":00")[-2:] if by == "hour" else rows[at].group[5:] for at in (0, -1))
    room = each * len(rows)
    axis = first + last.rjust(max(len(last) + 1, room - len(first) - (each > 1)))
    cost = drawn([row.cents or 0.0 for row in rows], dollars(dearest), 2) if dearest else []
    title = f"Tokens{' and cost' if cost else ''} by {by}"
    lines = [*drawn([row.tokens for row in rows], compact(most), CHART_LINES), *cost]
    return ["", style.bold(title), *(line[:width] for line in lines), style.dim(f"{'':>{margin}}  {axis}"[:width])]


def failure_lines(total: Totals) -> list[str]:
    lines: list[str] = []
    if total.failed:
        lines.append(f"{_many(total.failed, 'response')} ended with an error.")
    if total.refused:
        lines.append(f"{_many(total.refused, 'request')} came to no response: refused before a run.")
    return lines


def _many(count: int, noun: str) -> str:
    return f"{compact(count)} {noun}{'' if count == 1 else 's'}"


def cost_lines(total: Totals, age_days: int, unpriced: Sequence[str] = (), *, own: bool = False) -> list[str]:
    """The sources of the cost, and what it does not include. `age_days`: of the prices. `own`: some are the user's."""
    lines: list[str] = []
    if total.told_cents is not None:
        lines.append(f"{dollars(total.told_cents)} as Cursor reported it; its own events may lag ten minutes.")
    if total.listed_cents is not None:
        lines.append(
            f"{dollars(total.listed_cents)} by the prices of {SOURCE} of {AS_OF} ({age_days} days old)"
            f"{' and your own' if own else ''}, "
            "where Cursor reported no cost (`sdk` never does); what the plan includes is not charged."
        )
        if age_days > STALE_DAYS:
            lines.append("These prices are old: set your own as [prices.MODEL], or update.")
    if total.unpriced:
        tables = " ".join(map(printable, unpriced)) or "[prices.MODEL]"
        lines.append(
            f"{_many(total.unpriced, 'run')} without a known price: not in it. Set `input` and `output`, dollars for a "
            f"million tokens, in {tables} (caretway config edit)."
        )
    if total.unreported:
        lines.append(
            f"{_many(total.unreported, 'run')} unreported: cut, stopped, or on a backend that reports nothing."
        )
    if total.at_least:
        lines.append(f"{_many(total.at_least, 'run')} with a lost attempt: that is not counted.")
    return lines


def event_lines(cost: EventCost) -> list[str]:
    """The cost in Cursor's own list of events, and what the list lacks."""
    if not cost.conversations:
        return []
    of = f"{cost.conversations} of {_many(cost.conversations + cost.missing, 'conversation')}"
    more = "" if cost.complete else " It has more events than were asked for: this is the least."
    worth, charged = dollars(cost.cents), dollars(cost.charged_cents)
    return [f"{worth} by Cursor's own list of events, for {of}, {charged} charged; it may lag ten minutes.{more}"]


def saved_line(total: Totals) -> str:
    if not total.saved:
        return ""
    share = f": {total.saved_share:.0%} less than with `--session fresh`" if total.saved_share is not None else ""
    return f"{compact(total.saved)} input tokens were not sent again{share}."


def replay_lines(replays: Sequence[Replayed], style: Style) -> list[str]:
    widest = max(len(compact(one.responses)) for one in replays)
    lines = [f"  {compact(one.responses).rjust(widest)}  {one.reason}" for one in replays]
    anew = [style.dim(f"({compact(one.input)} tokens sent again)") for one in replays]
    return [f"{line}  {more}" for line, more in zip(lines, anew, strict=True)]


def paragraph(title: str, lines: Sequence[str], style: Style, width: int) -> list[str]:
    if not lines:
        return []
    return ["", style.bold(title), *(f"  {part.strip()}" for line in lines for part in folded(line, width - 2))]
