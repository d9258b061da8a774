"""Decodes `system` and `messages` into the history: checks where each block may stand, turns documents and search
results into text, and keeps returned thinking. Unknown blocks and server tools are left out and named.

Two tables map roles and blocks to their readers. In this API a tool result is part of a user message; in the history it
is a message of its own, before the user's text. A history from another provider must not break a conversation. Images
and documents are read from base64 and text; nothing is fetched. Sessions and tickets are unknown here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field

from ...core.errors import bad_request
from ...core.request import (
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSet,
    ToolSpec,
)
from ..attachments import decode_base64, decode_base64_image, image_type
from ..fields import (
    HEADING,
    At,
    FieldPath,
    ToolMemory,
    a_string,
    an_array,
    an_object,
    check_declared,
    check_unique,
    invalid_value,
    missing,
    needed_name,
    needed_string,
    optional_bool,
    optional_string,
    unsupported,
    wrong_type,
)

# ---- Decodes `tools` and `tool_choice` into ToolSpec and ToolChoice. A choice of a tool that is left out becomes auto.
#
# Tools that Anthropic runs itself, or whose schema only its own models know, cannot be offered to Cursor: they are left
# out and named, not refused, because clients like Claude Code always send them. Deferred tools are offered like others;
# Claude Code's placeholder for deferred tools is left out. `tool_addition` and `tool_removal` blocks in the messages
# are applied in their order.

_READ: Final = frozenset({"type", "name", "description", "input_schema"})
SILENT_IN_TOOLS: Final = frozenset({"cache_control", "defer_loading", "eager_input_streaming", "strict"})
"""Fields without effect: arguments are always passed on as soon as the model writes them."""
_CHOICE: Final = frozenset({"type", "name", "disable_parallel_tool_use"})
_FORMS: Final = "{'type': 'auto'}, {'type': 'any'}, {'type': 'none'} or {'type': 'tool', 'name': ...}"


_PLACEHOLDER: Final = "DeferredToolPlaceholder"
"""The deferred tool that Claude Code sends for tools that the model has not yet found. It must not be called."""


class Tools(Struct):
    """The tools of a request. `left_out` has the names of tools that are not offered."""

    offered: tuple[ToolSpec, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    left_out: set[str] = field(default_factory=set)
    ignored: dict[str, None] = field(default_factory=dict)


class ToolChange(Struct, frozen=True):
    """One `tool_addition` or `tool_removal`."""

    adds: bool
    tool: Mapping[str, object]
    at: FieldPath


def decode_tools(body: Mapping[str, object], changes: Sequence[ToolChange], known: ToolMemory[Tools]) -> Tools:
    given = body.get("tools")
    declared = Tools() if given is None else known.read(given, lambda: _declared(given))
    tools = Tools(declared.offered, left_out={*declared.left_out}, ignored={**declared.ignored})
    if changes:
        tools.offered = _changed(declared.offered, changes, tools)
    tools.choice = _choice(body.get("tool_choice"), tools)
    return tools


def _declared(given: object) -> Tools:
    """The declared tools, before a choice or a change."""
    tools = Tools()
    specs: list[tuple[At, ToolSpec]] = []
    for i, one in enumerate(an_array(given, "tools")):
        at = FieldPath("", "tools", i)
        spec = _tool(one, at, tools)
        if spec is not None:
            specs.append((at, spec))
    tools.offered = ToolSet(check_unique(specs))
    return tools


def _changed(declared: tuple[ToolSpec, ...], changes: Iterable[ToolChange], tools: Tools) -> tuple[ToolSpec, ...]:
    offered = {spec.name: spec for spec in declared}
    known = dict(offered)
    for change in changes:
        kind = needed_string(change.tool, "type", change.at)
        if kind == "tool_definition" and change.adds:
            spec = _tool(change.tool.get("definition"), FieldPath(change.at, "definition"), tools)
            if spec is not None:
                offered[spec.name] = known[spec.name] = spec
        elif kind == "tool_reference":
            name = needed_string(change.tool, "name", change.at)
            if not change.adds:
                offered.pop(name, None)
            elif name in known:
                offered[name] = known[name]
        else:  # tools of MCP servers that Anthropic connects to
            tools.ignored[f"{'tool_addition' if change.adds else 'tool_removal'}.{kind}"] = None
    return tuple(offered.values())


def _tool(value: object, at: FieldPath, tools: Tools) -> ToolSpec | None:
    tool = an_object(value, at)
    kind = optional_string(tool, "type", at)
    if kind not in (None, "custom"):
        tools.ignored[f"tools.{kind}"] = None
        tools.left_out.add(optional_string(tool, "name", at) or "")
        return None
    name = needed_name(tool, at)
    if name == _PLACEHOLDER and tool.get("defer_loading") is True:
        tools.left_out.add(name)
        return None
    for key in tool.keys() - _READ - SILENT_IN_TOOLS:
        if tool[key] is not None:
            tools.ignored[f"tools.{key}"] = None
    schema = tool.get("input_schema")
    return ToolSpec(
        name,
        optional_string(tool, "description", at) or "",
        {} if schema is None else an_object(schema, FieldPath(at, "input_schema")),
    )


def _choice(value: object, tools: Tools) -> ToolChoice:
    if value is None:
        return ToolChoice()
    choice = an_object(value, "tool_choice")
    kind = needed_string(choice, "type", "tool_choice")
    parallel = optional_bool(choice, "disable_parallel_tool_use", "tool_choice") is not True
    for key in choice.keys() - _CHOICE:
        tools.ignored[f"tool_choice.{key}"] = None
    if kind == "auto":
        return ToolChoice(parallel=parallel)
    if kind == "none":
        return ToolChoice("none")
    if kind == "any":
        if tools.offered:
            return ToolChoice("required", parallel=parallel)
        if not tools.left_out:
            raise invalid_value("tool_choice", "a tool call is required, and the request declares no tool.")
    elif kind == "tool":
        name = needed_string(choice, "name", "tool_choice")
        if name not in tools.left_out:
            return ToolChoice("named", check_declared(name, tools.offered, "tool_choice.name"), parallel)
    else:
        raise invalid_value("tool_choice.type", f"use {_FORMS}, not {kind[:60]!r}.")
    # The chosen tool cannot be offered (Claude Code's web search does this): the model may only answer in text.
    tools.ignored["tool_choice"] = None
    return ToolChoice(parallel=parallel)


_SYSTEM: Final = frozenset({"system"})
_USER: Final = frozenset({"user"})
_ASSISTANT: Final = frozenset({"assistant"})
_RESULT: Final = frozenset({"tool_result"})
_ANY: Final = _SYSTEM | _USER | _ASSISTANT | _RESULT

SILENT_IN_BLOCKS: Final = frozenset({"cache_control", "caller", "toolset_name"})
"""Fields accepted silently in every block: hints for Anthropic's own cache and tools."""
_MESSAGE: Final = SILENT_IN_BLOCKS | {"role", "content"}
_SAID: Final = (Text, Image)


