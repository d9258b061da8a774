"""The view of `caretway top`: the gateway's state, the last hour as small charts, today's cost, a table of live turns
that fits the terminal, the last error, the keys. Converts snapshots and a size to lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .figures import bar, compact, dollars
from .terminal import GAP, Style, chart, cut, printable

SORTS: Final = ("since", "state", "model", "client", "tokens")
_HEADS: Final = ("STATE", "MODEL", "CLIENT", "SESSION", "SINCE", "TOKENS", "WAITING FOR")
_RIGHT: Final = frozenset({4, 5})
KINDS: Final = ("input", "cache_read", "cache_write", "output")
_FEWEST: Final = (8, 12, 8, 9, 5, 6, 8)
"""The minimum width of each column, so that columns stay where they are; names are shortened first."""
_BAR: Final = 10
_AROUND: Final = 7
"""Lines other than turns: three on top, an empty one, the table's head, error and keys."""
_HOUR_FROM: Final = 20
"""The minimum height of a terminal that shows the last hour."""
_CELLS: Final = 30
"""The cells of a chart, two minutes each."""
_STATES: Final = {"parked": "waiting"}


@dataclass(frozen=True, slots=True)
class TopState:
    """The user's choices."""

    sort: str = "since"
    reverse: bool = False
    chosen: str = ""
    """The id of the chosen turn."""
    asking: bool = False
    """Whether the user is asked to confirm cancelling the chosen turn."""
    remark: str = ""


def ordered(turns: Sequence[dict[str, Any]], state: TopState) -> list[dict[str, Any]]:
    by = {"since": lambda turn: turn["since"], "tokens": lambda turn: -turn["tokens"]}.get(
        state.sort, lambda turn: (turn[state.sort], turn["since"])
    )
    return sorted(turns, key=by, reverse=state.reverse)


def screen(
    now: dict[str, Any], overview: dict[str, Any], state: TopState, style: Style, width: int, height: int, levels: str
) -> list[str]:
    """A whole screen of at most `height` lines and `width` columns. `levels`: the chart characters."""
    turns = ordered(now["turns"], state)
    hour = _hour(overview, style, width, levels) if height >= _HOUR_FROM else []
    room = max(1, height - _AROUND - len(hour))
    first = next((index for index, turn in enumerate(turns) if turn["id"] == state.chosen), 0)
    start = max(0, min(first - room + 1, len(turns) - room)) if first >= room else 0
    shown = turns[start : start + room]
    left = len(turns) - len(shown) + now["turns_left_off"]
    lines = [*_about(now, style, width), *hour, ""]
    lines += _table(shown, state, style, width, now["at"]) if turns else [style.dim("nothing is running")]
    lines += [""] * (height - 2 - len(lines))
    lines[height - 2 :] = [_error(now, style, width), _keys(state, left, width, style)]
    return lines[:height]


def listing(now: dict[str, Any], overview: dict[str, Any], style: Style, width: int, levels: str) -> list[str]:
    """The view without keys, for a pipe, in full length."""
    turns = ordered(now["turns"], TopState())
    table = _table(turns, TopState(), style, width, now["at"]) if turns else ["nothing is running"]
    error = _error(now, style, width)
    more = [f"and {now['turns_left_off']} more"] if now["turns_left_off"] else []
    hour = _hour(overview, style, width, levels)
    return [*_about(now, style, width), *hour, "", *table, *more, *(["", error] if error else [])]


def _about(now: dict[str, Any], style: Style, width: int) -> list[str]:
    backend = now["backend"]
    standing = backend["standing"]
    mark = {"official": style.good, "unofficial": style.careful}.get(standing, style.bad)
    name = f"{backend['name']} ({standing})"
    heads = (f"caretway {now['version']}{GAP}{now['address']}{GAP}", f"{now['address']}{GAP}")
    head = next((one for one in heads if len(one + name) <= width), "")
    up = f"up {age(now['at'] - now['started_at'])}"
    room = width - len(head + name + up)
    since = " " * room + up if room > 0 else ""
    counts = (
        f"{now['running']} running{GAP}{now['parked']} waiting for a tool{GAP}{now['tokens_per_second']:g} tokens/s"
    )
    return [head + mark(cut(name, width)) + since, cut(_account(now), width), style.bold(cut(counts, width))]


