"""Opens a simulated run: fetches the blobs that its state names (a missing blob ends the run), the request context, the
tools and the system prompt; applies the rules of admission.

The request context is fetched unless the request brought it; new blobs are stored at the client.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from caretway.cursor.wire.blobs import blob_id
from caretway.cursor.wire.envelope import ConnectError
from caretway.cursor.wire.messages import pb

from . import admission, faults
from .admission import Choice
from .history import HistoryError, read_root, read_turn, read_typed, read_user, write_root
from .manners import Manners
from .model_input import CONTEXT_TOKENS, InputCall, InputMessage, InputResult, InputText, Part, Piece, Tool, estimate
from .pending import Pending
from .shared import Stats

# ---- toolbox

# The client tools of a simulated run: merged from the run request and the context (each once, or only the tools that
# are in both), their schemas and their tokens.


def merged(
    in_run: Sequence[pb.McpToolDefinition], in_context: Sequence[pb.McpToolDefinition], *, both: bool = False
) -> list[pb.McpToolDefinition]:
    """The tools of a run, each once: clients name the same tools in the run request and in the request context.

    `both`: only the tools that are in both.
    """
    known: dict[str, pb.McpToolDefinition] = {}
    for definition in [*in_run, *in_context]:
        known.setdefault(_key(definition), definition)
    if not both:
        return list(known.values())
    twice = {_key(one) for one in in_run} & {_key(one) for one in in_context}
    return [definition for key, definition in known.items() if key in twice]


def _key(definition: pb.McpToolDefinition) -> str:
    return definition.name or definition.tool_name


def read_tools(definitions: Iterable[pb.McpToolDefinition]) -> tuple[Tool, ...]:
    return tuple(
        Tool(one.name, one.tool_name, one.provider_identifier, one.description, _read_schema(one))
        for one in definitions
    )


def _read_schema(definition: pb.McpToolDefinition) -> dict[str, Any]:
    if definition.input_schema_json:
        try:
            schema = msgspec.json.decode(definition.input_schema_json)
        except msgspec.DecodeError:
            schema = None
    else:
        schema = json_format.MessageToDict(definition.input_schema) if definition.HasField("input_schema") else None
    return schema if isinstance(schema, dict) else {}


def piece(tools: Sequence[Tool]) -> Piece:
    """The tools as a piece of a prompt, sorted: their order does not reach the model."""
    lines = sorted(
        f"{tool.shown}\x00{tool.description}\x00{msgspec.json.encode(tool.schema, order='sorted').decode()}"
        for tool in tools
    )
    text = "\n".join(lines)
    return Piece(f"tools\x00{text}", estimate(text))


# ---- state

# The simulated conversation state in blobs: the blobs that it names, its history from roots or turns, and the new blobs
# and checkpoints as it grows. Pure; run.py does the I/O.

# ---- results outside of tool results

# Finds tool results that clients send outside of `tool-result` parts: in the steps of `turns`, or in an assistant's
# prose. Pure.

_MARK: Final = re.compile(r"^\[Tool (?:Result|Error)\][ \t]*\n", re.MULTILINE)
_OUTPUT: Final = re.compile(r"^output:[ \t]*\n", re.MULTILINE)
_INVOKED: Final = re.compile(r"\A(?:\[tool_result\]\n)?(?:invoked:[^\n]*\n)?")


def in_prose(messages: Sequence[InputMessage]) -> list[InputMessage]:
    """The messages with results in an assistant's prose turned into calls with results."""
    return [
        _read(message, number) if message.role == "assistant" else message for number, message in enumerate(messages)
    ]


def _read(message: InputMessage, number: int) -> InputMessage:
    parts: list[Part] = []
    for part in message.parts:
        marks = list(_MARK.finditer(part.text)) if isinstance(part, InputText) else []
        if not marks or not isinstance(part, InputText):
            parts.append(part)
            continue
        if before := part.text[: marks[0].start()].strip():
            parts.append(InputText(before))
        ends = [mark.start() for mark in marks[1:]] + [len(part.text)]
        for place, (mark, end) in enumerate(zip(marks, ends, strict=True)):
            call_id = f"told-{number}-{place}"
            parts.append(InputCall(call_id, "", "{}"))
            parts.append(InputResult(call_id, "", _output(part.text[mark.end() : end]), in_prose=True))
    return replace(message, parts=tuple(parts))


