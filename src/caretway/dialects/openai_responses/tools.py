"""Decodes `tools`, the tools inside the input, and `tool_choice` into ToolSpec and ToolChoice. Tools of a namespace
whose names clash get its prefix; the client's names are kept for the answer.
Upstream has only functions. A custom tool (free text as input) becomes a function with one string; the tools of a
namespace are offered one by one; a `tool_search` that the client executes is a function, too. Tools that OpenAI runs on
its own servers are not offered, but named in `ignored`, because agents always declare them and must not fail.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct, field

from ...core.request import ToolChoice, ToolSpec, TurnRequest
from ..fields import (
    At,
    FieldPath,
    an_array,
    an_object,
    check_declared,
    check_name,
    choice_mode,
    invalid_value,
    listable,
    needed_name,
    needed_string,
    optional_bool,
    optional_string,
    unsupported,
    wrong_type,
)

# ---- The parts of a request that its answer repeats: fields, and the client's names of renamed tools. Opaque to other
# packages; values only.

_KEY: Final = "openai_responses"


class Declared(Struct, frozen=True, gc=False):
    """A tool as its client declared it. Upstream it is a function, perhaps under another name."""

    kind: Literal["function", "custom", "search"]
    name: str
    namespace: str | None = None


class RequestEcho(Struct, frozen=True):
    repeated: Mapping[str, object] = field(default_factory=dict)
    """Fields of the response object that repeat the request."""
    tools: Mapping[str, Declared] = field(default_factory=dict)
    """Offered name -> the tool, for tools other than functions under their own name."""
    show_reasoning: bool = False
    store: bool = False
    """Whether the complete response is stored."""
    owner: str = ""
    """The owner of the stored response: a key or a connection."""
    passing: bool = False
    """Whether the owner is a connection."""
    input: tuple[Mapping[str, Any], ...] = ()
    """The items of this request only, for later lookups."""
    previous: str | None = None
    compacts: bool = False
    """Whether the answer is one `compaction` item."""

    def declared(self, offered: str) -> Declared:
        return self.tools.get(offered) or Declared("function", offered)

    def put(self) -> Mapping[str, object]:
        return {_KEY: self}


_NOTHING: Final = RequestEcho()


def echo_of(request: TurnRequest) -> RequestEcho:
    echo = request.echo.get(_KEY)
    return echo if isinstance(echo, RequestEcho) else _NOTHING


FREE_TEXT: Final = "input"
"""The only property of the function that represents a custom tool."""
SEARCH: Final = "tool_search"
"""The type and the name of the tool that finds a client's deferred tools."""
_CARRIERS: Final = frozenset({"additional_tools", "tool_search_output"})
"""Types of input items that contribute tools."""

_FORMS: Final = "'auto', 'none', 'required' or {'type': 'function', 'name': ...}"


class ResponsesTools(Struct):
    """The tools of one request."""

    specs: dict[str, ToolSpec] = field(default_factory=dict)
    """Offered name -> the tool."""
    declared: dict[str, Declared] = field(default_factory=dict)
    names: dict[tuple[str, str | None], str] = field(default_factory=dict)
    """(the client's name for a tool, its namespace) -> the offered name."""
    not_served: list[str] = field(default_factory=list)

    @property
    def ignored(self) -> list[str]:
        return listable([f"tools.{kind}" for kind in self.not_served])

    @property
    def renamed(self) -> dict[str, Declared]:
        """Tools whose offered name differs from the client's."""
        return {name: tool for name, tool in self.declared.items() if tool != Declared("function", name)}

    def offered(self, name: str, namespace: str | None) -> str:
        """The name of a client's tool upstream. A tool that is no longer declared keeps its own name."""
        return self.names.get((name, namespace), name)

    def add(self, tool: Declared, spec: ToolSpec, param: At) -> None:
        name = spec.name
        if name in self.specs and tool.namespace is not None:
            # Another tool has the bare name: add the namespace.
            name = check_name(f"{tool.namespace}__{tool.name}", param)
        if name in self.specs:
            raise invalid_value(param, f"the tool name '{name}' is used twice.")
        if tool.namespace is not None:
            spec = ToolSpec(name, spec.description, spec.schema, tool.namespace)
        self.specs[name] = spec
        self.declared[name] = tool
        self.names.setdefault((tool.name, tool.namespace), name)


class _Found(Struct, frozen=True):
    tool: Declared
    spec: ToolSpec
    """The spec under the client's name."""
    at: FieldPath

    @property
    def key(self) -> tuple[str, str | None]:
        return self.tool.name, self.tool.namespace


def decode_tools(
    body: Mapping[str, object], items: Iterable[tuple[At, Mapping[str, object]]] = ()
) -> tuple[ResponsesTools, tuple[ToolSpec, ...], ToolChoice]:
    """All declared tools, the allowed tools, and the choice. `items`: the whole input; for a tool that it declares
    again, the last definition counts."""
    box = ResponsesTools()
    declared = list(_read(_list(body, "tools"), "", box))
    more: dict[tuple[str, str | None], _Found] = {}
    for at, item in items:
        if item.get("type") in _CARRIERS and not by_server(item):
            more |= {found.key: found for found in _read(_inner(item, at), at, box)}
    found = [more.pop(one.key, one) for one in declared] + list(more.values())
    # Plain tools first: they keep their names, whatever names a namespace has.
    for one in sorted(found, key=lambda one: one.tool.namespace is not None):
        box.add(one.tool, one.spec, FieldPath(one.at, "name"))
    parallel = optional_bool(body, "parallel_tool_calls") is not False
    specs, choice = _choose(body.get("tool_choice"), box, parallel)
    return box, specs, choice


