"""The loop guard around local tools: a call that repeats too often is refused once, in words to the model; when it is
made again, the turn ends. So does one that only looks around without anything new, where the settings say so.

The rules are `sessions/loop_guard/`. Results are compared by what they say, without numbers and times that differ each
time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from google.protobuf.message import Message

from ....core.errors import GatewayError
from ....cursor.wire.messages import pb
from ....sessions.loop_guard.live import EndLoop, LiveGuard, Tell
from ....sessions.loop_guard.rule import refusal
from ....sessions.loop_guard.wander import only_looks
from .. import execs
from ..decisions import Decision, EndTurn, JobRunner, Policy, Refuse, RunHere

_TOOLS: Final[Mapping[str, str]] = {
    "read_args": "read",
    "redacted_read_args": "read",
    "ls_args": "ls",
    "grep_args": "grep",
    "shell_args": "shell",
    "shell_stream_args": "shell",
    "write_args": "write",
    "delete_args": "delete",
}
"""Exec kind -> the tool's name for the guard."""


_UNSTEADY: Final = re.compile(r"(^|_)(id|ms|time|duration|pid)(_|$)")
"""Fields of a result that differ each time."""


class GuardedTools:
    """A policy and the jobs behind it, for one turn."""

    def __init__(self, decide: Policy, jobs: JobRunner, guard: LiveGuard) -> None:
        self._decide = decide
        self._jobs = jobs
        self._guard = guard
        self._refused: set[tuple[str, str]] = set()
        self._note = ""
        """What the model is to hear instead of its next look."""
        self._end: GatewayError | None = None

    def decide(self, exec_: pb.ExecServerMessage) -> Decision:
        decision = self._decide(exec_)
        if not isinstance(decision, RunHere):
            return decision
        if self._end is not None:
            return EndTurn(self._end)
        call = _call(exec_)
        if (verdict := self._guard.began(*call)) is not None:
            if call in self._refused:
                return EndTurn(verdict.error)
            self._refused.add(call)
            return Refuse(refusal(self._guard.calls(*call)))
        if self._note and only_looks(*call):
            note, self._note = self._note, ""
            return Refuse(note)
        return decision

    async def run(self, exec_: pb.ExecServerMessage) -> list[bytes]:
        replies = await self._jobs.run(exec_)
        told = [words for reply in replies for words in _told(pb.AgentClientMessage.FromString(reply))]
        match self._guard.ended(*_call(exec_), "\n".join(told)):
            case Tell(message=message, lost=True):
                self._note = message
            case EndLoop(error=error):
                self._end = error
            case _:
                pass
        return replies


def _call(exec_: pb.ExecServerMessage) -> tuple[str, str]:
    kind = exec_.WhichOneof("message") or ""
    if kind in ("shell_args", "shell_stream_args"):  # its command tells whether it only looks
        command = getattr(exec_, kind).command
        return _TOOLS[kind], msgspec.json.encode({"command": command, "rest": execs.essence(exec_)}).decode()
    return _TOOLS.get(kind, kind), execs.essence(exec_)


def _told(message: Message) -> Iterator[str]:
    """What a result says, without what differs each time."""
    for field, value in message.ListFields():
        if _UNSTEADY.search(field.name):
            continue
        for one in value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,):
            if isinstance(one, Message):
                yield from _told(one)
            else:
                yield one if isinstance(one, str) else repr(one)
