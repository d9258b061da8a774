"""Fingerprints of conversations, which recognise a history that a client sends again.

Two transcripts are equal if system, tools and all messages are equal apart from changes that clients make when they
resend: white space at the ends, null/empty/absent content, key order in JSON, the order of tools, dropped reasoning,
split text, calls moved after the text. Any other difference makes another conversation.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from os import urandom
from typing import Any, Final, Self

from msgspec import Struct

from ..core.fold import Reply
from ..core.json_bounds import canonical_json, spell
from ..core.request import (
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    ToolSet,
    ToolSpec,
    TurnRequest,
    ends_with_results,
    last_answer,
)

# ---- The opaque id of a new run's conversation, for accounting. A continued run keeps its snapshot's id, a replayed
# run gets the id of the newest conversation with the same opening, a fresh run gets a new id.
#
# Only accounting uses the id: nothing is resumed, shown or shared by it. Of a prompt only a hash is kept, in memory: a
# conversation that is replayed after a restart counts as new.

MAX_REMEMBERED: Final = 4096
OPENING_CHARS: Final = 4096
"""Characters of the first user message that are hashed."""


class ConversationIds:
    def __init__(self) -> None:
        self._known: OrderedDict[int, str] = OrderedDict()

    def fresh(self, key: str, request: TurnRequest) -> str:
        return self._remember(_opening(key, request), urandom(6).hex())

    def replayed(self, key: str, request: TurnRequest) -> str:
        opening = _opening(key, request)
        return self._remember(opening, self._known.get(opening) or urandom(6).hex())

    def _remember(self, opening: int, conversation: str) -> str:
        known = self._known
        known[opening] = conversation
        known.move_to_end(opening)
        if len(known) > MAX_REMEMBERED:
            known.popitem(last=False)
        return conversation


def _opening(key: str, request: TurnRequest) -> int:
    """The hash of the first user message, with a new salt in each process."""
    for message in request.messages:
        if message.role is Role.USER:
            words = message.text
            return hash((key, words[:OPENING_CHARS], len(words)))
    return hash(key)


# ---- Detects that a client has compacted its conversation: the same session name, the same tools, a shorter history
# with another opening. It affects only the reported reason and the accounting.
#
# A client that goes back to an earlier point also sends a shorter history, but with the same opening. Nothing is
# resumed by a name. Memory: a count and three hashes for each of the newest few thousand sessions.

OPENING: Final = 3
"""First messages of two histories that are compared."""
LONG: Final = 4
"""The fewest messages of a conversation that can be compacted; requests for a title have fewer."""
SUMMARY_CHARS: Final = 400
"""The fewest characters of a summary: a shorter single message is a new prompt."""
REASON: Final = "compacted"


class _Seen(Struct, frozen=True):
    messages: int
    opening: tuple[int, ...]
    conversation: str


class SessionNames:
    """The last history of each session that a client has named."""

    def __init__(self) -> None:
        self._seen: OrderedDict[int, _Seen] = OrderedDict()

    def compacted(self, key: str, request: TurnRequest) -> str | None:
        """The conversation that this request has compacted, or None."""
        seen = self._seen.get(_place(key, request)) if request.hint else None
        if seen is None or seen.messages < LONG:
            return None
        said = _said(request)
        if len(said) >= seen.messages:
            return None
        if len(said) == 1 and len(said[0].text) < SUMMARY_CHARS:
            return None
        compared = max(1, min(OPENING, len(said) - 1))
        return None if _hashes(said[:compared]) == seen.opening[:compared] else seen.conversation

    def remember(self, key: str, request: TurnRequest, conversation: str) -> None:
        if not request.hint:
            return
        said = _said(request)
        place = _place(key, request)
        self._seen[place] = _Seen(len(said), _hashes(said[:OPENING]), conversation)
        self._seen.move_to_end(place)
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)


def _place(key: str, request: TurnRequest) -> int:
    """The key of a session. Its side calls (titles, summaries) have other tools, or none."""
    return hash((key, request.hint, tuple([tool.name for tool in request.tools])))


def _said(request: TurnRequest) -> list[Message]:
    return [message for message in request.messages if message.role is not Role.SYSTEM]


def _hashes(messages: list[Message]) -> tuple[int, ...]:
    return tuple([hash((message.role, message.text)) for message in messages])


def tools_key(tools: Sequence[ToolSpec]) -> bytes:
    if not tools:
        return _NO_TOOLS
    return _known_key(tools) if type(tools) is ToolSet else _key_of(tools)


def _key_of(tools: Iterable[ToolSpec]) -> bytes:
    canonical = sorted((tool.name, tool.description.strip(), spell(tool.schema)) for tool in tools)
    return hashlib.sha256(spell(canonical).encode()).digest()


@lru_cache(maxsize=64)
def _known_key(tools: ToolSet) -> bytes:
    return _key_of(tools)


_NO_TOOLS: Final = _key_of(())


def _spelled(pieces: Iterable[str]) -> bytes:
    """The pieces, each after its length."""
    spelled: list[bytes] = []
    for piece in pieces:
        encoded = piece.encode("utf-8", "surrogatepass")
        spelled += (len(encoded).to_bytes(8, "big"), encoded)
    return b"".join(spelled)


_TEXT_OF: Final = {role: _spelled((role.value, "text")) for role in Role}
_END: Final = _spelled(("end",))


class Chain:
    """The incremental fingerprint of a growing transcript."""

    __slots__ = ("_hash", "tools")

    def __init__(self, tools: bytes) -> None:
        self.tools = tools
        """The value of `tools_key`. Separate from the messages, because a client may load tools later."""
        self._hash = hashlib.sha256()

    def add(self, messages: Iterable[Message]) -> Self:
        for message in messages:
            parts = message.parts
            if len(parts) == 1 and type(parts[0]) is Text:  # the usual case: the same bytes in fewer steps
                if words := parts[0].text.strip().encode("utf-8", "surrogatepass"):
                    self._hash.update(_TEXT_OF[message.role] + len(words).to_bytes(8, "big") + words + _END)
            else:
                self._hash.update(_spelled(canonical(message)))
        return self

    def copy(self) -> "Chain":
        chain = Chain(self.tools)
        chain._hash = self._hash.copy()
        return chain

    def said(self) -> bytes:
        """The fingerprint of the messages without the tools."""
        return self._hash.digest()

    def digest(self) -> bytes:
        return hashlib.sha256(self.tools + self._hash.digest()).digest()


def chained(chain: Chain | None, tools: Sequence[ToolSpec], messages: Iterable[Message]) -> Chain:
    return (chain or Chain(tools_key(tools))).add(messages)


def fingerprint(tools: bytes, messages: Iterable[Message]) -> bytes:
    """The fingerprint of a whole transcript. `tools` is the value of `tools_key`."""
    return Chain(tools).add(messages).digest()


def may_continue(request: TurnRequest) -> bool:
    """Whether the user's new words follow an answer, so that a stored conversation may continue."""
    return last_answer(request.messages) > 0 and not ends_with_results(request.messages)


