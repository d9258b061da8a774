"""A client's reasoning effort -> the parameter and value that a model really has. Pure.

Clients name more efforts than a model may offer: the nearest one is taken, the lower one of two. A model without such a
parameter gets none, and the caller says so.
"""

from collections.abc import Sequence
from typing import Final

EFFORT_PARAMETERS: Final = ("effort", "reasoning_effort", "reasoning", "thinking")
SCALE: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def fit_effort(wanted: str | None, parameters: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, str] | None:
    if wanted is None:
        return None
    known = dict(parameters)
    for name in EFFORT_PARAMETERS:
        values = known.get(name, ())
        if wanted in values:
            return name, wanted
        offered = [value for value in values if value in SCALE]
        if offered and wanted in SCALE:
            place = SCALE.index(wanted)
            return name, min(offered, key=lambda value: (abs(SCALE.index(value) - place), SCALE.index(value)))
    return None
