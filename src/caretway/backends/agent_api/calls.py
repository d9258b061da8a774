"""The tool calls of one turn: which are open, what was said about them, when a step's calls are complete.

In: what the wire says about calls. Out: events, and typed answers once results come. Remembered: every call of the
turn, because after a drop the server may ask again for one that the client already has, or has already answered.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.protobuf.struct_pb2 import Value

from ...core.events import Event, ToolCallDelta, ToolCallReady, ToolCallStarted
from ...core.request import ToolResult
from ...wire.messages import pb

Convert = Callable[[int, ToolResult], list[bytes]]
"""(exec id, the client's result) -> the messages that answer the exec."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A built-in exec that a client's tool can do."""

    name: str
    arguments: str
    convert: Convert


@dataclass(frozen=True, slots=True)
class RunHere:
    """A built-in exec that the gateway runs itself, in its workspace."""


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str


Decision = Redirect | RunHere | Refuse
Policy = Callable[[pb.ExecServerMessage], Decision]
"""What to do with a built-in exec."""


class CallMismatch(ValueError):
    """The arguments that were streamed are not the arguments of the call."""


@dataclass(slots=True)
class Call:
    id: str
    name: str
    convert: Convert
    arguments: str = ""
    exec_id: int | None = None
    """The exec that waits for the result, on the current attempt."""
    growing: bool = False
    """The server began to tell us about it, and its exec has not come."""
    streamed: list[str] = field(default_factory=list)
    typed: bool = False
    """The answer has a fixed shape (a redirected exec) and no room for other words."""
    shown: bool = False
    """The client has the whole call."""
    result: ToolResult | None = None


class CallDesk:
    __slots__ = ("_calls", "_growing", "_listed", "_parallel", "_reopened", "_step", "_waiting")

    def __init__(self, *, parallel: bool) -> None:
        self._calls: dict[str, Call] = {}
        self._parallel = parallel
        self._growing = 0  # how many of them are
        self._listed = 0
        self._reopened = False
        self._step: list[Call] = []  # calls shown in this response
        self._waiting: list[Call] = []  # asked for, not shown: the client takes one call at a time

    # ---- what the server tells

    def listed(self, count: int) -> None:
        """The server says how many calls this step has."""
        self._listed = count

    def begin(self, call_id: str, name: str, convert: Convert) -> list[Event]:
        """The server began to write a call: show it as it grows."""
        if call_id in self._calls or not self._may_show():
            return []
        self._calls[call_id] = Call(call_id, name, convert, growing=True)
        self._growing += 1
        return [ToolCallStarted(call_id, name)]

    def grow(self, call_id: str, arguments: str) -> list[Event]:
        call = self._calls.get(call_id)
        if call is None or not call.growing or not arguments:
            return []
        call.streamed.append(arguments)
        return [ToolCallDelta(call_id, arguments)]

    def ask(
        self, call_id: str, exec_id: int, name: str, arguments: str, convert: Convert, *, typed: bool = False
    ) -> tuple[list[Event], bool]:
        """The server wants the call executed. Returns events, and True when the result is known already."""
        call = self._calls.get(call_id) or self._same(name, arguments)
        if call is not None and call.result is not None:
            return [], True
        if call is not None and call.shown:
            call.exec_id = exec_id  # asked again after a drop: the client has the call, only the exec id is new
            return [], False
        if call is None:
            call = self._calls[call_id] = Call(call_id, name, convert)
        call.exec_id = exec_id
        call.arguments = arguments
        call.convert = convert
        call.typed = typed
        started = call.growing
        if started:
            call.growing = False
            self._growing -= 1
        if not started and not self._may_show():
            self._waiting.append(call)
            return [], False
        return self._show(call, started=started), False

    def _show(self, call: Call, *, started: bool) -> list[Event]:
        events: list[Event] = [] if started else [ToolCallStarted(call.id, call.name)]
        text = "".join(call.streamed)
        if text:
            rest = _rest(text, call.arguments)
            call.arguments = text + rest
            if rest:
                events.append(ToolCallDelta(call.id, rest))
        events.append(ToolCallReady(call.id, call.name, call.arguments))
        call.shown = True
        self._step.append(call)
        return events

    def _may_show(self) -> bool:
        return self._parallel or not (self._step or self._growing)

    def _same(self, name: str, arguments: str) -> Call | None:
        """After a drop a model may repeat a call under a new id: what was answered is not run a second time."""
        if not self._reopened:
            return None
        return next((c for c in self._calls.values() if c.name == name and c.arguments == arguments), None)

    def reopened(self) -> None:
        """A new attempt: the old exec ids are void."""
        self._reopened = True
        for call in self._calls.values():
            call.exec_id = None

    def checkpointed(self) -> None:
        """The server's state holds every answered call: it will not ask for them again."""
        self._reopened = False

    def aborted(self, exec_id: int) -> None:
        """The server no longer wants the result. The client keeps its call; its answer goes nowhere."""
        for call in self._calls.values():
            if call.exec_id == exec_id:
                call.exec_id = None

    # ---- what the step is

    @property
    def step(self) -> list[Call]:
        return self._step

    @property
    def open(self) -> list[Call]:
        """Calls whose exec waits for a result."""
        return [call for call in self._calls.values() if call.exec_id is not None and call.result is None]

    def complete(self) -> bool:
        """True when nothing more can be expected of this step; False when only silence can tell."""
        if self._growing or not self._step:
            return False
        return not self._parallel or (self._listed > 0 and len(self._step) + len(self._waiting) >= self._listed)

    @property
    def growing(self) -> bool:
        return self._growing > 0

    # ---- what the client answers

    def carries_text(self, call_id: str) -> bool:
        """True when the answer to this call is free text: a redirected exec has a typed one."""
        return not self._calls[call_id].typed

    def submit(self, results: Iterable[ToolResult]) -> list[bytes]:
        messages: list[bytes] = []
        for result in results:
            call = self._calls[result.call_id]
            call.result = result
            if call.exec_id is not None:
                messages.extend(call.convert(call.exec_id, result))
        self._step = []
        self._listed = 0
        return messages

    def again(self, call_id: str, name: str, arguments: str, exec_id: int) -> list[bytes]:
        """The answer to a call that was answered before."""
        call = self._calls.get(call_id) or self._same(name, arguments)
        assert call is not None
        assert call.result is not None
        return call.convert(exec_id, call.result)

    def next_waiting(self) -> list[Event]:
        """A call that had to wait because the client takes one at a time."""
        return self._show(self._waiting.pop(0), started=False) if self._waiting else []


def _rest(streamed: str, final: str) -> str:
    """What is missing of the streamed text. The model's own spelling wins when it means the same."""
    try:
        if msgspec.json.decode(streamed) == msgspec.json.decode(final):
            return ""
    except msgspec.DecodeError:
        pass
    if final.startswith(streamed):
        return final[len(streamed) :]
    raise CallMismatch("the streamed arguments of a tool call differ from the call that followed")


def plain_value(value: Value) -> Any:
    """google.protobuf.Value -> Python. A whole number is an int: JSON has no 2.0 where the model wrote 2."""
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) < 2**53 else number
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return {key: plain_value(inner) for key, inner in value.struct_value.fields.items()}
        case "list_value":
            return [plain_value(inner) for inner in value.list_value.values]
        case _:
            return None


def arguments_json(args: Any) -> str:
    return msgspec.json.encode({key: plain_value(value) for key, value in args.items()}, order="sorted").decode()
