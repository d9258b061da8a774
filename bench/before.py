"""An earlier state of this checkout as a target, so that before and after are measured in one interleaved run.

The revision is installed in a venv of its own, from `git archive`: the working tree is not touched. `compared` says for
each measure how far the two copies of today's gateway are apart (noise), and how far today's is from the earlier one.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .ledger import Ledger
from .peers import cache_dir
from .targets import AGAIN, BEFORE, GATEWAY

CHECKOUT: Final = Path(__file__).parents[1]


def install(revision: str) -> Path:
    """The interpreter of a venv that holds the revision; made once for each commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    home = cache_dir() / f"before-{commit[:12]}"
    python = home / "bin" / "python"
    if not (home / ".installed").exists():
        print(f"installing {commit[:12]} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        with tempfile.TemporaryDirectory(prefix="caretway-before-") as folder:
            archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, f"{folder}[cluster]"], check=True)
        (home / ".installed").touch()
    return python


def compared(ledger: Ledger) -> Iterator[str]:
    """One line for each measure that has all three: the earlier gateway, today's, and today's again."""
    for measure in ledger.measures():
        if not {GATEWAY, AGAIN, BEFORE} <= set(ledger.targets(measure)):
            continue
        noise, change = ledger.ratio(measure, AGAIN, GATEWAY), ledger.ratio(measure, GATEWAY, BEFORE)
        inside = min(noise.low, 1 / noise.high) <= change.median <= max(noise.high, 1 / noise.low)
        yield (
            f"  {measure:<36} now/before {change.median:5.2f} ({change.low:.2f}-{change.high:.2f})"
            f"   again/now {noise.median:5.2f} ({noise.low:.2f}-{noise.high:.2f})   {'' if inside else 'OUTSIDE'}"
        )
