"""Reads the recordings in `captures/`. Knows their line format and nothing about what they prove."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

CAPTURES: Final = Path(__file__).parent / "captures"
NAMES: Final = tuple(sorted(path.stem for path in CAPTURES.glob("*.jsonl")))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a recording."""

    recording: str
    stream: str
    client: bool
    """True when the official client said it, False when our script did."""
    path: str
    kind: str
    type: str = ""
    payload: bytes | None = None
    seqno: int | None = None
    carrier: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    json: Any = None
    http: str = ""

    def __str__(self) -> str:
        return f"{self.recording} {self.stream} {self.kind}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run attempt: everything that shares an x-request-id."""

    recording: str
    stream: str
    rows: tuple[Row, ...]

    @property
    def appends(self) -> list[tuple[int, bytes]]:
        """(number, message) in the order of arrival; empty on HTTP/2, which needs no numbers."""
        return [(row.seqno, row.payload) for row in self.rows if row.seqno is not None and row.payload is not None]

    @property
    def said(self) -> list[Row]:
        """The client's messages in the order in which the client meant them."""
        messages = [row for row in self.rows if row.client and row.type]
        return sorted(messages, key=lambda row: row.seqno) if self.appends else messages  # type: ignore[arg-type,return-value]  # numbered

    @property
    def heard(self) -> list[Row]:
        return [row for row in self.rows if not row.client and row.type]

    @property
    def request(self) -> Row:
        """The HTTP request that opened the attempt."""
        return next(row for row in self.rows if row.client and row.kind == "request")

    def __str__(self) -> str:
        return f"{self.recording}-{self.stream}"


@cache
def rows(recording: str) -> tuple[Row, ...]:
    lines = (CAPTURES / f"{recording}.jsonl").read_text().splitlines()
    return tuple(_row(recording, json.loads(line)) for line in lines)


@cache
def runs(recording: str) -> tuple[Run, ...]:
    streams = dict.fromkeys(row.stream for row in rows(recording) if row.stream.startswith("r"))
    return tuple(Run(recording, name, tuple(r for r in rows(recording) if r.stream == name)) for name in streams)


def all_runs() -> list[Run]:
    return [run for name in NAMES for run in runs(name)]


def numbered_runs() -> list[Run]:
    return [run for run in all_runs() if run.appends]


def messages() -> Iterator[Row]:
    """Every recorded message of a run, both directions."""
    return (row for name in NAMES for row in rows(name) if row.type)


def _row(recording: str, line: dict[str, Any]) -> Row:
    return Row(
        recording,
        line["stream"],
        line["dir"] == "c2s",
        line["path"],
        line["kind"],
        type=line.get("type", ""),
        payload=bytes.fromhex(line["hex"]) if "hex" in line else None,
        seqno=line.get("seqno"),
        carrier=line.get("carrier", ""),
        headers=line.get("headers", {}),
        json=line.get("json"),
        http=line.get("http", ""),
    )
