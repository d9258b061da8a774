"""How the findings of `caretway doctor` look: a mark, a name, words folded to the terminal, what to type next."""

from collections.abc import Sequence
from typing import Final

from ..dashboard.local_checks import Finding
from .terminal import Style, wrapped

LEAST_ROOM: Final = 30
"""Columns for a finding's words, however narrow the terminal is."""


def as_lines(findings: Sequence[Finding], style: Style, columns: int | None = None) -> list[str]:
    """A finding's words are folded to the columns of a terminal; without one they stay in one line."""
    width = max(len(finding.name) for finding in findings)
    indent = " " * (width + 8)
    lines: list[str] = []
    for finding in findings:
        mark = style.careful("mend") if finding.fixed else style.good("ok  ") if finding.ok else style.bad("FAIL")
        words = [finding.detail, finding.hint] if finding.hint else [finding.detail]
        if columns is not None:
            room = max(columns - len(indent), LEAST_ROOM)
            words = [line for text in words for line in wrapped(text, room)]
        first, *rest = words
        lines += [f"{mark}  {finding.name.ljust(width)}  {first}", *(indent + line for line in rest)]
    return lines
