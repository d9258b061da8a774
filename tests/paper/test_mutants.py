"""The stored mutants mean lines that are still there, so that `scripts/mutants replay` leaves none out."""

import json
import runpy
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def test_every_stored_mutant_has_its_line() -> None:
    """A line that was rewritten needs its mutant's text rewritten, too; one that was moved is found wherever it is."""
    mutants = json.loads((ROOT / "tests" / "data" / "mutants.json").read_text("utf-8"))["mutants"]
    assert len(mutants) == 40
    lines = {
        line.strip()
        for file in (ROOT / "src").rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if line.strip()
    }
    assert [mutant["id"] for mutant in mutants if mutant["before"] not in lines] == []


def test_every_area_has_its_files_and_tests() -> None:
    """Else `scripts/mutants draw` draws nothing there, without a word."""
    areas = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))["AREAS"]
    places = [(ROOT / "src" / "caretway" / name) for sources, _, _ in areas.values() for name in sources]
    places += [ROOT / name for _, fast, slow in areas.values() for name in (*fast, *slow)]
    assert [place for place in places if not place.exists()] == []