def new_results(request: TurnRequest) -> tuple[ToolResult, ...]:
    """The results after the last answer."""
    found: list[ToolResult] = []
    for message in reversed(request.messages):
        if message.role is Role.ASSISTANT:
            break
        found += [part for part in reversed(message.parts) if isinstance(part, ToolResult)]
    return tuple(reversed(found))


def canonical(message: Message) -> list[str]:
    """The message as a list of strings; an empty message leaves no trace.

    Text and images keep their order; calls and results come after them, because some dialects separate them from the
    text and lose their order.
    """
    if len(message.parts) == 1 and isinstance(message.parts[0], Text):  # nearly all of them
        words = message.parts[0].text.strip()
        return [message.role.value, "text", words, "end"] if words else []
    shown: list[str] = []
    tools: list[str] = []
    text: list[str] = []

    def close_text() -> None:
        if joined := "".join(text).strip():
            shown.extend(("text", joined))
        text.clear()

    for part in message.parts:
        match part:
            case Text(text=piece):
                text.append(piece)
            case Image(data=data, mime_type=mime_type):
                close_text()
                shown += ["image", mime_type, hashlib.sha256(data).hexdigest()]
            case ToolCall(id=call, name=name, arguments=arguments):
                tools += ["call", call, name, canonical_json(arguments)]
            case ToolResult(call_id=call, content=content, is_error=failed):
                tools += ["result", call, "error" if failed else "ok", part.text.strip()]
                tools += [hashlib.sha256(image.data).hexdigest() for image in content if isinstance(image, Image)]
            case Reasoning():
                pass
    close_text()
    pieces = shown + tools
    return [message.role.value, *pieces, "end"] if pieces else []


def answer_message(reply: Reply) -> Message:
    """The gateway's answer, as the client will send it back."""
    text: tuple[Any, ...] = (Text(reply.text),) if reply.text else ()
    return Message(Role.ASSISTANT, (*text, *reply.calls))
