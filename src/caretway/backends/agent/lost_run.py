"""Finds the tool results that a checkpoint holds, from Cursor's own blobs (`tool-result` parts, steps of the newest
turn), because their calls are not repeated after a lost run. Pure.

The order on the wire proves nothing: a checkpoint from before a result may arrive after Cursor confirmed the result.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from ...core.errors import ErrorKind, GatewayError
from ...cursor.wire.messages import pb

# ---- Skips text and thinking that a new attempt repeats and the client has already seen since the last checkpoint.
# Text that differs raises `Diverged`; thinking may differ. Also the client's error for that case.
#
# A resumed run repeats what came after its checkpoint; a run that has no checkpoint repeats everything.

MAX_UNSAVED_CHARS: Final = 4 * 1024 * 1024
PAGE: Final = 1024
"""The number of pieces that are joined into one page."""


class Diverged(Exception):
    """The model's output differs from the output that the client already has."""

    def __init__(self, what: str, *, in_call: bool = False) -> None:
        super().__init__(what)
        self.in_call = in_call
        """The client has a part of a call that will not be completed."""


class Echo:
    __slots__ = ("_cap", "_pages", "_skip_reasoning", "_thought", "_thoughts", "_unsaved", "chars", "skip")

    def __init__(self, max_unsaved_chars: int = MAX_UNSAVED_CHARS) -> None:
        self._pages: list[str] = []
        self._unsaved: list[str] = []
        """The pieces after the pages. Joined pages save memory."""
        self.chars = 0
        self._cap = max_unsaved_chars
        self._thoughts: list[str] = []
        self._thought: list[str] = []
        self.skip = self._skip_reasoning = ""
        """Earlier output that the new attempt has not repeated yet."""

    @property
    def replayable(self) -> bool:
        return self.chars <= self._cap

    def saved(self) -> None:
        """A checkpoint holds this attempt's output so far: keep only earlier output that is not repeated yet."""
        self._unsaved = [self.skip] if self.skip else []
        self._thought = [self._skip_reasoning] if self._skip_reasoning else []
        self._pages, self._thoughts = [], []
        self.chars = len(self.skip) + len(self._skip_reasoning)

    def rewind(self) -> None:
        """A new attempt begins at the last checkpoint: expect the output since then again."""
        self.skip = "".join([*self._pages, *self._unsaved])
        self._skip_reasoning = "".join([*self._thoughts, *self._thought])

    def text(self, text: str) -> str:
        if self.skip:
            if self.skip.startswith(text):
                self.skip = self.skip[len(text) :]
                return ""
            if not text.startswith(self.skip):
                raise Diverged("the model sent other text than before")
            text, self.skip = text[len(self.skip) :], ""
        self.chars += len(text)
        if self.chars <= self._cap:
            self._unsaved.append(text)
            if self._unsaved[PAGE:]:
                self._pages.append("".join(self._unsaved))
                self._unsaved = []
        return text

    def reasoning(self, text: str) -> str:
        if self._skip_reasoning:
            if self._skip_reasoning.startswith(text):
                self._skip_reasoning = self._skip_reasoning[len(text) :]
                return ""
            text = text.removeprefix(self._skip_reasoning)  # a joined delta may continue beyond it
            self._skip_reasoning = ""  # different thinking may lead to the same answer
        self.chars += len(text)
        if self.chars <= self._cap:
            self._thought.append(text)
            if self._thought[PAGE:]:
                self._thoughts.append("".join(self._thought))
                self._thought = []
        return text


def diverged_fault(why: Diverged, *, in_call: bool) -> GatewayError:
    """The error for a client whose partial answer cannot be completed."""
    if in_call:
        return GatewayError(
            ErrorKind.UPSTREAM_DOWN,
            f"Cursor did not complete a tool call that it had begun: {why}.",
            hint="Do not run that call. Ask again.",
            code="tool_call_cut",
        )
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"The connection to Cursor broke in the middle of the answer, and then {why}.",
        hint="Ask again.",
    )


NAMELESS: Final = "exec_"
"""The prefix of ids for calls that came without an id."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")

Held = Callable[[str], bool | None]
"""call id -> whether the checkpoint holds its result; None if that cannot be read."""


def held_results(
    state: pb.ConversationStateStructure | None,
    pieces: Mapping[bytes, bytes],
    older: Collection[bytes] = frozenset(),
) -> Held:
    """A lookup of results in the checkpoint. `pieces` are the checkpoint's blobs by id; messages in `older` are not
    searched."""
    if state is None:
        return lambda _: False
    roots = [key for key in state.root_prompt_messages_json if key in pieces]
    steps = _newest_steps(state, pieces)
    if not roots and not steps:
        return lambda _: None
    messages = [pieces[key] for key in roots if key not in older]

    def held(call_id: str) -> bool | None:
        if call_id.startswith(NAMELESS):
            return None  # the gateway's own id, which Cursor does not know
        part = max(_PLAIN.findall(call_id), key=len, default="").encode()  # the rest may be escaped
        return any(_step_result(data, call_id) for data in steps if part in data) or any(
            _message_result(data, call_id) for data in messages if part in data
        )

    return held


def _newest_steps(state: pb.ConversationStateStructure, pieces: Mapping[bytes, bytes]) -> list[bytes]:
    try:
        turns = [pb.ConversationTurnStructure.FromString(pieces.get(key, b"")) for key in state.turns[-1:]]
    except DecodeError:
        return []
    return [pieces[name] for turn in turns for name in turn.agent_conversation_turn.steps if name in pieces]


def _step_result(data: bytes, call_id: str) -> bool:
    try:
        call = pb.ConversationStep.FromString(data).tool_call
    except DecodeError:
        return False
    kind = call.WhichOneof("tool")
    if kind is None:
        return False
    inner = getattr(call, kind)
    ids = (call.tool_call_id, getattr(getattr(inner, "args", None), "tool_call_id", ""))
    return call_id in ids and "result" in inner.DESCRIPTOR.fields_by_name and inner.HasField("result")


def _message_result(data: bytes, call_id: str) -> bool:
    try:
        message: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "tool-result" and part.get("toolCallId") == call_id
        for part in content
    )
