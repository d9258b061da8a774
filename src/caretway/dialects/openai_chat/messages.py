"""Decodes Chat `messages` into the history: roles, text and image parts, tool calls and results, legacy functions, text
files. A result without `tool_call_id` is an error; audio is refused.
Legacy function calls have no ids, so they get ids here, and the `function` message with the result finds the id by
name. Sessions and tickets are unknown here.
"""

from collections.abc import Callable, Mapping
from typing import Final

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
from ..attachments import decode_file, decode_image_url
from ..fields import (
    FieldPath,
    ToolMemory,
    an_array,
    an_object,
    call_arguments,
    check_declared,
    check_unique,
    choice_mode,
    invalid_value,
    missing,
    needed_name,
    needed_string,
    optional_bool,
    optional_string,
    unsupported,
    wrong_type,
)

# ---- Decodes `tools`, `tool_choice`, `parallel_tool_calls` and legacy `functions` into ToolSpec and ToolChoice. Tools
# other than functions and a choice of an undeclared tool are refused.
#
# Schemas are passed on unchanged; only their outermost structure is checked.

_FIELDS: Final = frozenset({"tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"})
_FORMS: Final = "'auto', 'none', 'required' or {'type': 'function', 'function': {'name': ...}}"


def decode_tools(
    body: Mapping[str, object], known: ToolMemory[ToolSet]
) -> tuple[tuple[ToolSpec, ...], ToolChoice, bool]:
    """The tools, the choice, and whether the client uses the legacy form."""
    if _FIELDS.isdisjoint(body):
        return (), ToolChoice(), False
    declared = body.get("tools")
    modern = () if declared is None else known.read(declared, lambda: _modern(declared))
    legacy = [_function_tool(one, FieldPath("", "functions", i)) for i, one in _each(body, "functions")]
    if modern and legacy:
        raise bad_request("Send either 'tools' or 'functions', not both.", param="functions", code="invalid_value")
    parallel = optional_bool(body, "parallel_tool_calls") is not False
    if legacy:
        tools = check_unique(legacy)
        # One call at a time: the legacy answer has room for only one.
        return tools, _legacy_choice(body.get("function_call"), tools), True
    return *_choose(body.get("tool_choice"), modern, parallel), False


def _modern(declared: object) -> ToolSet:
    tools = [_tool(one, FieldPath("", "tools", i)) for i, one in enumerate(an_array(declared, "tools"))]
    return ToolSet(check_unique(tools))


def _each(body: Mapping[str, object], key: str) -> enumerate[object]:
    value = body.get(key)
    return enumerate(() if value is None else an_array(value, key))


def _tool(value: object, at: FieldPath) -> tuple[FieldPath, ToolSpec]:
    tool = an_object(value, at)
    kind = needed_string(tool, "type", at)
    if kind != "function":
        hint = "Declare a function, or use POST /v1/responses." if kind == "custom" else ""
        raise unsupported(f"{at}.type", f"Tools of type {kind[:60]!r} are not supported, only 'function'.", hint=hint)
    if tool.get("function") is None:
        raise missing(f"{at}.function")
    return _function_tool(tool["function"], FieldPath(at, "function"))


def _function_tool(value: object, at: FieldPath) -> tuple[FieldPath, ToolSpec]:
    """The tool, and the path of its declaration."""
    function = an_object(value, at)
    name = needed_name(function, at)
    description = optional_string(function, "description", at) or ""
    schema = function.get("parameters")
    # `strict` has no effect: arguments are passed on exactly as the model wrote them.
    optional_bool(function, "strict", at)
    return at, ToolSpec(name, description, {} if schema is None else an_object(schema, FieldPath(at, "parameters")))


def _choose(value: object, tools: tuple[ToolSpec, ...], parallel: bool) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    if value is None:
        return tools, ToolChoice(parallel=parallel)
    if isinstance(value, str):
        return tools, ToolChoice(choice_mode(value, "tool_choice", tools, _FORMS), parallel=parallel)
    if not isinstance(value, dict):
        raise wrong_type("tool_choice", _FORMS, value)
    kind = needed_string(value, "type", "tool_choice")
    if kind == "function":
        name = _named(value, "tool_choice")
        check_declared(name, tools, "tool_choice.function.name")
        return tools, ToolChoice("named", name, parallel)
    if kind == "allowed_tools":
        return _allowed(value, tools, parallel)
    raise unsupported("tool_choice.type", f"A tool choice of type {kind[:60]!r} is not supported; use {_FORMS}.")


