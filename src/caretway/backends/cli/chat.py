"""Which cursor-agent chat a turn may continue: one file for each chat with its turn number, taken by one turn only; at
most 1000, the oldest removed. Also what a snapshot of this backend holds."""

import contextlib
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import msgspec

from ...core.turn import Snapshot
from ...storage.private_file import write_file

log = logging.getLogger(__name__)

CHATS_KEPT: Final = 1000
PRUNED_EVERY: Final = 100


@dataclass(frozen=True, slots=True)
class CliChat:
    id: str
    """As the program itself reported it."""
    workspace: str
    mode: str
    via: str
    """`print` or `acp`: the two do not share their chats."""
    turns: int = 0
    """How many turns it had."""


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
    """Which chats stand at which turn: one small file each. A chat only goes forward, so it can be continued from its
    newest point alone, and by one turn: whoever takes the file away has it. A turn that fails leaves none."""

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
        """True for the one who may continue this chat from here."""
        file = self._root / chat.id
        try:
            if file.read_bytes() != str(chat.turns).encode():
                return False
            file.unlink()
        except OSError:
            return False
        return True

    def _prune(self) -> None:
        files = sorted(self._root.iterdir(), key=lambda file: file.name)
        with contextlib.suppress(OSError):
            files.sort(key=lambda file: file.stat().st_mtime)
            for file in files[:-CHATS_KEPT]:
                file.unlink(missing_ok=True)
