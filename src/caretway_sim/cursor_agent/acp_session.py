"""A session of the cursor-agent stand-in in ACP: its chat, what was chosen, the MCP servers it reached; how a prompt
can end before its end."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from .chats import StoredChat
from .choices import Choices
from .mcp_client import ReachedServer


class RpcRefused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Cancelled(Exception):
    """`session/cancel` came."""


@dataclass(slots=True)
class Session:
    chat: StoredChat
    choices: Choices
    cwd: str = ""
    servers: Sequence[ReachedServer] = ()
    cancelled: threading.Event = field(default_factory=threading.Event)
