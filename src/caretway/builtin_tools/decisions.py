"""What can be done with a built-in exec: the client's tool does it, the gateway does it, or nobody does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..core.request import ToolResult
from ..wire.messages import pb

Convert = Callable[[int, ToolResult], list[bytes]]
"""(exec id, the client's result) -> the messages that answer the exec."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A built-in exec that a client's tool can do."""

    name: str
    arguments: str
    convert: Convert


@dataclass(frozen=True, slots=True)
class RunHere:
    """A built-in exec that the gateway runs itself, in its workspace."""


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str


Decision = Redirect | RunHere | Refuse
Policy = Callable[[pb.ExecServerMessage], Decision]
"""What to do with a built-in exec."""


class JobRunner(Protocol):
    """Runs a built-in exec on this side and gives back the messages that answer it."""

    async def run(self, exec_: pb.ExecServerMessage) -> list[bytes]: ...
