"""Fingerprints of conversations: which differences count when a client sends a history again. White space, JSON key
order, tool order, split text and dropped reasoning do not; anything else does.

Two transcripts are the same when system, tools and every message are the same after undoing what clients change when
they resend: white space at the ends, null/empty/absent content, key order in JSON, the order of tools, reasoning left
out, text split into parts, calls moved behind the text. Anything else is another conversation.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from ..core.canonical import canonical_json, spell
from ..core.fold import Reply
from ..core.request import (
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    TurnRequest,
    ends_with_results,
    last_answer,
)


def tools_key(tools: Sequence[ToolSpec]) -> bytes:
    return _key_of(tools) if tools else _NO_TOOLS


def _key_of(tools: Iterable[ToolSpec]) -> bytes:
    canonical = sorted((tool.name, tool.description.strip(), spell(tool.schema)) for tool in tools)
    return hashlib.sha256(spell(canonical).encode()).digest()


_NO_TOOLS: Final = _key_of(())


def _spelled(pieces: Iterable[str]) -> bytes:
    """Each with its length before it."""
    spelled: list[bytes] = []
    for piece in pieces:
        encoded = piece.encode("utf-8", "surrogatepass")
        spelled += (len(encoded).to_bytes(8, "big"), encoded)
    return b"".join(spelled)


_TEXT_OF: Final = {role: _spelled((role.value, "text")) for role in Role}
_END: Final = _spelled(("end",))


class Chain:
    """The fingerprint of a transcript that grows: what was added is not looked at again."""

    __slots__ = ("_hash", "tools")

    def __init__(self, tools: bytes) -> None:
        self.tools = tools
        """The value of `tools_key`. Not part of what was said: a client may load tools on the way."""
        self._hash = hashlib.sha256()

    def add(self, messages: Iterable[Message]) -> Self:
        for message in messages:
            parts = message.parts
            if len(parts) == 1 and type(parts[0]) is Text:  # nearly all of them: the same bytes in fewer steps
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
        """The identity of the messages alone."""
        return self._hash.digest()

    def digest(self) -> bytes:
        return hashlib.sha256(self.tools + self._hash.digest()).digest()


def chained(chain: Chain | None, tools: Sequence[ToolSpec], messages: Iterable[Message]) -> Chain:
    return (chain or Chain(tools_key(tools))).add(messages)


def fingerprint(tools: bytes, messages: Iterable[Message]) -> bytes:
    """The identity of a whole transcript. `tools` is the value of `tools_key`."""
    return Chain(tools).add(messages).digest()


def may_continue(request: TurnRequest) -> bool:
    """A user's new words after an answer: then a kept conversation is looked for."""
    return last_answer(request.messages) > 0 and not ends_with_results(request.messages)


def new_results(request: TurnRequest) -> tuple[ToolResult, ...]:
    """Those that stand behind the last answer."""
    news = request.messages[last_answer(request.messages) :]
    return tuple([part for message in news for part in message.parts if isinstance(part, ToolResult)])


def canonical(message: Message) -> list[str]:
    """The message as a list of strings; an empty message leaves no trace.

    Text and images keep their order among themselves; calls and results come after them, because some dialects keep
    these apart from the text and so cannot say what stood first.
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
    """Our own answer, as the client will send it back."""
    text: tuple[Any, ...] = (Text(reply.text),) if reply.text else ()
    return Message(Role.ASSISTANT, (*text, *reply.calls))
