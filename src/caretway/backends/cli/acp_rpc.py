"""JSON-RPC 2.0, one message per line, both directions: answers matched to requests by id, each request of the agent
answered, lines that are no message reported. Knows no pipes and no methods.

In: lines, and requests of ours. Out: lines through `send`, answers through futures. An agent that waits for an answer
waits for ever.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

log = logging.getLogger(__name__)

UNKNOWN_METHOD: Final = -32601
INTERNAL: Final = -32603


@dataclass(slots=True, eq=False)
class RpcError(Exception):
    code: int
    message: str
    data: object = None

    def __str__(self) -> str:
        return f"{self.message} {self.data if isinstance(self.data, str) else _spell(self.data)}".strip()


def _spell(data: object) -> str:
    return msgspec.json.encode(data).decode() if data is not None else ""


class RpcHandler(Protocol):
    def notified(self, method: str, params: Mapping[str, Any]) -> None: ...

    def asked(self, method: str, params: Mapping[str, Any]) -> object:
        """The result; raises RpcError."""
        ...


class Rpc:
    def __init__(self, send: Callable[[bytes], None], handler: RpcHandler) -> None:
        self._send = send
        self._handler = handler
        self._next = 0
        self._open: dict[int, asyncio.Future[Any]] = {}

    def request(self, method: str, params: Mapping[str, Any]) -> "asyncio.Future[Any]":
        """Resolves to the result, or raises RpcError, or what `fail` was given."""
        self._next += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_looked_at)
        self._open[self._next] = answer
        self._write({"id": self._next, "method": method, "params": params})
        return answer

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def fail(self, error: Exception) -> None:
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)

    def feed(self, line: bytes) -> bool:
        """False when the line is not a message."""
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(message, dict):
            return False
        method = message.get("method")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if not isinstance(method, str):
            self._answered(message)
        elif "id" in message:
            self._asked(message["id"], method, params)
        else:
            self._handler.notified(method, params)
        return True

    def _answered(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        answer = self._open.pop(number, None) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        error = message.get("error")
        if error is None:
            answer.set_result(message.get("result"))
            return
        error = error if isinstance(error, dict) else {}
        code, text = error.get("code"), error.get("message")
        answer.set_exception(
            RpcError(code if isinstance(code, int) else INTERNAL, str(text or "no reason given"), error.get("data"))
        )

    def _asked(self, number: object, method: str, params: Mapping[str, Any]) -> None:
        try:
            self._write({"id": number, "result": self._handler.asked(method, params)})
        except RpcError as refused:
            self._write({"id": number, "error": {"code": refused.code, "message": refused.message}})

    def _write(self, message: Mapping[str, Any]) -> None:
        self._send(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")


def _looked_at(answer: "asyncio.Future[Any]") -> None:
    """Nobody may be left to ask for the outcome; that is no news."""
    if not answer.cancelled():
        answer.exception()
