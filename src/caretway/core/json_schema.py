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
        self._schema: Any = _without_patterns(schema)
        self._kind: Any = None

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
        from jsonschema import Draft202012Validator, validators
        from referencing import Registry

        if self._kind is None:
            self._kind = validators.validator_for(self._schema, default=Draft202012Validator)
            self._kind.check_schema(self._schema)
        steps = _Steps()
        counted = {name: steps.counted(check) for name, check in self._kind.VALIDATORS.items()}
        extend: Any = validators.extend
        # An empty registry knows no other document and fetches none.
        return extend(self._kind, counted)(self._schema, registry=Registry())


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


def _without_patterns(schema: Any) -> Any:
    """Without `patternProperties` nobody knows which properties are additional, so that rule goes with it."""
    if isinstance(schema, Mapping):
        left_out = {"pattern", "patternProperties"} if not _is_property_table(schema) else set()
        if "patternProperties" in schema and left_out:
            left_out |= {"additionalProperties", "unevaluatedProperties"}
        return {key: _without_patterns(value) for key, value in schema.items() if key not in left_out}
    if isinstance(schema, list | tuple):
        return [_without_patterns(value) for value in schema]
    return schema


def _is_property_table(schema: Mapping[str, Any]) -> bool:
    """In `properties` the keys are names of a client's own: a property may well be called `pattern`."""
    return isinstance(schema.get("pattern"), Mapping)