def _output(text: str) -> str:
    found = _OUTPUT.search(text)
    return (text[found.end() :] if found else _INVOKED.sub("", text, count=1)).strip("\n")


def in_turns(messages: Sequence[InputMessage], turns: Sequence[Sequence[InputMessage]]) -> list[InputMessage]:
    """The root messages. If a turn has calls that no root has, the turn's messages replace the roots after its user
    message."""
    known = {part.call_id for one in messages for part in one.parts if isinstance(part, InputCall | InputResult)}
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    blocks = dict(zip(reversed(users), reversed(turns), strict=False))
    if not users:
        return list(messages)
    merged = list(messages[: users[0]])
    for user, end in zip(users, [*users[1:], len(messages)], strict=True):
        turn = blocks.get(user, ())
        if any(_is_new(part, known) for message in turn for part in message.parts):
            merged += [messages[user], *(_in_prose(message, known) for message in turn[1:])]
        else:
            merged += messages[user:end]
    return merged


def _is_new(part: Part, known: set[str]) -> bool:
    return isinstance(part, InputCall | InputResult) and part.call_id not in known


def _in_prose(message: InputMessage, known: set[str]) -> InputMessage:
    parts = [
        replace(part, in_prose=True) if isinstance(part, InputResult) and _is_new(part, known) else part
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


# ---- state


Blob = tuple[bytes, bytes]
_M = TypeVar("_M", pb.UserMessage, pb.ConversationStep, pb.ConversationTurnStructure)


def blob(data: bytes) -> Blob:
    return blob_id(data), data


@dataclass(slots=True)
class OpenTurn:
    """The turn in progress: blob ids of its user message and of its steps so far."""

    user: bytes
    steps: list[bytes] = field(default_factory=list)


class StateReader:
    """Reads a state and, in two rounds, the blobs that it names; returns the history and the parts of the state."""

    def __init__(self, state: pb.ConversationStateStructure) -> None:
        self._state = state
        self._turns: list[pb.AgentConversationTurnStructure] = []

    def outer(self) -> list[bytes]:
        return _unique([*self._state.root_prompt_messages_json, *self._state.turns])

    def inner(self, blobs: Mapping[bytes, bytes]) -> list[bytes]:
        """The blob ids that the turns name. Needs the blobs of `outer`."""
        self._turns = [_turn(blobs[name]) for name in self._state.turns]
        return _unique([name for turn in self._turns for name in (turn.user_message, *turn.steps) if name])

    def history(self, blobs: Mapping[bytes, bytes], *, anywhere: bool = False) -> list[InputMessage]:
        """The history comes from the root messages, or from the turns if the state has only turns. `anywhere`: results
        are also looked for in turns and in prose."""
        messages = [read_root(blobs[name]) for name in self._state.root_prompt_messages_json]
        if all(message.role == "system" for message in messages):
            return [*messages, *(message for turn in self._turns for message in self._read_turn(turn, blobs))]
        if not anywhere:
            return messages
        turns = [list(self._read_turn(turn, blobs)) for turn in self._turns]
        return in_prose(in_turns(messages, turns))

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
    """The growing state of one run. Every method returns the blobs that the client must store."""

    def __init__(self, state: pb.ConversationStateStructure, turn: OpenTurn | None, request_id: str) -> None:
        self._roots = list(state.root_prompt_messages_json)
        self._turns = list(state.turns)
        self._turn = turn  # None: the next checkpoint opens a new turn
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
        """The blob of the turn as it stands; the checkpoint names this version alone."""
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
        state.CopyFrom(self._base)  # unknown fields are kept
        del state.root_prompt_messages_json[:]
        del state.turns[:]
        state.root_prompt_messages_json.extend(self._roots)
        state.turns.extend(self._turns)
        state.token_details.used_tokens = min(used_tokens, CONTEXT_TOKENS)
        state.token_details.max_tokens = window
        state.mode = pb.AGENT_MODE_AGENT
        return state


# ---- start


MAX_BLOBS: Final = 50_000
MAX_BLOBS_IN_FLIGHT: Final = 256
MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Of all blobs that one run fetches."""
RULES_OPEN: Final = "<rules>"
SYSTEM_PROMPT: Final = "You are a simulated agent."


class RunRefused(Exception):
    """The run ends with this error."""

    def __init__(self, error: ConnectError) -> None:
        super().__init__(error.message)
        self.error = error


class EmptyTurn(Exception):
    """The run ends without an error, without text and without usage."""


@dataclass(frozen=True, slots=True)
class SimConversation:
    history: list[InputMessage]
    system: str
    tools: tuple[Tool, ...]
    ledger: StateLedger
    model: str
    id: str
    """The scope of its prompt cache: a new conversation begins cold, as if another machine served it."""
    preamble: bool = True
    """The prompt begins with Cursor's own instructions."""


class Blobs:
    """The client's blob store, as the server sees it."""

    def __init__(self, pending: Pending, stats: Stats) -> None:
        self._pending = pending
        self._stats = stats
        self.known: dict[bytes, bytes] = {}
        self._bytes = 0

    async def fetch(self, names: Sequence[bytes]) -> None:
        lacking = [name for name in names if name not in self.known]
        if len(self.known) + len(lacking) > MAX_BLOBS:
            raise RunRefused(faults.bad_request(f"the conversation names more than {MAX_BLOBS} blobs"))
        for start in range(0, len(lacking), MAX_BLOBS_IN_FLIGHT):
            batch = lacking[start : start + MAX_BLOBS_IN_FLIGHT]
            answers = await asyncio.gather(*[self._pending.get_blob(name) for name in batch])
            for name, answer in zip(batch, answers, strict=True):
                result = answer.get_blob_result
                if not result.HasField("blob_data"):
                    self._stats.blobs_missing += 1
                    raise RunRefused(faults.BLOB_NOT_FOUND)
                self._stats.blobs_got += 1
                self._stats.blob_bytes_got += len(result.blob_data)
                self.known[name] = result.blob_data
                self._bytes += len(result.blob_data)
            if self._bytes > MAX_STATE_BYTES:
                raise RunRefused(faults.bad_request(f"the conversation has more than {MAX_STATE_BYTES} bytes"))

    async def store(self, blobs: Sequence[Blob]) -> None:
        for start in range(0, len(blobs), MAX_BLOBS_IN_FLIGHT):
            batch = blobs[start : start + MAX_BLOBS_IN_FLIGHT]
            answers = await asyncio.gather(*[self._pending.set_blob(*blob) for blob in batch])
            for answer in answers:
                if answer.set_blob_result.HasField("error"):
                    raise RunRefused(faults.SCRIPTED["internal"])
                self._stats.blobs_set += 1


async def open_conversation(
    request: pb.AgentRunRequest,
    chosen: Choice | ConnectError,
    pending: Pending,
    blobs: Blobs,
    request_id: str,
    manners: Manners,
) -> SimConversation:
    """The conversation of a run. `chosen`: the resolved model. Raises RunRefused, or EmptyTurn if the run is to end
    without output."""
    if not request.HasField("conversation_state"):
        raise RunRefused(faults.bad_request("Conversation state is required"))
    kind = request.action.WhichOneof("action")
    if kind not in ("user_message_action", "resume_action"):
        raise RunRefused(faults.bad_request(f"an action of kind {kind} cannot start a run"))
    if isinstance(chosen, ConnectError):
        raise RunRefused(chosen)
    if chosen.empty or admission.empty_turn(request, chosen.label, manners):
        raise EmptyTurn
    _admit(admission.judge_message(request, manners))
    blobs.known.update((blob.id, blob.value) for blob in request.pre_fetched_blobs)
    reader = StateReader(request.conversation_state)
    await blobs.fetch(reader.outer())
    await blobs.fetch(reader.inner(blobs.known))
    own = admission.from_checkpoint(request)
    _admit(admission.judge_roots(reader.roots(blobs.known), chosen.label, own=own, manners=manners))
    history = reader.history(blobs.known, anywhere=manners.reads_results_anywhere)

    action = request.action.user_message_action
    new = list(_new_messages(action)) if kind == "user_message_action" else []
    turn = None if new else reader.last_turn()
    ledger = StateLedger(request.conversation_state, turn, request_id)
    context = await _context(request, pending)
    custom = [*_custom_prompts(request), *_context_prompts(context)]
    definitions = merged(request.mcp_tools.mcp_tools, context.tools, both=manners.tools_in_both_places)
    tools = read_tools(definitions)
    _admit(admission.judge_tools(definitions, tools, chosen.label, manners))

    if not any(message.role == "system" for message in history):
        system = InputMessage("system", (InputText(custom[0] if custom else SYSTEM_PROMPT),))
        history.insert(0, system)
        await blobs.store([ledger.put_first(system)])
    if not ledger.has_turn:
        user = action.user_message if read_user(action.user_message).parts else _last_user(history, new)
        await blobs.store([ledger.open_turn(user)])
    if new:
        await blobs.store(ledger.add_messages(new))
        history.extend(new)

    roots = [message.text for message in history if message.role == "system"]
    texts = ([SYSTEM_PROMPT, *_rules_in_prose(history)] if manners.drops_system_roots else roots) + custom
    preamble = bool(tools) or not request.HasField("mcp_tools") or not manners.empty_tools_drop_preamble
    prompt = "\n".join(dict.fromkeys(texts))
    return SimConversation(history, prompt, tools, ledger, chosen.label, request.conversation_id, preamble)


def _admit(error: ConnectError | None) -> None:
    if error is not None:
        raise RunRefused(error)


def _new_messages(action: pb.UserMessageAction) -> list[InputMessage]:
    """Everything that a user's action adds to the conversation, in the model's reading order."""
    messages = [*read_typed(action.conversation_history)]
    messages.extend(read_user(user) for user in action.prepend_user_messages)
    user = read_user(action.user_message)
    if user.parts:  # a client that replays a history ending in a tool result has nothing new to say
        messages.append(user)
    messages.extend(read_typed(action.trailing_conversation_history))
    return messages


def _rules_in_prose(history: Sequence[InputMessage]) -> list[str]:
    """Rules in a user's message: a model follows them."""
    return [message.text for message in history if message.role == "user" and message.text.startswith(RULES_OPEN)]


def _last_user(history: Sequence[InputMessage], new: Sequence[InputMessage]) -> pb.UserMessage:
    text = next((message.text for message in reversed([*history, *new]) if message.role == "user"), "")
    return pb.UserMessage(text=text)


async def _context(request: pb.AgentRunRequest, pending: Pending) -> pb.RequestContext:
    action = getattr(request.action, request.action.WhichOneof("action") or "resume_action")
    if action.HasField("request_context"):
        inline: pb.RequestContext = action.request_context
        return inline
    ask = pb.ExecServerMessage()
    ask.request_context_args.SetInParent()
    outcome = await pending.execute(ask, f"context-{request.run_id or request.conversation_id}")
    if outcome.messages:
        return outcome.messages[-1].request_context_result.success.request_context
    return pb.RequestContext()  # the client refused the request or failed: continue without a context


def _custom_prompts(request: pb.AgentRunRequest) -> list[str]:
    spec = request.system_prompt_spec
    return [text for text in (request.custom_system_prompt, spec.replace, spec.append) if text]


def _context_prompts(context: pb.RequestContext) -> list[str]:
    override = context.system_prompt_override
    texts = [override.replace, override.append, context.cloud_rule, *(rule.content for rule in context.rules)]
    return [text for text in texts if text]
