"""Totals of a ledger with the field names that are promised, and as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import asdict

from .queries import Totals


def figures(row: Totals) -> dict[str, Any]:
    told = asdict(row)
    told.pop("group")
    return told | {"tokens": row.tokens, "cents": row.cents}


def as_csv(by: str, rows: Iterable[Totals]) -> Iterator[str]:
    """Line by line: there may be many groups."""
    line = io.StringIO()
    writer = csv.DictWriter(line, [by, *figures(Totals())], lineterminator="\n")
    writer.writeheader()
    yield line.getvalue()
    for row in rows:
        line.seek(0)
        line.truncate()
        writer.writerow({by: _plain(row.group), **figures(row)})
        yield line.getvalue()


def _plain(text: str) -> str:
    """Clients choose names: a spreadsheet must not take one for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