class AnthropicMessageReader:
    """Reads one request's messages. `ignored` collects the names of fields and blocks without effect."""

    def __init__(self) -> None:
        self.ignored: dict[str, None] = {}
        self.tool_changes: list[ToolChange] = []
        self._summary: Text | None = None
        """The summary in the message that is being read; it replaces all earlier messages."""

    def read_system(self, value: object) -> list[Message]:
        """One message for each block, so that blocks stay separate as the client sent them."""
        if value is None:
            return []
        parts = self._content(value, "", "system", "system")
        return [Message(Role.SYSTEM, (part,)) for part in parts]

    def read(self, value: object) -> list[Message]:
        if value is None:
            raise missing("messages", code="missing_messages")
        messages = an_array(value, "messages")
        if not messages:
            raise bad_request("'messages' must have at least one message.", param="messages", code="missing_messages")
        read: list[Message] = []
        for i, one in enumerate(messages):
            said = self._message(one, FieldPath("", "messages", i))
            if self._summary is not None:
                read = [Message(Role.USER, (self._summary,))]
                self._summary = None
            read += said
        return read

    def _message(self, value: object, at: FieldPath) -> Iterable[Message]:
        message = an_object(value, at)
        role = needed_string(message, "role", at)
        ours = _ROLES.get(role)
        if ours is None:
            raise invalid_value(f"{at}.role", f"use one of {', '.join(_ROLES)}, not {role[:60]!r}.")
        if not message.keys() <= _MESSAGE:
            self._note_unknown(message, _MESSAGE, "messages")
        content = message.get("content")
        if content is None:
            if ours is not Role.SYSTEM:  # a system message may have settings only
                raise missing(f"{at}.content")
            return ()
        parts = self._content(content, at, "content", role)
        if self._summary is not None:
            parts = _behind(self._summary, parts)
            if not parts:
                return ()
        results = [Message(Role.TOOL, (part,)) for part in parts if isinstance(part, ToolResult)]
        if not results:
            return (Message(ours, tuple(parts)),)
        rest = tuple([part for part in parts if not isinstance(part, ToolResult)])
        return [*results, Message(ours, rest)] if rest else results

    def _content(self, value: object, holder: At, key: str, place: str) -> list[Part]:
        """The parts of a message or a tool result. `place`, the message's role or `tool_result`, decides which blocks
        are allowed."""
        if isinstance(value, str):
            return [Text(value)] if value else []
        if not isinstance(value, list):
            raise wrong_type(FieldPath(holder, key), "a string or an array of blocks", value)
        parts: list[Part] = []
        for i, one in enumerate(value):
            parts += self._block(one, FieldPath(holder, key, i), place)
        return parts

    def _plain(self, value: object, holder: At) -> list[Text | Image]:
        """The texts and images of a block's `content`; other parts are dropped."""
        parts = self._content(value, holder, "content", "tool_result")
        return [part for part in parts if isinstance(part, _SAID)]

    def _block(self, value: object, at: FieldPath, place: str) -> Iterable[Part]:
        block = an_object(value, at)
        kind = needed_string(block, "type", at)
        decoder = _BLOCKS.get(kind)
        if decoder is None:
            self.ignored[f"content.{kind}"] = None
            return ()
        places, fields, reader = decoder
        if place not in places:
            raise invalid_value(f"{at}.type", f"a block of type {kind!r} is not possible in {_PLACES[place]}.")
        if not block.keys() <= fields:
            self._note_unknown(block, fields, f"content.{kind}")
        return reader(self, block, at)

    def _note_unknown(self, holder: Mapping[str, object], fields: frozenset[str], prefix: str) -> None:
        for name in holder.keys() - fields:
            if holder[name] is not None:
                self.ignored[f"{prefix}.{name}"] = None

    def _text(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        if block.get("text") is None:
            raise missing(f"{at}.text")
        text = a_string(block["text"], FieldPath(at, "text"))
        return (Text(text),) if text else ()

    def _image(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        return (read_image(block, at),)

    def _document(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        heading = document_heading(block, at)
        kind, content = read_document_source(block, at)
        if kind == "text":
            return (Text(f"{heading}\n\n{content}\n"),)
        return (Text(f"{heading}\n\n"), *self._plain(content, FieldPath(at, "source")), Text("\n"))

    def _search_result(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        content = block.get("content")
        parts = [] if content is None else self._plain(content, at)
        return (search_result_text(block, at, parts),)

    def _tool_use(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        given = block.get("input")
        arguments = "{}" if given is None else msgspec.json.encode(an_object(given, FieldPath(at, "input"))).decode()
        return (ToolCall(needed_string(block, "id", at), needed_string(block, "name", at), arguments),)

    def _tool_result(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        call = needed_string(block, "tool_use_id", at)
        content = block.get("content")
        parts = [] if content is None else self._plain(content, at)
        return (ToolResult(call, tuple(parts), optional_bool(block, "is_error", at) is True),)

    def _tool_reference(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        """The result of a tool search. Deferred tools are offered from the start, so the model needs only the name."""
        return (Text(f"Tool: {needed_string(block, 'tool_name', at)}\n"),)

    def _thinking(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        text = optional_string(block, "thinking", at) or ""
        signature = optional_string(block, "signature", at) or ""
        return (Reasoning(text, signature),) if text or signature else ()

    def _redacted_thinking(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        """No parts: only Anthropic can read the block."""
        return ()

    def _tool_change(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        """Record a change of the tools. It stays in force when a summary replaces its message."""
        tool = FieldPath(at, "tool")
        self.tool_changes.append(ToolChange(block["type"] == "tool_addition", an_object(block.get("tool"), tool), tool))
        return ()

    def _compaction(self, block: Mapping[str, object], at: FieldPath) -> Iterable[Part]:
        """A summary of all earlier messages. A block without text is a failed compaction and is ignored."""
        text = optional_string(block, "content", at)
        if not text:
            return ()
        self._summary = Text(f"{HEADING}\n\n{text}")
        return (self._summary,)


def _behind(summary: Text, parts: list[Part]) -> list[Part]:
    place = next(i for i, part in enumerate(parts) if part is summary)
    return parts[place + 1 :]


_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_PLACES: Final = {
    "user": "a user message",
    "assistant": "an assistant message",
    "system": "a system prompt",
    "tool_result": "this place",
}


def _fields(*names: str) -> frozenset[str]:
    return SILENT_IN_BLOCKS.union(names)


_Reader = Callable[[AnthropicMessageReader, Mapping[str, object], FieldPath], Iterable[Part]]
_BLOCKS: Final[dict[str, tuple[frozenset[str], frozenset[str], _Reader]]] = {
    "text": (_ANY, _fields("type", "text"), AnthropicMessageReader._text),
    "image": (_USER | _RESULT, _fields("type", "source"), AnthropicMessageReader._image),
    "document": (_USER | _RESULT, _fields("type", "source", "title", "context"), AnthropicMessageReader._document),
    "search_result": (
        _USER | _RESULT,
        _fields("type", "source", "title", "content"),
        AnthropicMessageReader._search_result,
    ),
    "tool_use": (_ASSISTANT, _fields("type", "id", "name", "input"), AnthropicMessageReader._tool_use),
    "tool_result": (_USER, _fields("type", "tool_use_id", "content", "is_error"), AnthropicMessageReader._tool_result),
    "tool_reference": (_RESULT, _fields("type", "tool_name"), AnthropicMessageReader._tool_reference),
    "tool_addition": (_SYSTEM | _USER, _fields("type", "tool"), AnthropicMessageReader._tool_change),
    "tool_removal": (_SYSTEM | _USER, _fields("type", "tool"), AnthropicMessageReader._tool_change),
    "thinking": (_ASSISTANT, _fields("type", "thinking", "signature"), AnthropicMessageReader._thinking),
    "redacted_thinking": (_ASSISTANT, _fields("type", "data"), AnthropicMessageReader._redacted_thinking),
    "compaction": (_USER | _ASSISTANT, _fields("type", "content"), AnthropicMessageReader._compaction),
}
"""Block type -> where it is allowed, which fields are read or silently accepted, its reader."""


# ---- images and documents: base64 and text are read; nothing is fetched


_ELSEWHERE: Final[dict[str, str]] = {
    "url": "is not fetched from the network",
    "file": "cannot be taken from Anthropic's file store",
}

_PDF: Final = "JVBERi0"
"""The base64 prefix of every PDF."""


def read_image(block: Mapping[str, object], at: At) -> Image:
    source, kind = _source(block, at, "An image", "image_url_not_supported")
    place = FieldPath(at, "source")
    if kind != "base64":
        raise invalid_value(f"{place}.type", f"use base64, not {kind[:60]!r}.")
    declared = image_type(needed_string(source, "media_type", place), FieldPath(place, "media_type"))
    return decode_base64_image(_data(source, place), declared, FieldPath(place, "data"))


def document_heading(block: Mapping[str, object], at: At) -> str:
    """Title and context of the document: the lines above its text."""
    title = optional_string(block, "title", at)
    context = optional_string(block, "context", at)
    lines = [f"Document: {title}" if title else "Document:"]
    if context:
        lines.append(context)
    return "\n".join(lines)


def read_document_source(block: Mapping[str, object], at: At) -> tuple[str, object]:
    """Return ("text", its text), or ("content", blocks that the caller must read)."""
    source, kind = _source(block, at, "A document", "document_not_supported")
    place = FieldPath(at, "source")
    if kind == "content":
        if source.get("content") is None:
            raise missing(f"{place}.content")
        return kind, source["content"]
    if kind not in ("text", "base64"):
        raise invalid_value(f"{place}.type", f"use text, base64 or content, not {kind[:60]!r}.")
    declared = (optional_string(source, "media_type", place) or "text/plain").strip().lower()
    data = _data(source, place)
    if kind == "text":
        return kind, data
    if declared == "application/pdf" and not data.startswith(_PDF):
        raise invalid_value(f"{place}.data", "it is not a PDF in base64.")
    if not declared.startswith("text/"):
        what = "PDF documents" if declared == "application/pdf" else f"Documents of type {declared[:60]!r}"
        raise unsupported(
            f"{place}.media_type",
            f"{what} cannot be sent to Cursor.",
            code="document_not_supported",
            hint="Send the document's text.",
        )
    try:
        return "text", decode_base64(data).decode()
    except ValueError as error:
        raise invalid_value(
            f"{place}.data", f"the document is not UTF-8 text in base64 ({str(error)[:80]})."
        ) from error


def search_result_text(block: Mapping[str, object], at: At, found: list[Text | Image]) -> Text:
    title = optional_string(block, "title", at) or ""
    source = optional_string(block, "source", at) or ""
    text = "".join(part.text for part in found if isinstance(part, Text))
    return Text(f"Search result: {title} ({source})\n{text}\n")


def _source(block: Mapping[str, object], at: At, what: At, code: str) -> tuple[Mapping[str, object], str]:
    place = FieldPath(at, "source")
    if block.get("source") is None:
        raise missing(place)
    source = an_object(block["source"], place)
    kind = needed_string(source, "type", place)
    if kind in _ELSEWHERE:
        raise unsupported(
            f"{place}.type", f"{what} {_ELSEWHERE[kind]}.", code=code, hint="Send its content in the request."
        )
    return source, kind


def _data(source: Mapping[str, object], at: At) -> str:
    if source.get("data") is None:
        raise missing(f"{at}.data")
    return a_string(source["data"], FieldPath(at, "data"))
