"""Which tool schemas a simulated model's maker refuses: unions (Fable), enums of other than strings and tuples (Gemini,
Grok, Kimi). One refused schema ends the run. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .catalogue import Family

_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keys under these are names, not keywords."""
_VALUES: Final = ("enum", "const", "default", "examples", "required")
_STRICT_VALUES: Final = ("gemini", "grok", "kimi")


def refused(schema: Mapping[str, Any], family: Family, *, strict: bool = False) -> str:
    """Why the makers of this family refuse the schema; empty when they take it. `strict`: they refuse whatever any
    maker does."""
    if (family == "fable" or strict) and (found := _union(schema)):
        return found
    if family in _STRICT_VALUES or strict:
        for part in _parts(schema):
            enum = part.get("enum")
            if isinstance(enum, list) and not all(isinstance(value, str) for value in enum):
                return "enum"
            if isinstance(part.get("items"), list) or "prefixItems" in part:
                return "items"
    return ""


def _union(schema: Mapping[str, Any]) -> str:
    return next((key for part in _parts(schema) for key in _UNIONS if key in part), "")


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and every schema inside it."""
    waiting: list[Mapping[str, Any]] = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        for key, value in part.items():
            if key in _VALUES:
                continue
            inner = list(value.values()) if key in _NAMED and isinstance(value, dict) else [value]
            for one in inner:
                waiting += [each for each in (one if isinstance(one, list) else [one]) if isinstance(each, dict)]
