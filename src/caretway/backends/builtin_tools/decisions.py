"""The decisions about an exec (a call of a built-in tool): `Redirect` to a client's tool, `RunHere`, `Refuse`, or
`EndTurn` by the loop guard. Types only; `policy.py` decides."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from ...core.errors import GatewayError
from ...core.request import ToolResult
from ...cursor.wire.messages import pb

Convert = Callable[[int, ToolResult], list[bytes]]
"""(exec id, the client's result) -> the messages that answer the exec."""


class Redirect(Struct, frozen=True):
    """An exec that one of the client's tools can run."""

    name: str
    arguments: str
    convert: Convert
    carries_text: bool = False
    """Its answer has a place for words that came beside the client's result."""


class RunHere(Struct, frozen=True):
    """An exec that the gateway runs itself, in its workspace."""


class Refuse(Struct, frozen=True):
    reason: str


class EndTurn(Struct, frozen=True):
    """The model was told and goes on all the same."""

    error: GatewayError


Decision = Redirect | RunHere | Refuse | EndTurn
Policy = Callable[[pb.ExecServerMessage], Decision]
"""Decides what to do with an exec."""


class JobRunner(Protocol):
    """Runs an exec in the gateway and returns the messages that answer it."""

    async def run(self, exec_: pb.ExecServerMessage) -> list[bytes]: ...
