"""A request -> one SDK message: history quoted line by line (prompt injection), system prompt as text or as a rules
file, `tool_choice` in words, images, `model@key=value`. Pure.

The SDK takes no history and has no place for a system prompt. A conversation that an agent already knows is continued
with the new message alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ...core.estimate import TOOL_CHARS
from ...core.request import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult, ToolSpec, TurnRequest

SystemDelivery = Literal["message", "rules"]

HISTORY_HEAD: Final = (
    "Earlier in this conversation, for your information. Every line of it is quoted with `> `; nothing in it is a new "
    "request:"
)
HISTORY_FOOT: Final = "This is the end of what was said before. Now, from the user:"
RESULTS_FOOT: Final = (
    "This is the end of what was said before. The last tool results have just arrived: go on from here. Do not repeat "
    "calls whose results are above."
)
UNFINISHED_FOOT: Final = "This is the end of what was said before. Your last answer was cut off: go on where it ends."
NO_TOOLS_RULE: Final = "Answer in text. Do not call any tool in this turn."

_SPEAKERS: Final = {Role.USER: "user", Role.ASSISTANT: "you"}


@dataclass(frozen=True, slots=True)
class SdkOpening:
    """What a turn sends."""

    text: str
    images: tuple[Image, ...]
    tools: tuple[ToolSpec, ...]
    """Offered to the model. An agent keeps its tools, so they are the same in every turn of a conversation."""
    model: str
    parameters: tuple[tuple[str, str], ...]
    rules: str = ""
    """The system prompt, when it travels as a rule of the working directory."""
    calls_allowed: bool = True
    one_call: bool = False
    """At most one call in a response."""
    prompt_chars: int = 0


def compose(request: TurnRequest, *, known: bool, delivery: SystemDelivery) -> SdkOpening:
    """`known`: the agent has heard everything up to the last assistant message."""
    talk = [message for message in request.messages if message.role is not Role.SYSTEM]
    cut = _newest(talk)
    history, newest = talk[:cut], talk[cut:]
    pieces: list[str] = []
    images: list[Image] = []
    rules = request.system if delivery == "rules" else ""
    if not known:
        if request.system and delivery == "message":
            pieces.append(f"<instructions>\n{request.system}\n</instructions>")
        if history:
            pieces += [HISTORY_HEAD, quoted(history, images), _foot(history, newest)]
    if rule := _tool_rule(request):
        pieces.append(rule)
    said = "\n\n".join(message.text for message in newest if message.text)
    images += [part for message in newest for part in message.parts if isinstance(part, Image)]
    if said or not pieces:
        pieces.append(said)
    text = "\n\n".join(pieces)
    tool_chars = 0 if known else sum([len(tool.description) + TOOL_CHARS for tool in request.tools])
    model, parameters = split_variant(request.model)
    chosen = dict(parameters) | dict(request.parameters)
    return SdkOpening(
        text=text,
        images=tuple(images),
        tools=request.tools,
        model=model,
        parameters=tuple(chosen.items()),
        rules=rules,
        calls_allowed=request.tool_choice.mode != "none",
        one_call=not request.tool_choice.parallel,
        prompt_chars=len(text) + len(rules) + tool_chars,
    )


def _newest(talk: Sequence[Message]) -> int:
    """Where the user's newest words begin."""
    cut = len(talk)
    while cut and talk[cut - 1].role is Role.USER:
        cut -= 1
    return cut


def _foot(history: Sequence[Message], newest: Sequence[Message]) -> str:
    if newest:
        return HISTORY_FOOT
    return RESULTS_FOOT if history[-1].role is Role.TOOL else UNFINISHED_FOOT


def _tool_rule(request: TurnRequest) -> str:
    """`tool_choice` has no field: it is a rule to the model, checked when the step ends."""
    match request.tool_choice.mode:
        case "none" if request.tools:
            return NO_TOOLS_RULE
        case "required" if request.tools:
            return "You must call at least one of the offered tools before you answer in text."
        case "named":
            return f"You must call the tool `{request.tool_choice.name}` before you answer in text."
        case _:
            return ""


def quoted(history: Sequence[Message], images: list[Image]) -> str:
    """The history as text; its images are added to `images` and named by their number."""
    names = {part.id: part.name for message in history for part in message.parts if isinstance(part, ToolCall)}
    return "\n".join(line for message in history for line in _lines(message, names, images))


def _lines(message: Message, names: dict[str, str], images: list[Image]) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip():
                yield f"[{_SPEAKERS.get(message.role, message.role.value)}]"
                yield _quote(text)
            case Image():
                images.append(part)
                yield f"[user: image {len(images)}]"
            case ToolCall(name=name, arguments=arguments):
                yield f"[you called `{name}`]"
                yield _quote(arguments or "{}")
            case ToolResult(call_id=call, is_error=failed):
                yield f"[{'error' if failed else 'result'} of `{names.get(call, 'a tool')}`]"
                yield _quote(part.text)
                for image in part.content:
                    if isinstance(image, Image):
                        images.append(image)
                        yield f"[image {len(images)}]"
            case Text() | Reasoning():
                pass


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines() or [""])


def split_variant(model: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    base, _, chosen = model.partition("@")
    pairs = [piece.partition("=") for piece in chosen.split(",")]
    if not base or not all(name and equals and value for name, equals, value in pairs):
        return model, ()
    return base, tuple((name, value) for name, _, value in pairs)
