"""Decodes Responses `input` items into the history: messages, custom tool calls, results with images, reasoning, local
shell and patch calls of other agents. Unknown items are left out and named.
The assistant's items up to the next item of another role form one message, so that a conversation has the same
transcript here and in the chat API. Items of tools that OpenAI runs on its own servers are left out and named in
`ignored`. Sessions and tickets are unknown here.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from ...core.request import Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from ..attachments import decode_file, decode_image_url
from ..fields import (
    HEADING,
    At,
    FieldPath,
    a_string,
    an_array,
    an_object,
    call_arguments,
    invalid_value,
    listable,
    missing,
    needed_string,
    optional_string,
    unsupported,
    wrong_type,
)
from .tools import FREE_TEXT, SEARCH, ResponsesTools, by_server, names_found

_ROLES: Final[dict[str, Role]] = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}
_TEXTS: Final[dict[str, str]] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",  # the chat API's name, which some clients send here
    "refusal": "refusal",
    "encrypted_content": "encrypted_content",  # of Codex's agents: plain text of the model here
}
"""Type of a content part -> the key of its text."""
_REFUSED: Final[dict[str, str]] = {"input_audio": "Audio"}

Placed = tuple[At, Mapping[str, object]]
"""An item with its place in the request."""

_json = msgspec.json.Encoder().encode


class ItemReader:
    """Reads one request's items. `ignored` lists the names of items and fields without effect."""

    def __init__(self, tools: ResponsesTools) -> None:
        self._tools = tools
        self._messages: list[Message] = []
        self._answer: list[Part] = []
        self._ignored: dict[str, None] = {}
        self.compacts = False
        """Whether the request wants a summary instead of an answer."""

    @property
    def ignored(self) -> list[str]:
        return listable(self._ignored)

    def read(self, items: Iterable[Placed]) -> tuple[Message, ...]:
        for at, item in items:
            kind = kind_of_item(item, at)
            reader = _READERS.get(kind)
            if reader is None:
                self._ignored[f"input.{kind}"] = None
            else:
                reader(self, item, at)
        self._flush()
        return tuple(self._messages)

    def _flush(self) -> None:
        if self._answer:
            self._messages.append(Message(Role.ASSISTANT, tuple(self._answer)))
            self._answer = []

    # ---- messages

    def _message(self, item: Mapping[str, object], at: At) -> None:
        name = needed_string(item, "role", at)
        role = _ROLES.get(name)
        if role is None:
            raise invalid_value(f"{at}.role", f"use one of {', '.join(_ROLES)}, not {name[:60]!r}.")
        content = self._content(item.get("content"), at, "content", images=role is Role.USER)
        if role is Role.ASSISTANT:
            self._answer += content
        else:
            self._flush()
            self._messages.append(Message(role, tuple(content)))

    def _agent_message(self, item: Mapping[str, object], at: At) -> None:
        """Read a message between Codex's agents: a task, or its result."""
        self._flush()
        content = self._content(item.get("content"), at, "content", images=True)
        self._messages.append(Message(Role.USER, tuple(content)))

    def _reasoning(self, item: Mapping[str, object], at: At) -> None:
        texts: list[str] = []
        for key in ("summary", "content"):
            for i, one in enumerate(an_array(item.get(key) or [], FieldPath(at, key))):
                part = FieldPath(at, key, i)
                texts.append(optional_string(an_object(one, part), "text", part) or "")
        text = "\n\n".join(filter(None, texts))
        signature = optional_string(item, "encrypted_content", at) or ""
        if text or signature:
            self._answer.append(Reasoning(text, signature))

    def _compaction(self, item: Mapping[str, object], at: At) -> None:
        """Read a summary of the earlier conversation. A summary that OpenAI encrypted is reported as ignored."""
        summary = unwrap(item.get("encrypted_content"))
        if summary is None:
            self._ignored["input.compaction"] = None
            return
        self._flush()
        self._messages.append(Message(Role.USER, (Text(f"{HEADING}\n\n{summary}"),)))

    def _additional_tools(self, item: Mapping[str, object], at: At) -> None:
        """Adds nothing to the conversation: the item's tools are read with the request's tools."""
        role = optional_string(item, "role", at)
        if role not in (None, "developer"):
            raise invalid_value(f"{at}.role", f"use developer, not {role[:60]!r}.")

    def _compaction_trigger(self, item: Mapping[str, object], at: At) -> None:
        """Note that the client wants a summary of the whole conversation, at whatever position the item is."""
        self.compacts = True

    def _content(self, value: object, holder: At, key: str, *, images: bool) -> list[Text | Image]:
        if isinstance(value, str):
            return [Text(value)] if value else []
        if value is None:
            return []
        if not isinstance(value, list):
            raise wrong_type(FieldPath(holder, key), "a string or an array of parts", value)
        parts = [self._part(one, FieldPath(holder, key, i), images) for i, one in enumerate(value)]
        return [part for part in parts if not isinstance(part, Text) or part.text]

    def _part(self, value: object, at: FieldPath, images: bool) -> Text | Image:
        part = an_object(value, at)
        kind = needed_string(part, "type", at)
        refused = _REFUSED.get(kind)
        if refused is not None:
            raise unsupported(
                f"{at}.type",
                f"{refused} cannot be sent to Cursor.",
                code=f"{kind}_not_supported",
                hint="Send it as text.",
            )
        if kind == "input_image" and images:
            return self._image(part, at)
        if kind == "input_file" and images:
            return decode_file(part, at, kind)
        key = _TEXTS.get(kind)
        if key is None:
            possible = ", ".join((*_TEXTS, "input_image", "input_file") if images else _TEXTS)
            raise invalid_value(f"{at}.type", f"use one of {possible} here, not {kind[:60]!r}.")
        if part.get(key) is None:
            raise missing(f"{at}.{key}")
        return Text(a_string(part[key], FieldPath(at, key)))

    def _image(self, part: Mapping[str, object], at: FieldPath) -> Image:
        if part.get("image_url") is None and part.get("file_id") is not None:
            raise unsupported(
                f"{at}.file_id",
                "This gateway stores no files.",
                code="file_id_not_supported",
                hint="Send the image itself in `image_url`, as a data: URL.",
            )
        if optional_string(part, "detail", at) not in (None, "auto"):
            self._ignored["input_image.detail"] = None
        return decode_image_url(needed_string(part, "image_url", at), FieldPath(at, "image_url"))

    # ---- calls and their results

    def _function_call(self, item: Mapping[str, object], at: At) -> None:
        self._call(item, at, call_arguments(item, at))

    def _custom_call(self, item: Mapping[str, object], at: At) -> None:
        self._call(item, at, _json({FREE_TEXT: optional_string(item, "input", at) or ""}).decode())

    def _call(self, item: Mapping[str, object], at: At, arguments: str) -> None:
        name = self._tools.offered(needed_string(item, "name", at), optional_string(item, "namespace", at))
        self._answer.append(ToolCall(needed_string(item, "call_id", at), name, arguments))

    def _search_call(self, item: Mapping[str, object], at: At) -> None:
        if by_server(item):
            self._ignored["input.tool_search_call"] = None
            return
        given = item.get("arguments")
        arguments = call_arguments(item, at) if given is None or isinstance(given, str) else _json(given).decode()
        name = self._tools.offered(SEARCH, None)
        self._answer.append(ToolCall(needed_string(item, "call_id", at), name, arguments))

    def _search_result(self, item: Mapping[str, object], at: At) -> None:
        """Read the names of the found tools as a result. The model has the definitions among its tools."""
        if by_server(item):
            self._ignored["input.tool_search_output"] = None
            return
        names = names_found(item, at, self._tools)
        text = "".join([f"Tool: {name}\n" for name in names]) or "No tool was found.\n"
        self._add_result(needed_string(item, "call_id", at), (Text(text),))

    def _local_call(self, item: Mapping[str, object], at: At) -> None:
        """Read a call of a tool that only OpenAI's models have, from a history of OpenAI."""
        kind = str(item["type"]).removesuffix("_call")
        what = item.get("action") or item.get("operation") or {}
        self._answer.append(ToolCall(_call_id(item, at), kind, _json(what).decode()))

    def _result(self, item: Mapping[str, object], at: At) -> None:
        if item.get("output") is None:
            raise missing(f"{at}.output")
        content = self._content(item["output"], at, "output", images=True)
        self._add_result(_call_id(item, at), tuple(content))

    def _local_result(self, item: Mapping[str, object], at: At) -> None:
        output = item.get("output")
        text = output if isinstance(output, str) else _json(output).decode() if output is not None else ""
        self._add_result(_call_id(item, at), (Text(text),) if text else ())

    def _add_result(self, call: str, content: tuple[Text | Image, ...]) -> None:
        self._flush()
        self._messages.append(Message(Role.TOOL, (ToolResult(call, content),)))


