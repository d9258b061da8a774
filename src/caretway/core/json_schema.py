"""Checks JSON values against JSON schemas that a client wrote. Pure, bounded, and nothing is fetched.

A schema is a foreign program. Its regular expressions are left out (`pattern`, `patternProperties`): Python's can run
for ever and cannot be stopped. The rest may only take so many steps. Whatever else goes wrong with a schema (no such
$ref, endless recursion) is one exception, `Unreadable`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_STEPS: Final = 50_000
"""Keywords evaluated for one value; a schema of references to references would otherwise double at every level."""


class Unreadable(ValueError):
    """The schema cannot be used: nothing is known about the value."""


@dataclass(frozen=True, slots=True)
class Problem:
    path: tuple[str | int, ...]
    json_path: str
    message: str


class SchemaChecker:
    def __init__(self, schema: Mapping[str, object]) -> None:
        self._schema: Any = dict(schema)
        self._kind: Any = None
        words = _keywords(schema)
        self.patterns = not words.isdisjoint({"pattern", "patternProperties"})
        """There are regular expressions, and they are not checked."""
        self.inverts = not words.isdisjoint({"oneOf", "not", "if"})
        """A rule that is left out may turn a match into a mismatch."""

    def problems(self, value: object) -> Iterator[Problem]:
        try:
            for error in self._validator().iter_errors(value):
                yield Problem(tuple(error.absolute_path), error.json_path, error.message)
        except Unreadable:
            raise
        except Exception as failure:
            raise Unreadable(" ".join(str(failure).split()) or type(failure).__name__) from failure

    def first(self, value: object) -> Problem | None:
        return next(self.problems(value), None)

    def _validator(self) -> Any:
        # Imported here: it costs more than the rest of the gateway's start, and few requests need it.
        from jsonschema import Draft202012Validator, FormatChecker, validators
        from referencing import Registry

        if self._kind is None:
            self._kind = validators.validator_for(self._schema, default=Draft202012Validator)
            self._kind.check_schema(self._schema, format_checker=FormatChecker(formats=()))
        steps = _Steps()
        rules = {name: steps.counted(check) for name, check in self._kind.VALIDATORS.items()}
        # Also the rules that look at `patternProperties` on their own, wherever a reference may lead them.
        rules |= dict.fromkeys(("pattern", "patternProperties"), _no_rule)
        if self.patterns:
            rules |= dict.fromkeys(("additionalProperties", "unevaluatedProperties"), _no_rule)
        extend: Any = validators.extend
        # An empty registry knows no other document and fetches none.
        return extend(self._kind, rules)(self._schema, registry=Registry())


def _no_rule(*_: Any) -> None:
    """Nothing to say."""


class _Steps:
    def __init__(self) -> None:
        self._left = MAX_STEPS

    def counted(self, check: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise Unreadable("the schema takes too many steps")
            return check(*arguments)

        return run


def _keywords(schema: object) -> set[str]:
    """Every key anywhere in the schema, in places that only a reference reaches too. Rather one too many."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            found.update(value)
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return found
