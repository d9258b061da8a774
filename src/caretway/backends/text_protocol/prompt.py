"""A request with tools, calls and results -> plain text messages, as tags or as one transcript: where instructions
stand, results in the order of their calls, only what is new for a continued conversation. Pure.

A request without tools and thinking is passed on unchanged (except for a transcript of more than one message). Does not
know who sends the prompt.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from msgspec.structs import replace

from ...core.request import (
    Image,
    Message,
    Role,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    TurnRequest,
    in_place,
    leading,
)
from .instructions import HINT, THINKING_RULES, bridge, reminder
from .limits import DEFAULT_TEXT_LIMITS, TextLimits
from .quoting import quote, quote_attribute, quote_json, quote_lines

PromptStyle = Literal["tags", "transcript"]
_HEADS: Final[Mapping[Role, str]] = {Role.USER: "User: ", Role.ASSISTANT: "Assistant: ", Role.TOOL: ""}
_RESULTS: Final[Mapping[PromptStyle, str]] = {
    "tags": ' as <tool_result id="..." name="..."> elements',
    "transcript": " as [Tool result for ...] lines",
}


@dataclass(frozen=True, slots=True)
class Manner:
    """How one request is written as a prompt."""

    trigger: str
    style: PromptStyle = "tags"
    thinking: bool = False
    """The model is asked to think in tags."""
    continued: bool = False
    """Upstream remembers everything up to the last answer."""
    limits: TextLimits = DEFAULT_TEXT_LIMITS


def offers_tools(request: TurnRequest) -> bool:
    return bool(request.tools) and request.tool_choice.mode != "none"


def prepare(request: TurnRequest, manner: Manner) -> TurnRequest:
    """Text messages only, and no tools."""
    messages: Sequence[Message] = request.messages
    plain = not (offers_tools(request) or manner.thinking or _has_tool_parts(messages))
    if plain and (manner.style == "tags" or len(messages) < 2):
        return replace(request, tools=(), tool_choice=ToolChoice())
    messages = in_place(messages)
    answered = _answered(messages) if manner.continued else 0
    known, messages = messages[:answered], messages[answered:]
    prompt = (
        _transcript(request, messages, manner) if manner.style == "transcript" else _tagged(request, messages, manner)
    )
    if manner.continued and manner.style == "tags":
        prompt = (*known, *prompt)  # the backend drops what is remembered
    return replace(request, messages=prompt, tools=(), tool_choice=ToolChoice())


def mentions(request: TurnRequest, trigger: str) -> bool:
    """True when the request contains the trigger, which must then not be used."""
    texts = [tool.description for tool in request.tools]
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text(text=text) | ToolCall(arguments=text):
                    texts.append(text)
                case ToolResult():
                    texts.append(part.text)
                case _:
                    pass
    return any(trigger in text for text in texts)


def _has_tool_parts(messages: Sequence[Message]) -> bool:
    return any(isinstance(part, ToolCall | ToolResult) for message in messages for part in message.parts)


def _answered(messages: Sequence[Message]) -> int:
    return max((n for n, message in enumerate(messages, 1) if message.role is Role.ASSISTANT), default=0)


def _instructions(request: TurnRequest, manner: Manner) -> list[str]:
    texts: list[str] = []
    if offers_tools(request):
        choice, trigger = request.tool_choice, manner.trigger
        if manner.continued:
            texts.append(reminder(choice, trigger))
        else:
            texts.append(bridge(request.tools, choice, trigger, _RESULTS[manner.style], manner.limits))
    if manner.thinking and not manner.continued:
        texts.append(THINKING_RULES)
    return texts


# ---------------------------------------------------------------------------------------------- tags


def _tagged(request: TurnRequest, messages: Sequence[Message], manner: Manner) -> tuple[Message, ...]:
    prompt: list[Message] = []
    instructions = _instructions(request, manner)
    if not manner.continued:
        first, messages = messages[: leading(messages)], messages[leading(messages) :]
        system = "\n\n".join([*(quote(message.text) for message in first if message.text), *instructions])
        if system:
            prompt.append(Message(Role.SYSTEM, (Text(system),)))
        instructions = []
    calls: dict[str, _Made] = {}
    for message in _results_joined(messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = _Made(len(calls), part.name)
        prompt.append(_tagged_message(message, calls, instructions, manner, explained=offers_tools(request)))
        instructions = []
    return tuple(prompt)


@dataclass(frozen=True, slots=True)
class _Made:
    """A call in the history: its position and its tool."""

    number: int
    name: str


def _results_joined(messages: Sequence[Message]) -> Iterator[Message]:
    """Results of one step arrive as separate messages; the model reads them in one."""
    for role, run in groupby(messages, key=lambda message: message.role):
        if role is Role.TOOL:
            yield Message(role, tuple(part for message in run for part in message.parts))
        else:
            yield from run


def _tagged_message(
    message: Message, calls: Mapping[str, _Made], before: Sequence[str], manner: Manner, *, explained: bool
) -> Message:
    if message.role is Role.ASSISTANT:
        return Message(Role.ASSISTANT, (Text("\n".join(_said_and_called(message, manner, explained))),))
    results = sorted(
        (part for part in message.parts if isinstance(part, ToolResult)),
        key=lambda result: calls[result.call_id].number if result.call_id in calls else len(calls),
    )
    text = quote("".join(part.text for part in message.parts if isinstance(part, Text)))
    blocks = [*before]
    for result in results:
        name = calls[result.call_id].name if result.call_id in calls else ""
        blocks.append(tool_result(result.call_id, name, result.text, is_error=result.is_error))
    if text:
        blocks.append(text)
    if manner.thinking and message.role is Role.USER:
        blocks.append(HINT)
    return Message(Role.USER, (Text("\n\n".join(blocks)), *_images(message)))


def _said_and_called(message: Message, manner: Manner, explained: bool) -> Iterator[str]:
    if text := message.text:
        yield quote(text)
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    if calls and explained:
        yield manner.trigger
    for call in calls:
        yield _invoke(call) if explained else _called(call)


def _invoke(call: ToolCall) -> str:
    return f'<invoke name="{quote_attribute(call.name)}">{quote_json(call.arguments or "{}")}</invoke>'


def tool_result(call_id: str, name: str, text: str, *, is_error: bool = False) -> str:
    named = f' name="{quote_attribute(name)}"' if name else ""
    failed = ' error="true"' if is_error else ""
    return f'<tool_result id="{quote_attribute(call_id)}"{named}{failed}>\n{quote(text)}\n</tool_result>'


def _images(message: Message) -> Iterator[Image]:
    for part in message.parts:
        if isinstance(part, Image):
            yield part
        elif isinstance(part, ToolResult):
            yield from (inner for inner in part.content if isinstance(inner, Image))


# ---------------------------------------------------------------------------------------------- transcript


def _transcript(request: TurnRequest, messages: Sequence[Message], manner: Manner) -> tuple[Message, ...]:
    blocks: list[str] = []
    instructions = _instructions(request, manner)
    if not manner.continued:
        first, messages = messages[: leading(messages)], messages[leading(messages) :]
        if system := "\n\n".join([*(quote_lines(message.text) for message in first if message.text), *instructions]):
            blocks.append(f"System: {system}")
    else:
        blocks += instructions
    for message in messages:
        blocks += _transcript_blocks(message, manner)
    images = [image for message in messages for image in _images(message)]
    return (Message(Role.USER, (Text("\n\n".join(blocks)), *images)),)


def _transcript_blocks(message: Message, manner: Manner) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, ToolResult):
            failed = "(failed) " if part.is_error else ""
            yield f"[Tool result for {quote_attribute(part.call_id)}]: {failed}{quote_lines(part.text)}"
    calls = [_called(part) for part in message.parts if isinstance(part, ToolCall)]
    text = quote_lines(message.text)
    hint = [HINT] if manner.thinking and message.role is Role.USER and text else []
    if text or calls:
        yield _HEADS[message.role] + "\n".join([*([text] if text else []), *calls, *hint])


def _called(call: ToolCall) -> str:
    return f"[Called tool: {quote_attribute(call.name)}({quote_json(call.arguments or '{}')})]"