def _allowed(
    choice: Mapping[str, object], tools: tuple[ToolSpec, ...], parallel: bool
) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that `choice` allows, and the choice among them. The model does not see the other tools."""
    param = "tool_choice.allowed_tools"
    if choice.get("allowed_tools") is None:
        raise missing(param)
    allowed = an_object(choice["allowed_tools"], param)
    names: set[str] = set()
    for i, one in enumerate(an_array(allowed.get("tools"), f"{param}.tools")):
        at = f"{param}.tools[{i}]"
        name = _named(an_object(one, at), at)
        check_declared(name, tools, f"{at}.function.name")
        names.add(name)
    left = tuple(tool for tool in tools if tool.name in names)
    mode = optional_string(allowed, "mode", param) or "auto"
    return left, ToolChoice(choice_mode(mode, f"{param}.mode", left, _FORMS), parallel=parallel)


def _legacy_choice(value: object, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    if value is None:
        return ToolChoice(parallel=False)
    if isinstance(value, str):
        return ToolChoice(choice_mode(value, "function_call", tools, _FORMS), parallel=False)
    if not isinstance(value, dict):
        raise wrong_type("function_call", "'auto', 'none' or {'name': ...}", value)
    name = needed_string(value, "name", "function_call")
    check_declared(name, tools, "function_call.name")
    return ToolChoice("named", name, parallel=False)


def _named(holder: Mapping[str, object], param: str) -> str:
    function = holder.get("function")
    if function is None:
        raise missing(f"{param}.function")
    return needed_string(an_object(function, f"{param}.function"), "name", f"{param}.function")


_NO_IMAGES: Final = frozenset({"text", "refusal"})
_ANY_PART: Final = frozenset({"text", "refusal", "image_url", "file"})


class ChatMessageReader:
    """Reads one request's messages. `ignored` collects the names of fields without effect."""

    def __init__(self) -> None:
        self.ignored: dict[str, None] = {}
        self._functions: dict[str, str] = {}
        """Function name -> id of the legacy call that waits for its result."""
        self._numbered = 0

    def read(self, value: object) -> tuple[Message, ...]:
        if value is None:
            raise missing("messages", code="missing_messages")
        messages = an_array(value, "messages")
        if not messages:
            raise bad_request("'messages' must have at least one message.", param="messages", code="missing_messages")
        return tuple(
            [_plain(one) or self._message(one, FieldPath("", "messages", i)) for i, one in enumerate(messages)]
        )

    def _message(self, value: object, at: FieldPath) -> Message:
        message = an_object(value, at)
        role = needed_string(message, "role", at)
        reader = _READERS.get(role)
        if reader is None:
            raise invalid_value(f"{at}.role", f"use one of {', '.join(_READERS)}, not {role[:60]!r}.")
        return reader(self, message, at)

    def _system(self, message: Mapping[str, object], at: FieldPath) -> Message:
        if "name" in message:
            self._note_name(message, at)
        return Message(Role.SYSTEM, self._content(message, at, _NO_IMAGES))

    def _user(self, message: Mapping[str, object], at: FieldPath) -> Message:
        if "name" in message:
            self._note_name(message, at)
        return Message(Role.USER, self._content(message, at, _ANY_PART))

    def _assistant(self, message: Mapping[str, object], at: FieldPath) -> Message:
        if "name" in message:
            self._note_name(message, at)
        parts: list[Part] = []
        reasoning = optional_string(message, "reasoning_content", at)
        if reasoning:
            parts.append(Reasoning(reasoning))
        content = self._content(message, at, _NO_IMAGES)
        refusal = optional_string(message, "refusal", at)
        if refusal and not content:
            content = (Text(refusal),)
        parts += content
        calls = message.get("tool_calls")
        if calls is not None:
            listed = an_array(calls, FieldPath(at, "tool_calls"))
            parts += [_call(one, FieldPath(at, "tool_calls", i)) for i, one in enumerate(listed)]
        function = message.get("function_call")
        if function is not None:
            self._numbered += 1  # the same history gets the same ids, so a resent history is recognised
            legacy = _function(function, f"function_{self._numbered}", FieldPath(at, "function_call"))
            self._functions[legacy.name] = legacy.id
            parts.append(legacy)
        return Message(Role.ASSISTANT, tuple(parts))

    def _tool(self, message: Mapping[str, object], at: FieldPath) -> Message:
        call = message.get("tool_call_id")
        if call is None or call == "":
            raise bad_request(
                f"{at} has the role 'tool' and no 'tool_call_id': it must name the call it answers.",
                param=f"{at}.tool_call_id",
                code="missing_required_parameter",
            )
        return self._result(needed_string(message, "tool_call_id", at), message, at)

    def _function_result(self, message: Mapping[str, object], at: FieldPath) -> Message:
        name = needed_string(message, "name", at)
        call = self._functions.pop(name, None)
        if call is None:
            raise invalid_value(f"{at}.name", f"no earlier message calls the function {name[:128]!r}.")
        return self._result(call, message, at)

    def _result(self, call: str, message: Mapping[str, object], at: FieldPath) -> Message:
        return Message(Role.TOOL, (ToolResult(call, self._content(message, at, _ANY_PART)),))

    def _content(
        self, message: Mapping[str, object], at: FieldPath, allowed: frozenset[str]
    ) -> tuple[Text | Image, ...]:
        content = message.get("content")
        if isinstance(content, str):
            return (Text(content),) if content else ()
        if content is None:
            return ()
        if not isinstance(content, list):
            raise wrong_type(f"{at}.content", "a string or an array of parts", content)
        parts = [self._part(one, FieldPath(at, "content", i), allowed) for i, one in enumerate(content)]
        return tuple([part for part in parts if not isinstance(part, Text) or part.text])

    def _part(self, value: object, at: FieldPath, allowed: frozenset[str]) -> Text | Image:
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
        if kind not in allowed:
            raise invalid_value(f"{at}.type", f"use one of {', '.join(sorted(allowed))} here, not {kind[:60]!r}.")
        if kind == "image_url":
            return self._image(part, at)
        if kind == "file":
            if part.get("file") is None:
                raise missing(f"{at}.file")
            return decode_file(an_object(part["file"], FieldPath(at, "file")), FieldPath(at, "file"), kind)
        text = part.get(kind)
        if text is None:
            raise missing(f"{at}.{kind}")
        if not isinstance(text, str):
            raise wrong_type(f"{at}.{kind}", "a string", text)
        return Text(text)

    def _image(self, part: Mapping[str, object], at: FieldPath) -> Image:
        image = part.get("image_url")
        if isinstance(image, str):  # the Responses API's form, which some clients send here too
            return decode_image_url(image, FieldPath(at, "image_url"))
        if image is None:
            raise missing(f"{at}.image_url")
        place = FieldPath(at, "image_url")
        holder = an_object(image, place)
        if optional_string(holder, "detail", place) not in (None, "auto"):
            self.ignored["image_url.detail"] = None
        return decode_image_url(needed_string(holder, "url", place), FieldPath(place, "url"))

    def _note_name(self, message: Mapping[str, object], at: FieldPath) -> None:
        if optional_string(message, "name", at):
            self.ignored["messages.name"] = None


