"""What a simulated run awaits from its client: blobs, execs and queries by number. A reply without a waiter is dropped;
a long exec output is bounded.

Requests return a future; `deliver_*` take the client's messages. No sockets, no clock.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from caretway.cursor.wire.messages import pb

from . import execs, updates
from .shared import Stats

MAX_EXEC_BYTES: Final = 64 * 1024 * 1024
"""Limit of one exec's output; above it a shell stream's messages are dropped, except the last."""

Write = Callable[[bytes], None]
_T = TypeVar("_T")


class Pending:
    def __init__(self, write: Write, stats: Stats | None = None) -> None:
        self._write = write
        self._stats = stats or Stats()
        self._last_kv = 0
        self._last_exec = 0
        self._kv: dict[int, asyncio.Future[pb.KvClientMessage]] = {}
        self._execs: dict[int, _OpenExec] = {}
        self._queries: dict[int, asyncio.Future[pb.InteractionResponse]] = {}

    def get_blob(self, name: bytes) -> asyncio.Future[pb.KvClientMessage]:
        return self._ask_kv(get_blob_args=pb.GetBlobArgs(blob_id=name))

    def set_blob(self, name: bytes, data: bytes) -> asyncio.Future[pb.KvClientMessage]:
        return self._ask_kv(set_blob_args=pb.SetBlobArgs(blob_id=name, blob_data=data))

    def _ask_kv(self, **kind: Any) -> asyncio.Future[pb.KvClientMessage]:
        self._last_kv += 1
        waiting = self._kv[self._last_kv] = asyncio.get_running_loop().create_future()
        self._write(updates.server(kv_server_message=pb.KvServerMessage(id=self._last_kv, **kind)))
        return waiting

    def execute(self, message: pb.ExecServerMessage, exec_id: str) -> asyncio.Future[execs.ExecOutcome]:
        self._last_exec += 1
        self._stats.execs_asked += 1
        message.id = self._last_exec
        message.exec_id = exec_id
        opened = self._execs[message.id] = _OpenExec()
        self._write(updates.server(exec_server_message=message))
        return opened.outcome

    def ask(self, query: pb.InteractionQuery) -> asyncio.Future[pb.InteractionResponse]:
        self._stats.queries_asked += 1
        waiting = self._queries[query.id] = asyncio.get_running_loop().create_future()
        self._write(updates.server(interaction_query=query))
        return waiting

    # ------------------------------------------------------------------ answers

    def deliver_kv(self, message: pb.KvClientMessage) -> None:
        _settle(self._kv.pop(message.id, None), message)

    def deliver_exec(self, message: pb.ExecClientMessage) -> None:
        if (opened := self._execs.get(message.id)) is None:
            return
        opened.size += message.ByteSize()
        is_final = execs.final(message)
        if is_final or opened.size <= MAX_EXEC_BYTES:
            opened.messages.append(message)
        if is_final:
            self._close_exec(message.id, None)

    def deliver_control(self, message: pb.ExecClientControlMessage) -> None:
        match message.WhichOneof("message"):
            case "stream_close":
                self._close_exec(message.stream_close.id, None)
            case "throw":
                self._close_exec(message.throw.id, message.throw.error or "the client threw without a word")
            case _:
                pass  # heartbeats of a long exec

    def deliver_response(self, message: pb.InteractionResponse) -> None:
        waiting = self._queries.pop(message.id, None)
        self._stats.queries_answered += waiting is not None
        _settle(waiting, message)

    def _close_exec(self, number: int, thrown: str | None) -> None:
        if (opened := self._execs.pop(number, None)) is not None:
            self._stats.execs_answered += 1
            _settle(opened.outcome, execs.ExecOutcome(tuple(opened.messages), thrown))


class _OpenExec:
    __slots__ = ("messages", "outcome", "size")

    def __init__(self) -> None:
        self.messages: list[pb.ExecClientMessage] = []
        self.size = 0
        self.outcome: asyncio.Future[execs.ExecOutcome] = asyncio.get_running_loop().create_future()


def _settle(waiting: asyncio.Future[_T] | None, value: _T) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)