def _hour(overview: dict[str, Any], style: Style, width: int, levels: str) -> list[str]:
    """The last sixty minutes and today's cost; empty if no ledger is kept."""
    minutes = overview["minutes"]
    if not minutes:
        trouble = printable(overview.get("trouble", ""))
        return ["", style.bad(cut(trouble, width))] if trouble else []
    answers = [one["answers"] for one in minutes]
    tokens = [sum(one[kind] for kind in KINDS) for one in minutes]
    slow = [one["first_p95"] or 0.0 for one in minutes]
    errors = [one["failed"] + one["refused"] for one in minutes]
    codes = ", ".join(f"{one['count']} {printable(one['code'])}" for one in overview["errors"])
    rows = (
        ("answers", _joined(answers, sum), f"{sum(answers)} in 60 minutes"),
        ("tokens", _joined(tokens, sum), compact(sum(tokens))),
        ("first token", _joined(slow, max), f"p95 up to {max(slow) / 1000:.1f} s" if any(slow) else ""),
        ("errors", _joined(errors, sum), codes or "none"),
    )
    lines = [cut(f"{name:<11}{GAP}{chart(values, 1, levels)[0]}{GAP}{label}", width) for name, values, label in rows]
    total, clients = overview["today"]["total"], overview["today"]["clients"]
    if total is not None and total["cents"] is not None:
        spent = ", ".join(
            f"{printable(row['group'] or 'not named')} {dollars(row['cents'])}"
            for row in clients
            if row["cents"] is not None
        )
        lines.append(cut(f"{'today':<11}{GAP}{dollars(total['cents'])}: {spent}", width))
    return ["", *(style.bad(line) if line.startswith("errors") and codes else line for line in lines)]


def _joined(values: Sequence[float], together: Callable[[Sequence[float]], float]) -> list[float]:
    each = -(-len(values) // _CELLS)
    return [together(values[at : at + each]) for at in range(0, len(values), each)]


def _account(now: dict[str, Any]) -> str:
    account = now["account"]
    if now["backend"]["standing"] == "simulated":
        return "Simulated: no answer comes from Cursor."
    if now["signed_in"] is False:
        return f"Not signed in: caretway login. {printable(now['detail'])}"
    if not account or not account["known"]:
        return f"Quota: not known. {printable(account['reason'] or '')}" if account else "Quota: not asked yet."
    pools = [f"{pool['name']} {_used(pool['percent_used'])}" for pool in account["pools"]]
    days = account["period"]["days_left"]
    return GAP.join([*pools, *([f"resets in {days} days"] if days is not None else [])])


def _used(percent: float | None) -> str:
    return "?" if percent is None else f"{bar(percent / 100, _BAR)} {percent:.0f} %"


def _table(turns: Sequence[dict[str, Any]], state: TopState, style: Style, width: int, at: float) -> list[str]:
    rows = [_cells(turn, at) for turn in turns]
    widths = [max(least, *(len(row[index]) for row in (_HEADS, *rows))) for index, least in enumerate(_FEWEST)]
    for index in (1, 6, 2):  # names are shortened in this order: model, tools, client
        spare = sum(widths) + len(GAP) * (len(widths) - 1) - width
        widths[index] = max(_FEWEST[index], widths[index] - max(0, spare))

    def line(cells: Sequence[str]) -> str:
        return cut(
            GAP.join(
                cut(cell, room).rjust(room) if index in _RIGHT else cut(cell, room).ljust(room)
                for index, (cell, room) in enumerate(zip(cells, widths, strict=True))
            ).rstrip(),
            width,
        )

    lines = [style.dim(line(_HEADS))]
    for turn, row in zip(turns, rows, strict=True):
        text = line(row)
        if turn["id"] == state.chosen:
            lines.append(f"\x1b[7m{text.ljust(width)}\x1b[0m" if style.colour else f">{text[1:]}")
        else:
            lines.append(style.dim(text) if turn["state"] == "parked" else text)
    return lines


def _cells(turn: dict[str, Any], at: float) -> tuple[str, ...]:
    return (
        _STATES.get(turn["state"], turn["state"]),
        printable(turn["model"]),
        printable(turn["client"] or "-"),
        turn["session"],
        age(at - turn["since"]),
        str(turn["tokens"] or ""),
        printable(", ".join(turn["waiting_for"])),
    )


def _error(now: dict[str, Any], style: Style, width: int) -> str:
    error = now["last_error"]
    if error is None:
        return ""
    when = age(now["at"] - error["at"])
    words = f"{error['status'] or ''} {error['code']} {when} ago: {error['message']} {error['hint']}"
    return style.bad(cut(printable(" ".join(words.split())), width))


def _keys(state: TopState, left: int, width: int, style: Style) -> str:
    if state.asking:
        return style.careful(cut("Cancel the chosen turn? Its client gets an error. y: yes, any other key: no", width))
    order = f"{state.sort}{' (reversed)' if state.reverse else ''}"
    more = f"{left} more{GAP}" if left else ""
    words = state.remark or f"q quit{GAP}s sort: {order}{GAP}r reverse{GAP}j k choose{GAP}c cancel"
    return style.dim(cut(more + words, width))


def age(seconds: float) -> str:
    """`9s`, `3m12s`, `2h05m`, `4d03h`"""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"
