"""Fits an exec's values to a client tool's JSON schema: names spelled differently, `anyOf` branches, required
properties filled only with a default, null or label. Never makes a value up; else no fit.

Values may be renamed or left out. What the caller gives for the case that it is required (`fills`) may be added too.
Knows nothing about tools or execs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct

from ....schemas.check import SchemaChecker
from ....schemas.document import Unreadable
from .roles import plain


class Need(IntEnum):
    MUST = 0
    """Without it the call would do something else."""
    SHOULD = 1
    """Without it the result would be larger or less exact than what was asked for."""
    MAY = 2


class Form(Struct, frozen=True):
    """One way to pass a value: the property names it may have, best first, and the value in that form."""

    names: tuple[str, ...]
    value: object
    says: re.Pattern[str] | None = None
    """Only for a property whose description matches."""


class Value(Struct, frozen=True):
    """One value to pass. The first form that the schema accepts is used."""

    forms: tuple[Form, ...]
    need: Need = Need.MUST


_MAX_BRANCHES: Final = 8
LABELS: Final = frozenset({"description", "explanation"})


def fit(
    schema: Mapping[str, object],
    values: Sequence[Value],
    *,
    least: Need = Need.SHOULD,
    label: str | None = None,
    fills: Sequence[Form] = (),
) -> dict[str, object] | None:
    """The arguments. None when a value of need `least` or stronger has no place, or the schema requires more than
    these and `fills`."""
    branches = _branches(schema)
    if branches:
        made = (fit(branch, values, least=least, label=label, fills=fills) for branch in branches)
        return next((one for one in made if one is not None and _Checker(schema).valid(one)), None)
    check = _Checker(schema)
    declared = _declared(schema)
    arguments: dict[str, object] = {}
    for value in values:
        place = _place(declared, check, value, arguments)
        if place is not None:
            name, argument = place
            arguments[name] = argument
        elif value.need <= least:
            return None
    for name in _required(schema):
        if name not in arguments and not _complete(arguments, name, declared, check, label, fills):
            return None
    return arguments if check.valid(arguments) else None


def _branches(schema: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The forms of a tool that takes one of several and declares no argument outside of them."""
    for word in ("anyOf", "oneOf"):
        several = schema.get(word)
        if isinstance(several, list | tuple) and "properties" not in schema:
            rest = {key: of for key, of in schema.items() if key != word}
            return [{**rest, **one} for one in several[:_MAX_BRANCHES] if isinstance(one, Mapping) and _plain(one)]
    return []


def _plain(branch: Mapping[str, object]) -> bool:
    return branch.get("type", "object") == "object" and "anyOf" not in branch and "oneOf" not in branch


def _declared(schema: Mapping[str, object]) -> Mapping[str, object] | None:
    """Property name -> its schema; None when the schema leaves the names open."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        return properties
    return None if schema.get("additionalProperties") is not False else {}


def _required(schema: Mapping[str, object]) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list | tuple) else []


def _place(
    declared: Mapping[str, object] | None, check: "_Checker", value: Value, taken: Mapping[str, object]
) -> tuple[str, object] | None:
    for form in value.forms:
        if declared is None:
            # Nothing is said about names: the usual ones are a fair guess for what matters, not for extras.
            if form.says is None and value.need is not Need.MAY and form.names[0] not in taken:
                return form.names[0], form.value
            continue
        for wanted in form.names:
            for name in _spelled(declared, wanted):
                if name in taken or not _says(form, declared[name]):
                    continue
                if check.takes(name, form.value):
                    return name, form.value
    return None


def _spelled(declared: Iterable[str], wanted: str) -> list[str]:
    """The declared names that mean `wanted`, its exact spelling first."""
    bare = plain(wanted)
    names = [name for name in declared if plain(name) == bare]
    return sorted(names, key=lambda name: name != wanted)


def _says(form: Form, of: object) -> bool:
    if form.says is None:
        return True
    description = of.get("description") if isinstance(of, Mapping) else None
    return isinstance(description, str) and form.says.search(description) is not None


def _complete(
    arguments: dict[str, object],
    name: str,
    declared: Mapping[str, object] | None,
    check: "_Checker",
    label: str | None,
    fills: Sequence[Form],
) -> bool:
    """Fill in required properties where that adds no information."""
    of = declared.get(name) if declared is not None else None
    offers: list[object] = []
    if label is not None and plain(name) in LABELS:
        offers.append(label)
    if isinstance(of, Mapping):
        if "default" in of:
            offers.append(of["default"])
        offers.append(None)
    offers += [form.value for form in fills if plain(name) in map(plain, form.names)]
    for offer in offers:
        if check.takes(name, offer):
            arguments[name] = offer
            return True
    return False


class _Checker:
    """A checker for the schema. One that cannot be read accepts nothing."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._checker = SchemaChecker(schema)

    def takes(self, name: str, value: object) -> bool:
        """True when the schema accepts this value for this property, whatever else it requires."""
        try:
            return not any(problem.path[:1] == (name,) for problem in self._checker.problems({name: value}))
        except Unreadable:
            return False

    def valid(self, arguments: dict[str, object]) -> bool:
        try:
            return self._checker.first(arguments) is None
        except Unreadable:
            return False