_PLAIN: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "developer": Role.SYSTEM}


def _plain(value: object) -> Message | None:
    """A message with only a role and one text, the usual form; None for another form."""
    if type(value) is dict and len(value) == 2:
        role, text = value.get("role"), value.get("content")
        if type(role) is str and type(text) is str and text and (speaker := _PLAIN.get(role)) is not None:
            return Message(speaker, (Text(text),))
    return None


_REFUSED: Final[dict[str, str]] = {"input_audio": "Audio"}

_READERS: Final[dict[str, Callable[[ChatMessageReader, Mapping[str, object], FieldPath], Message]]] = {
    "system": ChatMessageReader._system,
    "developer": ChatMessageReader._system,
    "user": ChatMessageReader._user,
    "assistant": ChatMessageReader._assistant,
    "tool": ChatMessageReader._tool,
    "function": ChatMessageReader._function_result,
}


def _call(value: object, at: FieldPath) -> ToolCall:
    call = an_object(value, at)
    kind = optional_string(call, "type", at)
    if kind not in (None, "function"):
        raise unsupported(f"{at}.type", f"Tool calls of type {str(kind)[:60]!r} are not supported, only 'function'.")
    name = needed_string(call, "id", at)
    if call.get("function") is None:
        raise missing(f"{at}.function")
    return _function(call["function"], name, FieldPath(at, "function"))


def _function(value: object, call: str, at: FieldPath) -> ToolCall:
    function = an_object(value, at)
    return ToolCall(call, needed_string(function, "name", at), call_arguments(function, at))
