"""`caretway status --cluster`: the gateways of a cluster in Redis, with address, version, start, parked turns and
draining, and their usage of the last seven days; at 80 columns, or as JSON.

Only `show` queries Redis; all other functions convert values to lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..config import Settings
from .figures import compact, dollars
from .process import CommandFailed, log_to_stderr, say
from .process import run as run_loop
from .terminal import GAP, Style, columns, folded, pairs, style_for, terminal_width

if TYPE_CHECKING:
    from ..cluster.directory import Replica
    from ..cluster.spent import TotalRow

DAYS: Final = 7
"""Today and the six days before, in UTC."""
_HEAD: Final = ("id", "address", "version", "since (UTC)", "parked", "state")
_TOTALS: Final = ("model", "resp", "runs", "denied", "input", "cached", "output", "cost")
_LEAST_NAME: Final = 10


@dataclass(frozen=True, slots=True)
class ClusterReport:
    name: str
    redis: str
    """The host and port."""
    replicas: tuple[Replica, ...]
    """The gateways, the oldest first."""
    totals: tuple[TotalRow, ...]
    schema: int
    """The schema of this version; gateways with another schema are not contacted."""


def show(settings: Settings, *, as_json: bool) -> int:
    if settings.cluster is None:
        raise CommandFailed(
            "no cluster is set up here",
            "name its Redis: caretway status --cluster redis://HOST:6379/0, or set CARETWAY_CLUSTER",
            2,
        )
    log_to_stderr("error")  # unreachable Redis is reported below
    report = run_loop(_read_report(settings))
    if as_json:
        say([json.dumps(report_json(report), indent=2)])
    else:
        say(as_lines(report, style_for(sys.stdout), terminal_width()))
    return 0 if report.replicas else 1


async def _read_report(settings: Settings) -> ClusterReport:
    from ..cluster.membership import open_link  # isort: skip  (its error says what to install)
    from ..cluster.directory import SCHEMA, read_replicas
    from ..cluster.link import RedisAway
    from ..cluster.seal import ANY_SCHEMA, Seal
    from ..cluster.spent import read_totals
    from ..config.secrets import cluster_key

    place = redis_place(settings.cluster or "")
    today = datetime.now(UTC).date()
    async with AsyncExitStack() as stack:
        link = open_link(settings, stack)
        try:
            await link.run([("EXISTS", "caretway")])  # reports an unreachable Redis before a missing key
            key = cluster_key(settings)
            replicas = await read_replicas(link, Seal(key, schema=ANY_SCHEMA))
            totals = await read_totals(link, Seal(key), today - timedelta(days=DAYS - 1), today)
        except RedisAway as away:
            raise CommandFailed(
                f"nothing is known of the cluster, because {place} does not answer as it should ({away})",
                "start Redis, or correct --cluster; running gateways go on without it",
            ) from None
    oldest_first = sorted(replicas, key=lambda one: (one.started, one.id))
    return ClusterReport(settings.cluster_name, place, tuple(oldest_first), tuple(totals), SCHEMA)


def redis_place(url: str) -> str:
    """The address of Redis without user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def report_json(report: ClusterReport) -> dict[str, Any]:
    """The JSON for `--json`."""
    return {
        "cluster": report.name,
        "redis": {"there": True, "address": report.redis},
        "replicas": [
            {
                "id": one.id,
                "address": one.address,
                "version": one.version,
                "since": _when(one.started, "%Y-%m-%dT%H:%M:%SZ"),
                "draining": one.draining,
                "parked": one.parked,
                "schema": one.schema,
            }
            for one in report.replicas
        ],
        "totals": [{field: getattr(row, field) for field in row.__struct_fields__} for row in report.totals],
    }


def as_lines(report: ClusterReport, style: Style, width: int) -> list[str]:
    count = len(report.replicas)
    rows = [
        ("cluster", f"{report.name}, {count or 'no'} gateway{'' if count == 1 else 's'}"),
        ("redis", f"there ({report.redis})"),
    ]
    lines = pairs(rows, style, indent="")
    if report.replicas:
        lines += ["", *_replicas(report, style, width)]
    if report.totals:
        lines += ["", style.bold(f"last {DAYS} days (UTC)"), *_totals(report.totals, style, width)]
    return lines


def _replicas(report: ClusterReport, style: Style, width: int) -> list[str]:
    cells = [
        (one.id, one.address, one.version, when, str(one.parked), one.state(report.schema))
        for one in report.replicas
        for when in [_when(one.started, "%Y-%m-%d %H:%M")]
    ]
    lines = columns(_HEAD, cells, style)
    if max(map(len, columns(_HEAD, cells, Style()))) <= width:
        return lines
    head, *short = columns([*_HEAD[:1], *_HEAD[2:]], [[*row[:1], *row[2:]] for row in cells], style)
    lines = [head]
    for line, (_, address, *_) in zip(short, cells, strict=True):
        lines += [line, *(f"{GAP}{part}" for part in folded(address, width - len(GAP)))]
    return lines


def _totals(rows: Sequence[TotalRow], style: Style, width: int) -> list[str]:
    """The totals by model, the most runs first, and their sum."""
    models = sorted({row.model for row in rows}, key=lambda model: (-sum(_of(rows, model, "runs")), model))
    cells = [_figures(model or "(none)", [row for row in rows if row.model == model]) for model in models]
    if len(models) > 1:
        cells.append(_figures("total", rows))
    return columns(_TOTALS, cells, style, right=range(1, len(_TOTALS)), width=width, shortened={0: _LEAST_NAME})


def _of(rows: Sequence[TotalRow], model: str, measure: str) -> list[int]:
    return [getattr(row, measure) for row in rows if row.model == model]


def _figures(name: str, rows: Sequence[TotalRow]) -> tuple[str, ...]:
    counts = [sum(getattr(row, one) for row in rows) for one in ("responses", "runs", "refused")]
    tokens = [sum(getattr(row, one) for row in rows) for one in ("input", "cached", "output")]
    cents = sum(row.cents for row in rows)
    return (name, *map(str, counts), *map(compact, tokens), dollars(cents) if cents else "")


def _when(at: float, form: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form)
