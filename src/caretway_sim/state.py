"""The simulated conversation state in blobs: which blobs it names, its history from roots or turns, and the new blobs
and checkpoints as it grows. Pure: run.py asks and waits.

`StateReader` turns blobs into messages; `StateLedger` says which new blobs must be stored before a checkpoint may name
them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError

from caretway.cursor.wire.blobs import blob_id
from caretway.cursor.wire.messages import pb

from . import told_results
from .history import HistoryError, read_root, read_turn, write_root
from .model_input import InputMessage
from .tokens import CONTEXT_TOKENS

Blob = tuple[bytes, bytes]
_M = TypeVar("_M", pb.UserMessage, pb.ConversationStep, pb.ConversationTurnStructure)


def blob(data: bytes) -> Blob:
    return blob_id(data), data


@dataclass(slots=True)
class OpenTurn:
    """The turn that is being written: its user message and the steps so far, as blob ids."""

    user: bytes
    steps: list[bytes] = field(default_factory=list)


class StateReader:
    """In: a state, then the blobs it names, in two rounds. Out: the history, and the state's parts."""

    def __init__(self, state: pb.ConversationStateStructure) -> None:
        self._state = state
        self._turns: list[pb.AgentConversationTurnStructure] = []

    def outer(self) -> list[bytes]:
        return _unique([*self._state.root_prompt_messages_json, *self._state.turns])

    def inner(self, blobs: Mapping[bytes, bytes]) -> list[bytes]:
        """What the turns name, once they are there."""
        self._turns = [_turn(blobs[name]) for name in self._state.turns]
        return _unique([name for turn in self._turns for name in (turn.user_message, *turn.steps) if name])

    def history(self, blobs: Mapping[bytes, bytes], *, anywhere: bool = False) -> list[InputMessage]:
        """The prompt is made of the root messages; a state that has only turns is read from those. `anywhere`: results
        are looked for in turns and in prose too."""
        messages = [read_root(blobs[name]) for name in self._state.root_prompt_messages_json]
        if all(message.role == "system" for message in messages):
            return [*messages, *(message for turn in self._turns for message in self._read_turn(turn, blobs))]
        if not anywhere:
            return messages
        turns = [list(self._read_turn(turn, blobs)) for turn in self._turns]
        return told_results.in_prose(told_results.in_turns(messages, turns))

    def _read_turn(
        self, turn: pb.AgentConversationTurnStructure, blobs: Mapping[bytes, bytes]
    ) -> Iterator[InputMessage]:
        user = _parse(pb.UserMessage, blobs[turn.user_message]) if turn.user_message else pb.UserMessage()
        return read_turn(user, [_parse(pb.ConversationStep, blobs[name]) for name in turn.steps])

    def roots(self, blobs: Mapping[bytes, bytes]) -> list[bytes]:
        return [blobs[name] for name in self._state.root_prompt_messages_json]

    def last_turn(self) -> OpenTurn | None:
        if not self._turns:
            return None
        turn = self._turns[-1]
        return OpenTurn(turn.user_message, list(turn.steps))


def _unique(names: Iterable[bytes]) -> list[bytes]:
    return list(dict.fromkeys(names))


def _turn(data: bytes) -> pb.AgentConversationTurnStructure:
    return _parse(pb.ConversationTurnStructure, data).agent_conversation_turn


def _parse(kind: type[_M], data: bytes) -> _M:
    try:
        return kind.FromString(data)
    except DecodeError as broken:
        raise HistoryError(f"a blob is not a {kind.__name__}") from broken


class StateLedger:
    """The growing state of one run. Every method gives the blobs that the client must store."""

    def __init__(self, state: pb.ConversationStateStructure, turn: OpenTurn | None, request_id: str) -> None:
        self._roots = list(state.root_prompt_messages_json)
        self._turns = list(state.turns)
        self._turn = turn  # None: the next checkpoint opens a new one
        self._reopened = turn is not None
        self._request_id = request_id
        self._base = state

    def add_messages(self, messages: Sequence[InputMessage]) -> list[Blob]:
        stored = [blob(write_root(message)) for message in messages]
        self._roots.extend(name for name, _ in stored)
        return stored

    def put_first(self, message: InputMessage) -> Blob:
        stored = blob(write_root(message))
        self._roots.insert(0, stored[0])
        return stored

    def open_turn(self, user: pb.UserMessage) -> Blob:
        stored = blob(user.SerializeToString(deterministic=True))
        self._turn, self._reopened = OpenTurn(stored[0]), False
        return stored

    @property
    def has_turn(self) -> bool:
        return self._turn is not None

    def add_steps(self, steps: Sequence[pb.ConversationStep]) -> list[Blob]:
        assert self._turn is not None
        stored = [blob(step.SerializeToString(deterministic=True)) for step in steps]
        self._turn.steps.extend(name for name, _ in stored)
        return stored

    def write_turn(self) -> Blob:
        """The turn as it stands; the checkpoint names this version of it and no older one."""
        assert self._turn is not None
        turn = pb.ConversationTurnStructure()
        turn.agent_conversation_turn.user_message = self._turn.user
        turn.agent_conversation_turn.steps.extend(self._turn.steps)
        turn.agent_conversation_turn.request_id = self._request_id
        stored = blob(turn.SerializeToString(deterministic=True))
        if self._reopened:
            self._turns[-1] = stored[0]
        else:
            self._turns.append(stored[0])
            self._reopened = True
        return stored

    def checkpoint(self, used_tokens: int, window: int = CONTEXT_TOKENS) -> pb.ConversationStateStructure:
        state = pb.ConversationStateStructure()
        state.CopyFrom(self._base)  # what we do not understand travels on
        del state.root_prompt_messages_json[:]
        del state.turns[:]
        state.root_prompt_messages_json.extend(self._roots)
        state.turns.extend(self._turns)
        state.token_details.used_tokens = min(used_tokens, CONTEXT_TOKENS)
        state.token_details.max_tokens = window
        state.mode = pb.AGENT_MODE_AGENT
        return state
