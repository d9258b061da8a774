"""Runs built-in tools in the gateway by mode (`read-only`, `all`), four at a time. Refuses background shells and fetch;
an unexpected failure becomes a typed answer to the model.

Mode `read-only` has read, ls, grep and glob inside the workspace; mode `all` adds write, delete and shell. Each request
has its own instance, which needs no closing.
"""

import asyncio
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from google.protobuf.message import Message

from ....core.errors import GatewayError
from ....cursor.wire.messages import pb
from ....sessions.loop_guard import EndLoop, LiveGuard, Tell, only_looks, refusal
from .. import execs
from ..execs import Decision, EndTurn, ExecReply, JobRunner, Policy, Refuse, RunHere
from .confine import Workspace
from .files import FileLimits, delete, ls, read, write
from .grep import Grep
from .shell import Shell, without_secrets

# ---- The loop guard around local tools: a call that repeats too often is refused once with a message to the model; the
# next repetition ends the turn. If the settings say so, a turn that only reads without new results also ends.
#
# The rules are in `sessions/loop_guard/`. Results are compared without ids and times, which differ each time.

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
        """The message to the model instead of its next read-only result."""
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
        texts = [words for reply in replies for words in _steady_texts(pb.AgentClientMessage.FromString(reply))]
        match self._guard.ended(*_call(exec_), "\n".join(texts)):
            case Tell(message=message, lost=True):
                self._note = message
            case EndLoop(error=error):
                self._end = error
            case _:
                pass
        return replies


def _call(exec_: pb.ExecServerMessage) -> tuple[str, str]:
    kind = exec_.WhichOneof("message") or ""
    if kind in ("shell_args", "shell_stream_args"):  # the command shows whether the call only reads
        command = getattr(exec_, kind).command
        return _TOOLS[kind], msgspec.json.encode({"command": command, "rest": execs.essence(exec_)}).decode()
    return _TOOLS.get(kind, kind), execs.essence(exec_)


def _steady_texts(message: Message) -> Iterator[str]:
    """The values of a result, without fields that differ each time."""
    for field, value in message.ListFields():
        if _UNSTEADY.search(field.name):
            continue
        for one in value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,):
            if isinstance(one, Message):
                yield from _steady_texts(one)
            else:
                yield one if isinstance(one, str) else repr(one)


log = logging.getLogger(__name__)

Mode = Literal["read-only", "all"]

MAX_FILE_BYTES: Final = 16 << 20
SEARCH_S: Final = 15.0
AT_ONCE: Final = 4
"""Tools of one request that run at once; other calls wait."""

READING: Final = {
    "read_args": "read",
    "redacted_read_args": "read",
    "ls_args": "ls",
    "grep_args": "grep and glob",
}
CHANGING: Final = {
    "write_args": "write",
    "delete_args": "delete",
    "shell_args": "shell",
    "shell_stream_args": "shell",
}
"""Exec kind -> the model's name for the tool."""

READING_CALLS: Final = ("read_tool_call", "ls_tool_call", "grep_tool_call", "glob_tool_call")
CHANGING_CALLS: Final = ("shell_tool_call", "edit_tool_call", "delete_tool_call")


class LocalTools:
    def __init__(
        self,
        workspace: Path,
        mode: Mode,
        shell_timeout_s: float,
        output_bytes: int,
        environment: Mapping[str, str],
        max_file_bytes: int = MAX_FILE_BYTES,
        search_timeout_s: float = SEARCH_S,
    ) -> None:
        self._workspace = Workspace(str(workspace))
        self._mode = mode
        self._limits = FileLimits(output_bytes, max_file_bytes)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._grep = Grep(
            self._workspace,
            without_secrets(environment),
            timeout_s=search_timeout_s,
            output_bytes=output_bytes,
            max_file_bytes=max_file_bytes,
        )
        self._shell = Shell(self._workspace, environment, shell_timeout_s, output_bytes)
        self._kinds = READING if mode == "read-only" else READING | CHANGING

    @property
    def allowed_tools(self) -> str:
        """The value of the header that lists the tools which the model may use."""
        calls = READING_CALLS if self._mode == "read-only" else READING_CALLS + CHANGING_CALLS
        return ",".join(calls)

    def decide(self, exec_: pb.ExecServerMessage) -> RunHere | Refuse:
        kind = exec_.WhichOneof("message") or ""
        if kind in ("shell_args", "shell_stream_args") and kind in self._kinds:
            return self._decide_shell(exec_.shell_args if kind == "shell_args" else exec_.shell_stream_args)
        if kind in self._kinds:
            return RunHere()
        if kind in CHANGING:
            return Refuse(
                f"{CHANGING[kind]} is not available: this gateway's local tools are read-only. {self._available()} "
                "The user can allow more by starting the gateway with `--local-tools all`."
            )
        return Refuse(f"This tool is never run by the gateway. {self._available()}")

    def _decide_shell(self, args: pb.ShellArgs) -> RunHere | Refuse:
        if args.is_background:
            return Refuse(f"Commands cannot be run in the background here. {self._available()}")
        return RunHere()

    def _available(self) -> str:
        return f"Available: {', '.join(dict.fromkeys(self._kinds.values()))}."

    async def run(self, exec_: pb.ExecServerMessage) -> list[bytes]:
        """The messages that answer the exec, including the closing message. Raises only CancelledError."""
        decision = self.decide(exec_)
        if isinstance(decision, Refuse):
            return execs.refuse(exec_, decision.reason)
        began = time.monotonic()
        try:
            async with self._slots:
                replies = await self._replies(exec_)
        except Exception as bug:  # any failure: Cursor waits for an answer
            log.exception("a local tool failed")
            replies = [execs.failed(exec_, f"the gateway could not run this tool: {type(bug).__name__}")]
        took = round((time.monotonic() - began) * 1000)
        for reply in replies:
            reply.id = exec_.id
            reply.local_execution_time_ms = took
        return [*map(execs.answer, replies), execs.stream_close(exec_.id)]

    async def _replies(self, exec_: pb.ExecServerMessage) -> list[ExecReply]:
        place, limits = self._workspace, self._limits
        match exec_.WhichOneof("message"):
            case "read_args":
                return [ExecReply(read_result=await asyncio.to_thread(read, place, exec_.read_args, limits))]
            case "redacted_read_args":
                result = await asyncio.to_thread(read, place, exec_.redacted_read_args, limits)
                return [ExecReply(redacted_read_result=result)]
            case "ls_args":
                return [ExecReply(ls_result=await asyncio.to_thread(ls, place, exec_.ls_args))]
            case "grep_args":
                return [ExecReply(grep_result=await self._grep.run(exec_.grep_args))]
            case "write_args":
                return [ExecReply(write_result=await asyncio.to_thread(write, place, exec_.write_args, limits))]
            case "delete_args":
                return [ExecReply(delete_result=await asyncio.to_thread(delete, place, exec_.delete_args, limits))]
            case "shell_args":
                return [ExecReply(shell_result=await self._shell.run(exec_.shell_args))]
            case _:
                return [ExecReply(shell_stream=event) for event in await self._shell.stream(exec_.shell_stream_args)]
