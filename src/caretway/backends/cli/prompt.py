"""A request's messages as one prompt text with role heads (`System:`, `User:`). Other lines that look like a head get a
backslash, against prompt injection. Images are separate; a continued chat gets only new messages. Pure.

A single user message stays unchanged. `text_protocol` has already turned calls and results into text; remaining calls
and results are described in words.
"""

import contextlib
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import msgspec

from ...core.request import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult, last_answer
from ...core.turn import Snapshot
from ...storage.private_file import open_file, write_file
from ..text_protocol.prompt import HEAD, images_of

# ---- The cursor-agent chats that a turn may continue: one file for each chat with its number of turns, taken by one
# turn only; at most 1000, the oldest are removed. Also the content of this backend's snapshots.

log = logging.getLogger(__name__)

CHATS_KEPT: Final = 1000
PRUNED_EVERY: Final = 100
MAX_CHAT_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class CliChat:
    id: str
    """The id that the program reported."""
    workspace: str
    mode: str
    via: str
    """The way of the chat's turns, such as `print` or `acp`. Different ways do not share chats."""
    turns: int = 0
    """The number of turns so far."""


def write_chat(backend: str, chat: CliChat, parent: bytes | None) -> Snapshot:
    return Snapshot(backend, msgspec.json.encode(asdict(chat)), parent=parent)


def read_chat(snapshot: Snapshot | None) -> CliChat | None:
    if snapshot is None:
        return None
    try:
        return msgspec.convert(msgspec.json.decode(snapshot.state), CliChat)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


class ChatFiles:
    """The number of turns of each chat, in one small file per chat. A chat can be continued only from its newest turn,
    and by only one turn, which removes the file. A failed turn leaves no file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept = 0

    def keep(self, chat: CliChat) -> None:
        try:
            write_file(self._root / chat.id, str(chat.turns), durable=False)
        except OSError as failure:
            log.warning("a chat cannot be kept: %s", failure)
        self._kept += 1
        if self._kept % PRUNED_EVERY == 0:
            self._prune()

    def take(self, chat: CliChat) -> bool:
        """Take the chat. Returns whether the caller may continue it from this turn."""
        file = self._root / chat.id
        try:
            with open_file(file) as opened:
                if opened.read(MAX_CHAT_BYTES) != str(chat.turns).encode():
                    return False
            file.unlink()
        except OSError:
            return False
        return True

    def _prune(self) -> None:
        with contextlib.suppress(OSError):
            files = sorted(self._root.iterdir(), key=lambda file: file.name)
            files.sort(key=lambda file: file.stat().st_mtime)
            for file in files[:-CHATS_KEPT]:
                file.unlink(missing_ok=True)


_HEADS: Final = {
    Role.SYSTEM: "System: ",
    Role.USER: "User: ",
    Role.ASSISTANT: "Assistant: ",
    Role.TOOL: "User: ",
}
_ROLE_HEAD: Final = re.compile(r"^(?=\\*(?:System:|User:|Assistant:))", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    images: tuple[Image, ...] = ()


def render(messages: Sequence[Message]) -> Prompt:
    images = tuple(part for message in messages for part in images_of(message))
    if len(messages) == 1 and messages[0].role is Role.USER:
        return Prompt(messages[0].text, images)
    blocks = (_HEADS[message.role] + text for message in messages if (text := _text(message)))
    return Prompt("\n\n".join(blocks), images)


def tail(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages after the last answer, for a chat that knows the earlier messages."""
    return tuple(messages[last_answer(messages) :])


def _text(message: Message) -> str:
    pieces: list[str] = []
    backslash = r"\\"
    head = _ROLE_HEAD if message.role is Role.ASSISTANT else HEAD  # an answer's text holds its own calls
    for part in message.parts:
        match part:
            case Text(text=text):
                pieces.append(head.sub(backslash, text))
            case ToolCall(name=name, arguments=arguments):
                pieces.append(f"\n[Called tool: {name}({arguments})]")
            case ToolResult(call_id=call):
                pieces.append(f"\n[Tool result for {call}]: {HEAD.sub(backslash, part.text)}")
            case Image():
                pieces.append("[image]")
            case Reasoning():
                pass
    return "".join(pieces).strip("\n")
