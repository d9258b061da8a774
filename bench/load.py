"""The load generator: chat completions over kept HTTP/1.1 connections, timed by the byte and checked to the last one.
A target that is asked over the Messages API gets the same words there.

The client must be cheaper than what it measures, so it only collects while the clock runs; every answer is parsed and
compared with the text that was ordered afterwards, and one that differs ends the run.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from . import messages
from .script import FIRST_PIECE, MODEL, Order

_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
PATIENCE_S: Final = 120.0


class WrongAnswer(RuntimeError):
    """A target did not say what it was asked to say: its times mean nothing."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a target listens and what it wants to be told."""

    port: int
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str = "sk-bench"
    messages_model: str = ""
    """Asked over the Messages API, for this model; empty: over chat completions."""

    def request(self, body: bytes) -> bytes:
        """`body` is that of a chat completion."""
        path = "/v1/chat/completions"
        if self.messages_model:
            path, body = messages.PATH, messages.as_messages(body, self.messages_model)
        head = [
            f"POST {path} HTTP/1.1",
            f"host: 127.0.0.1:{self.port}",
            "content-type: application/json",
            f"authorization: Bearer {self.key}",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join([*head, "", ""]).encode() + body


def chat(order: Order, *, stream: bool, before: Sequence[Mapping[str, Any]] = (), **more: Any) -> bytes:
    """The body of a chat completion; `before` is its history."""
    messages = [*before, {"role": "user", "content": order.prompt()}]
    return msgspec.json.encode({"model": MODEL, "messages": messages, "stream": stream, **more})


@dataclass(slots=True)
class Answer:
    """One response with its times, in seconds of the performance counter."""

    asked: float
    first: float = 0.0
    """The first piece of the answer's text was here."""
    ended: float = 0.0
    raw: bytes = b""

    @property
    def status(self) -> int:
        return int(self.raw[9:12])

    @property
    def first_ms(self) -> float:
        return (self.first - self.asked) * 1000

    @property
    def total_ms(self) -> float:
        return (self.ended - self.asked) * 1000

    def body(self) -> bytes:
        head, _, body = self.raw.partition(b"\r\n\r\n")
        return _joined(body) if b"transfer-encoding: chunked" in head.lower() else body

    def header(self, name: str) -> str:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return next((line.partition(":")[2].strip() for line in lines if line.lower().startswith(f"{name}:")), "")

    def json(self) -> Any:
        return msgspec.json.decode(self.body())

    def check(self, order: Order, *, stream: bool) -> None:
        said = self.text(stream=stream) if self.status == 200 else ""
        if said != order.text():
            raise WrongAnswer(
                f"{len(said)} characters instead of {len(order.text())}, status {self.status}: {self.raw[:300]!r}"
            )

    def text(self, *, stream: bool) -> str:
        if not stream:
            answer = self.json()
            if "choices" in answer:
                return str(answer["choices"][0]["message"]["content"])
            return "".join(block.get("text", "") for block in answer["content"])
        lines = (line for line in self.body().split(b"\n") if line.startswith(b"data: {"))
        return "".join(_piece(msgspec.json.decode(line[6:])) for line in lines)


def _piece(event: Mapping[str, Any]) -> str:
    """The text that an event of either API brings."""
    if event.get("type") == "content_block_delta":
        return event["delta"].get("text") or ""
    choices = event.get("choices") or [{}]
    return choices[0].get("delta", {}).get("content") or ""


def _joined(body: bytes) -> bytes:
    parts, at = [], 0
    while at < len(body):
        stop = body.index(b"\r\n", at)
        size = int(body[at:stop].partition(b";")[0], 16)
        parts.append(body[stop + 2 : stop + 2 + size])
        at = stop + 2 + size + 2
    return b"".join(parts)


class Client(asyncio.Protocol):
    """One kept connection; one request at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._length: int | None = None
        self._size = 0
        self._answer: Answer | None = None
        self._done: asyncio.Future[Answer] | None = None
        self._begun: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, address: Address) -> "Client":
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(address), "127.0.0.1", address.port)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for waiting in (self._done, self._begun):
            if waiting is not None and not waiting.done():
                waiting.set_exception(WrongAnswer(f"the connection was closed: {b''.join(self._parts)[:300]!r}"))

    async def ask(self, body: bytes) -> Answer:
        done = self._send(body)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await done
        except TimeoutError:
            raise WrongAnswer(f"no answer within {PATIENCE_S:g} s: {b''.join(self._parts)[:300]!r}") from None

    async def hold(self, body: bytes) -> None:
        """Ask for an answer that does not end; return when its first piece is here."""
        self._begun = self._loop.create_future()
        self._send(body)
        async with asyncio.timeout(PATIENCE_S):
            await self._begun

    def _send(self, body: bytes) -> "asyncio.Future[Answer]":
        if self._transport is None:
            raise WrongAnswer("the connection is closed")
        self._parts, self._length, self._size = [], None, 0
        self._done = self._loop.create_future()
        request = self._address.request(body)
        self._answer = Answer(time.perf_counter())
        self._transport.write(request)
        return self._done

    def close(self) -> None:
        if self._done is not None:
            self._done.cancel()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            return
        if not answer.first and FIRST_PIECE in data:
            answer.first = time.perf_counter()
            if self._begun is not None and not self._begun.done():
                self._begun.set_result(None)
        self._parts.append(data)
        self._size += len(data)
        if self._length is None:
            self._length = _announced(b"".join(self._parts))
            if self._length is None:
                return
        if self._size >= self._length if self._length else self._tail().endswith(_LAST_CHUNK):
            answer.ended = time.perf_counter()
            answer.raw = b"".join(self._parts)
            self._answer = None
            if self._done is not None and not self._done.done():
                self._done.set_result(answer)

    def _tail(self) -> bytes:
        last = self._parts[-1]
        return last if len(last) >= len(_LAST_CHUNK) else b"".join(self._parts[-8:])


def _announced(raw: bytes) -> int | None:
    """Bytes of the whole response; 0: it says itself when it ends; None: the head is not complete."""
    head, found, _ = raw.partition(b"\r\n\r\n")
    if not found:
        return None
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(head) + 4 + int(line.partition(b":")[2])
    return 0


async def many(address: Address, body: bytes, *, workers: int, requests: int) -> list[Answer]:
    """`requests` answers over `workers` connections, each asking again as soon as it is answered."""
    clients = [await Client.connect(address) for _ in range(workers)]
    left = iter(range(requests))
    answers: list[Answer] = []

    async def work(client: Client) -> None:
        while next(left, None) is not None:
            answer = await client.ask(body)
            answers.append(answer)

    try:
        await asyncio.gather(*(work(client) for client in clients))
    finally:
        for client in clients:
            client.close()
    return answers
