"""The cursor-agent stand-in's files: chats, whether it is signed in, how often a prompt was tried; in
CURSOR_CONFIG_DIR or a cache directory.

The real program keeps them below the user's home. Without pathlib and uuid, whose imports would be a fifth of the time
that the program takes to start.
"""

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SIGNED_OUT_MARK: Final = "signed-out"
USER: Final = "sim@caretway.invalid"


def config_directory(environ: Mapping[str, str]) -> str:
    if named := environ.get("CURSOR_CONFIG_DIR"):
        return named
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "caretway-sim-agent")


@dataclass(slots=True)
class StoredChat:
    id: str
    blocks: list[tuple[str, str]] = field(default_factory=list)
    """(role, text) of everything said, prompts as they were sent."""


class Chats:
    def __init__(self, root: str) -> None:
        self._root = root

    def new(self) -> StoredChat:
        digits = os.urandom(16).hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return StoredChat("-".join(digits[a:b] for a, b in itertools.pairwise(cuts)))

    def find(self, chat_id: str) -> StoredChat | None:
        with contextlib.suppress(OSError, ValueError):
            with open(os.path.join(self._root, "chats", os.path.basename(chat_id), "chat.json")) as file:
                rows = json.load(file)
            return StoredChat(chat_id, [(str(role), str(text)) for role, text in rows])
        return None

    def save(self, chat: StoredChat) -> None:
        folder = os.path.join(self._root, "chats", chat.id)
        os.makedirs(folder, exist_ok=True)
        beside = os.path.join(folder, f"chat.{os.getpid()}")
        with open(beside, "w") as file:
            json.dump(chat.blocks, file)
        os.replace(beside, os.path.join(folder, "chat.json"))

    def attempts(self, prompt: str) -> int:
        """How often this prompt was tried, this time included."""
        name = hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:32]
        folder = os.path.join(self._root, "attempts")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "a+") as file:
            file.write(".")
            return file.tell()

    @property
    def signed_in(self) -> bool:
        return not os.path.exists(os.path.join(self._root, SIGNED_OUT_MARK))

    def sign_in(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._root, SIGNED_OUT_MARK))

    def sign_out(self) -> None:
        os.makedirs(self._root, exist_ok=True)
        with open(os.path.join(self._root, SIGNED_OUT_MARK), "w"):
            pass
