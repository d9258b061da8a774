"""Every request field of the SDKs has a verdict in `docs/api.md`, every verdict is true, and every honoured one is
shown by a test."""

import ast
import importlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from typing_extensions import is_typeddict

from caretway.core.errors import GatewayError
from caretway.dialects.registry import dialects
from paper import api_fields
from paper.api_fields import SECTIONS, Row, Section

TESTS = Path(__file__).parents[1]
DIALECTS = {dialect.name: dialect for dialect in dialects()}
CASES = [(section, row) for section in SECTIONS for row in section.rows]
LEAST: dict[str, dict[str, Any]] = {
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "openai_completions": {"model": "m", "prompt": "hi"},
    "openai_responses": {"model": "m", "input": "hi"},
    "anthropic_messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
}
_OF_THE_ASSISTANT = ("tool_use", "thinking", "redacted_thinking", "server_tool_use", "compaction", "fallback")


# ---- what the SDKs know


def known(section: Section) -> set[str]:
    """The fields, or the values of `type`, that the SDKs' own types have."""
    found: set[str] = set()
    for place in section.types:
        module, _, name = place.partition(":")
        found |= set(_names(getattr(importlib.import_module(module), name), fields=not section.place))
    return found


def _names(kind: Any, *, fields: bool) -> Iterator[str]:
    if get_origin(kind) is Union:
        for one in get_args(kind):
            yield from _names(one, fields=fields)
    elif is_typeddict(kind):
        hints = get_type_hints(kind)
        yield from hints if fields else _literals(hints.get("type"))


def _literals(kind: Any) -> Iterator[str]:
    if get_origin(kind) is Literal:
        yield from get_args(kind)
    else:
        for one in get_args(kind):
            yield from _literals(one)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_no_field_is_without_a_verdict(section: Section) -> None:
    names = [row.name for row in section.rows]
    assert len(names) == len(set(names))
    without = {name for name in known(section) if not any(fnmatchcase(name, row) for row in names)}
    assert without == set(), "an SDK has new fields: give them a verdict in tests/paper/api_fields.py"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_no_verdict_is_about_nothing(section: Section) -> None:
    left = [row.name for row in section.rows if not any(fnmatchcase(name, row.name) for name in known(section))]
    assert set(left) == set(section.extra)


# ---- whether it is true


def body_with(section: Section, row: Row) -> dict[str, Any]:
    body: dict[str, Any] = {**LEAST[section.dialect]}
    if not section.place:
        body |= {"tools": [{"name": "f", "input_schema": {}}]} if section.dialect == "anthropic_messages" else {}
        return body | {row.name: row.sample}
    assert isinstance(row.sample, dict)
    typed = {"type": row.name.replace("*", "20260101"), **row.sample}
    if section.place == "tools":
        return body | {"tools": [typed]}
    if section.place == "edits":
        return body | {"context_management": {"edits": [typed]}}
    if section.place == "items":
        return body | {"input": [{"role": "user", "content": "hi"}, typed]}
    role = "assistant" if row.name in _OF_THE_ASSISTANT else "user"
    said = [{"role": "user", "content": "hi"}, {"role": role, "content": [typed]}]
    return body | {"input" if section.dialect == "openai_responses" else "messages": said}


def listed_as(section: Section, row: Row) -> str:
    name = row.name.replace("*", "20260101")
    return {
        "": name,
        "tools": f"tools.{name}",
        "items": f"input.{name}",
        "content": f"content.{name}",
        "edits": f"context_management.{name}",
    }[section.place]


def test_the_verdicts_are_true() -> None:
    for section, row in CASES:
        place = (section.title, row.name)
        decode = DIALECTS[section.dialect].decode
        body = body_with(section, row)
        if row.verdict == "refused":
            with pytest.raises(GatewayError) as caught:
                decode(body, {})
            assert caught.value.param, place
            assert row.words, (place, "a refusal names the way out")
            continue
        ignored = decode(body, {}).ignored
        listed = listed_as(section, row)
        named = [name for name in ignored if name == listed or name.startswith(listed + ".")]
        assert bool(named) == (row.verdict == "ignored"), (place, ignored)


# ---- whether it is shown


@cache
def defined_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_honoured_field_names_its_test() -> None:
    assert [row.name for _, row in CASES if row.verdict == "honoured" and not row.test] == []
    named = {row.test for _, row in CASES if row.test}
    assert [one for one in named if one.partition("::")[2] not in defined_in(TESTS / one.partition("::")[0])] == []


def test_the_page_is_made_from_the_table() -> None:
    page = api_fields.PAGE.read_text(encoding="utf-8")
    assert page == api_fields.page(), "docs/api.md is not up to date. Type: .venv/bin/python tests/paper/api_fields.py"
