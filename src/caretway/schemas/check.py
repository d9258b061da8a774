"""Checks JSON values against JSON schemas that a client wrote. Pure, bounded, and nothing is fetched.

A schema is a foreign program, so each step is counted: an element visited, two values compared, a reference followed.
When the budget is used up the answer is `Unreadable`, never a long wait. Regular expressions are left out (`pattern`,
`patternProperties`): Python's can run forever and cannot be stopped. Any other problem of a schema (no such $ref,
endless recursion, a keyword of the wrong type) is `Unreadable`, too. Supports drafts 4 to 2020-12; formats and other
annotations are ignored.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from .containers import CONTAINER_RULES, LAST_RULES
from .document import Budget, Document, Unreadable
from .run import Place, Rules, Validation
from .values import VALUE_RULES

__all__ = ["MAX_STEPS", "Problem", "SchemaChecker", "Unreadable"]

_RULES: Final = Rules({**VALUE_RULES, **CONTAINER_RULES}, LAST_RULES)

MAX_STEPS: Final = 30_000
"""For all values of one checker; a step takes one or two microseconds."""


class Problem(Struct, frozen=True):
    path: tuple[str | int, ...]
    json_path: str
    message: str


class SchemaChecker:
    """One schema and one budget, for any number of values."""

    def __init__(self, schema: Mapping[str, object], steps: int = MAX_STEPS) -> None:
        self._schema = schema
        self._budget = Budget(steps)
        self._read: Document | None = None

    @property
    def patterns(self) -> bool:
        """The schema has regular expressions, which are not checked."""
        return self._document().has("pattern", "patternProperties")

    @property
    def inverts(self) -> bool:
        """Leaving out a rule may turn a match into a mismatch."""
        return self._document().has("oneOf", "not", "if")

    def problems(self, value: object) -> list[Problem]:
        return [_problem(place, message) for place, message in self._run(value, first=False)]

    def first(self, value: object) -> Problem | None:
        return next((_problem(place, message) for place, message in self._run(value, first=True)), None)

    def _document(self) -> Document:
        if self._read is None:
            self._read = Document(self._schema, self._budget)
        return self._read

    def _run(self, value: object, *, first: bool) -> Iterator[tuple[Place | None, str]]:
        run = Validation(self._document(), self._budget, _RULES, first=first)
        try:
            run.apply(self._schema, value, None, run.found, None)
        except RecursionError as failure:
            raise Unreadable("the schema is nested too deeply") from failure
        return iter(run.found)


def _problem(place: Place | None, message: str) -> Problem:
    path: list[Any] = []
    while place is not None:
        place, key = place
        path.append(key)
    path.reverse()
    spelled = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return Problem(tuple(path), f"${spelled}", message)