def by_server(item: Mapping[str, object]) -> bool:
    """Whether an item belongs to a tool search on OpenAI's servers, whose calls may have no id."""
    return item.get("type") != "additional_tools" and (item.get("execution") == "server" or item.get("call_id") is None)


def names_found(item: Mapping[str, object], at: At, box: ResponsesTools) -> list[str]:
    """The offered names of the tools in a `tool_search_output`."""
    return [box.offered(*one.key) for one in _read(_inner(item, at), at, ResponsesTools())]


def _list(holder: Mapping[str, object], key: str) -> list[object]:
    value = holder.get(key)
    return [] if value is None else an_array(value, key)


def _inner(holder: Mapping[str, object], at: At) -> list[object]:
    return an_array(holder.get("tools"), FieldPath(at, "tools"))


def _read(tools: Iterable[object], holder: At, box: ResponsesTools, namespace: str | None = None) -> Iterator[_Found]:
    for i, one in enumerate(tools):
        at = FieldPath(holder, "tools", i)
        tool = an_object(one, at)
        kind = needed_string(tool, "type", at)
        if kind == "namespace" and namespace is None:
            yield from _read(_inner(tool, at), at, box, needed_string(tool, "name", at))
        elif kind == "function":
            name = needed_name(tool, at)
            yield _Found(Declared("function", name, namespace), _function(tool, name, at), at)
        elif kind == "custom":
            name = needed_name(tool, at)
            yield _Found(Declared("custom", name, namespace), _custom(tool, name, at), at)
        elif kind == SEARCH and tool.get("execution") == "client":
            yield _Found(Declared("search", SEARCH), _function(tool, SEARCH, at), at)
        else:
            box.not_served.append(kind)


def _function(tool: Mapping[str, object], name: str, at: FieldPath) -> ToolSpec:
    schema = tool.get("parameters")
    # `strict` has no effect: arguments are passed on exactly as the model wrote them.
    optional_bool(tool, "strict", at)
    return ToolSpec(
        name,
        optional_string(tool, "description", at) or "",
        {} if schema is None else an_object(schema, FieldPath(at, "parameters")),
    )


def _custom(tool: Mapping[str, object], name: str, at: FieldPath) -> ToolSpec:
    description = optional_string(tool, "description", at) or ""
    rule = _grammar(tool.get("format"), FieldPath(at, "format"))
    text = {"type": "string", "description": "The whole input of the tool, as plain text."}
    return ToolSpec(
        name,
        "\n\n".join(piece for piece in (description, rule) if piece),
        {"type": "object", "properties": {FREE_TEXT: text}, "required": [FREE_TEXT], "additionalProperties": False},
    )


def _grammar(value: object, at: FieldPath) -> str:
    """A sentence for the description, because upstream does not enforce a grammar."""
    if value is None:
        return ""
    wanted = an_object(value, at)
    kind = needed_string(wanted, "type", at)
    if kind == "text":
        return ""
    if kind != "grammar":
        raise invalid_value(f"{at}.type", f"use text or grammar, not {kind[:60]!r}.")
    syntax = needed_string(wanted, "syntax", at)
    return f"`{FREE_TEXT}` must match this grammar ({syntax[:20]}):\n{needed_string(wanted, 'definition', at)}"


# ---- tool_choice


def _choose(value: object, box: ResponsesTools, parallel: bool) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    tools = tuple(box.specs.values())
    if value is None:
        return tools, ToolChoice(parallel=parallel)
    if isinstance(value, str):
        return tools, ToolChoice(choice_mode(value, "tool_choice", tools, _FORMS), parallel=parallel)
    if not isinstance(value, dict):
        raise wrong_type("tool_choice", _FORMS, value)
    kind = needed_string(value, "type", "tool_choice")
    if kind in ("function", "custom"):
        return tools, ToolChoice("named", _named(value, box, "tool_choice"), parallel)
    if kind == "allowed_tools":
        return _allowed(value, box, parallel)
    raise unsupported("tool_choice.type", f"A tool choice of type {kind[:60]!r} is not supported; use {_FORMS}.")


def _allowed(
    choice: Mapping[str, object], box: ResponsesTools, parallel: bool
) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that `choice` allows, and the choice among them. The model does not see the other tools."""
    names: set[str] = set()
    for i, one in enumerate(an_array(choice.get("tools"), "tool_choice.tools")):
        at = f"tool_choice.tools[{i}]"
        allowed = an_object(one, at)
        kind = needed_string(allowed, "type", at)
        if kind in ("function", "custom"):
            names.add(_named(allowed, box, at))
        elif kind == SEARCH:
            names.add(SEARCH)
    left = tuple(spec for name, spec in box.specs.items() if name in names)
    mode = optional_string(choice, "mode", "tool_choice") or "auto"
    return left, ToolChoice(choice_mode(mode, "tool_choice.mode", left, _FORMS), parallel=parallel)


def _named(holder: Mapping[str, object], box: ResponsesTools, at: str) -> str:
    name = box.offered(needed_string(holder, "name", at), optional_string(holder, "namespace", at))
    return check_declared(name, tuple(box.specs.values()), f"{at}.name")
