"""Opens a simulated run: fetches each blob that its state names (a missing one ends the run), the request context,
tools and system prompt; applies the rules of admission.

Asks for the request context unless it came along, and stores what is new.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from caretway.cursor.wire.errors import ConnectError
from caretway.cursor.wire.messages import pb

from . import admission, faults, toolbox
from .history import read_typed, read_user
from .manners import Manners
from .model_input import InputMessage, InputText, Tool
from .model_shapes import Choice
from .pending import Pending
from .state import Blob, StateLedger, StateReader
from .stats import Stats

MAX_BLOBS: Final = 50_000
MAX_BLOBS_IN_FLIGHT: Final = 256
MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Of all blobs that one run pulls."""
RULES_OPEN: Final = "<rules>"
SYSTEM_PROMPT: Final = "You are a simulated agent."


class RunRefused(Exception):
    """The run ends with this error."""

    def __init__(self, error: ConnectError) -> None:
        super().__init__(error.message)
        self.error = error


class EmptyTurn(Exception):
    """The run ends well, and nothing is said or counted."""


@dataclass(frozen=True, slots=True)
class SimConversation:
    history: list[InputMessage]
    system: str
    tools: tuple[Tool, ...]
    ledger: StateLedger
    model: str
    id: str
    """Where its prompt cache lives: a new conversation begins cold, as if another machine served it."""
    preamble: bool = True
    """The prompt begins with Cursor's own instructions."""


class Blobs:
    """The client's blob store, as seen from the server."""

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
    """`chosen`: the model that is meant. Raises RunRefused, or EmptyTurn when the answer is to be nothing at all."""
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
    definitions = toolbox.merged(request.mcp_tools.mcp_tools, context.tools, both=manners.tools_in_both_places)
    tools = toolbox.read_tools(definitions)
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
    texts = ([SYSTEM_PROMPT, *_told_rules(history)] if manners.drops_system_roots else roots) + custom
    preamble = bool(tools) or not request.HasField("mcp_tools") or not manners.empty_tools_drop_preamble
    prompt = "\n".join(dict.fromkeys(texts))
    return SimConversation(history, prompt, tools, ledger, chosen.label, request.conversation_id, preamble)


def _admit(error: ConnectError | None) -> None:
    if error is not None:
        raise RunRefused(error)


def _new_messages(action: pb.UserMessageAction) -> list[InputMessage]:
    """Everything that a user's action adds to the conversation, in the order in which the model reads it."""
    messages = [*read_typed(action.conversation_history)]
    messages.extend(read_user(user) for user in action.prepend_user_messages)
    user = read_user(action.user_message)
    if user.parts:  # a client that replays a history ending in a tool result has nothing new to say
        messages.append(user)
    messages.extend(read_typed(action.trailing_conversation_history))
    return messages


def _told_rules(history: Sequence[InputMessage]) -> list[str]:
    """A model heeds rules that a user tells it."""
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
    return pb.RequestContext()  # refused or thrown: then there is none


def _custom_prompts(request: pb.AgentRunRequest) -> list[str]:
    spec = request.system_prompt_spec
    return [text for text in (request.custom_system_prompt, spec.replace, spec.append) if text]


def _context_prompts(context: pb.RequestContext) -> list[str]:
    override = context.system_prompt_override
    texts = [override.replace, override.append, context.cloud_rule, *(rule.content for rule in context.rules)]
    return [text for text in texts if text]
