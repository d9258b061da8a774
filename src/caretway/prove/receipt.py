"""The result of `caretway prove`: a small JSON file for a bug report and for `caretway simulate --like`.

It is redacted by construction: facts with closed sets of values, verdicts in fixed words, versions, ids of listed
models. Reading is bounded and strict; any other file raises BadReceipt with the reason.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..storage.private_file import open_file
from .cases import BY_NAME
from .facts import CaseVerdict, Fact, NoFact, checked

VERSION: Final = 1
LAST_RECEIPT: Final = "receipt.json"
"""The copy of the newest receipt in the data directory."""
MAX_BYTES: Final = 256 * 1024
_PLAIN: Final = re.compile(r"[\w.,=+:/\[\] -]{0,80}")
"""Versions, systems, and ids of models."""


class BadReceipt(ValueError):
    """The file is not a receipt, or not one of this version."""


@dataclass(frozen=True, slots=True)
class Receipt:
    about: Mapping[str, str]
    """Versions, system, backend and models of the run."""
    facts: Mapping[str, Fact]
    verdicts: Mapping[str, CaseVerdict]
    """The verdicts by case name."""
    runs: int = 0
    """The maximum number of runs made."""
    seconds: int = 0
    timings_ms: Mapping[str, int] = field(default_factory=dict)


def plain(text: str) -> str:
    """The text if a receipt may hold it, else `other`."""
    return text if _PLAIN.fullmatch(text) else "other"


def write(receipt: Receipt) -> str:
    cases = [
        {
            "case": name,
            "row": BY_NAME[name].row,
            "state": verdict.state,
            "says": verdict.says,
            **({"helps": verdict.helps} if verdict.helps else {}),
            "ms": receipt.timings_ms.get(name, 0),
        }
        for name, verdict in receipt.verdicts.items()
    ]
    document = {
        "receipt": VERSION,
        "about": {name: plain(value) for name, value in receipt.about.items()},
        "runs": receipt.runs,
        "seconds": receipt.seconds,
        "facts": dict(receipt.facts),
        "cases": cases,
    }
    return json.dumps(document, indent=2) + "\n"


def read_facts(data: bytes) -> dict[str, Fact]:
    """The facts of a receipt that this version knows."""
    if len(data) > MAX_BYTES:
        raise BadReceipt(f"it has more than {MAX_BYTES} bytes")
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as broken:
        raise BadReceipt("it is not JSON") from broken
    if not isinstance(document, dict) or "receipt" not in document:
        raise BadReceipt("it is not a receipt of `caretway prove`")
    if document["receipt"] != VERSION:
        raise BadReceipt(f"it is a receipt of another version; this one reads version {VERSION}")
    facts = document.get("facts")
    if not isinstance(facts, dict):
        raise BadReceipt("it has no facts")
    return {name: fact for name, value in facts.items() if (fact := _known(name, value)) is not None}


def _known(name: str, value: object) -> Fact | None:
    try:
        return checked(name, value)
    except NoFact:
        return None  # from a newer version, or not a receipt


def newest_receipt(data_dir: Path) -> dict[str, Any] | None:
    """The time and summary of the newest receipt. Blocking."""
    path = data_dir / LAST_RECEIPT
    try:
        with open_file(path) as file:
            about = json.loads(file.read(MAX_BYTES))["about"]
            named = {name: str(about.get(name, "")) for name in ("backend", "caretway", "service")}
        return {"at": path.stat().st_mtime, **named}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):  # missing, or not a receipt
        return None
