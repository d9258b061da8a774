"""A ledger as text: one line per target and measure, then the goals."""

import os
import platform
from collections.abc import Iterator
from typing import Any

from .goals import verdicts
from .ledger import Ledger
from .targets import DIRECT, RELAY


def machine() -> dict[str, Any]:
    try:
        with open("/proc/cpuinfo") as info:
            model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "")
    except OSError:
        model = ""
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def lines(ledger: Ledger) -> Iterator[str]:
    for measure in ledger.measures():
        yield measure
        targets = ledger.targets(measure)
        for target in targets:
            found = ledger.spread(measure, target)
            row = f"  {target:<18} {found.median:>12,.4g}  ({found.low:.4g} - {found.high:.4g})"
            for base in (DIRECT, RELAY):
                if base in targets and target not in (DIRECT, base):
                    ratio = ledger.ratio(measure, target, base)
                    row += f"   {ratio.median:8.2f}x {base} ({ratio.low:.2f}-{ratio.high:.2f})"
            yield row
    yield ""
    for verdict in verdicts(ledger):
        yield f"{'reached ' if verdict.reached else 'MISSED  '} {verdict.goal}: {verdict.shown}"
    for note in ledger.notes:
        yield f"note: {note}"