def kind_of_item(item: Mapping[str, object], at: At) -> str:
    """The type of an item, which messages and references may omit."""
    kind = optional_string(item, "type", at)
    if kind is not None:
        return kind
    if item.get("role") is not None:
        return "message"
    if item.get("id") is not None:
        return "item_reference"
    raise missing(f"{at}.type")


def _call_id(item: Mapping[str, object], at: At) -> str:
    """The call's id. Older items of local shells have only an `id`."""
    if item.get("call_id") is None and item.get("id") is not None:
        return needed_string(item, "id", at)
    return needed_string(item, "call_id", at)


_READERS: Final[dict[str, Callable[[ItemReader, Mapping[str, object], At], None]]] = {
    "message": ItemReader._message,
    "agent_message": ItemReader._agent_message,
    "reasoning": ItemReader._reasoning,
    "compaction": ItemReader._compaction,
    "compaction_trigger": ItemReader._compaction_trigger,
    "function_call": ItemReader._function_call,
    "function_call_output": ItemReader._result,
    "custom_tool_call": ItemReader._custom_call,
    "custom_tool_call_output": ItemReader._result,
    "additional_tools": ItemReader._additional_tools,
    "tool_search_call": ItemReader._search_call,
    "tool_search_output": ItemReader._search_result,
    "local_shell_call": ItemReader._local_call,
    "local_shell_call_output": ItemReader._local_result,
    "shell_call": ItemReader._local_call,
    "shell_call_output": ItemReader._local_result,
    "apply_patch_call": ItemReader._local_call,
    "apply_patch_call_output": ItemReader._local_result,
}


# ---- the summary in a `compaction` item


MARK: Final = "caretway1."
"""The prefix of summaries that this gateway has wrapped."""


def wrap(summary: str) -> str:
    return MARK + base64.b64encode(summary.encode("utf-8", "replace")).decode("ascii")


def unwrap(content: object) -> str | None:
    """The summary; None if this gateway did not wrap it."""
    if not isinstance(content, str) or not content.startswith(MARK):
        return None
    try:
        return base64.b64decode(content[len(MARK) :], validate=True).decode()
    except ValueError:
        return None
