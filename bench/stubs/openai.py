"""An OpenAI upstream for the peers and the relay: `python -m bench.stubs.openai PORT`.

Chunks are rendered once for each size and kept; a burst leaves in blocks of 16 KB, a paced stream one write for each
chunk. `/_received` tells how many bytes came so far; anything else that is not a chat completion is answered with `{}`.
"""

import asyncio
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, cast

import httptools

from ..script import MODEL, Order, piece, read_order
from .serving import Ticker, serve

BLOCK_BYTES: Final = 16 * 1024
_HEAD: Final = b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"%b",' % (
    MODEL.encode()
)
_ROLE: Final = _HEAD + b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
_FINISH: Final = _HEAD + b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_END: Final = b"0\r\n\r\n"


@lru_cache(maxsize=200_000)
def _chunk(index: int, size: int) -> bytes:
    body = _HEAD + b'"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    return _framed(body % piece(index, size).encode())


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(order: Order) -> bytes:
    body = (
        b'{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"%b","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"%b","refusal":null},"logprobs":null,"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}}'
    ) % (MODEL.encode(), order.text().encode(), order.count, order.count + 10)
    return _json_answer(body)


def _json_answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


class Upstream(asyncio.Protocol):
    received = 0
    """Bytes of all connections."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = bytearray()
        self._ticker: Ticker | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        Upstream.received += len(data)
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._transport = None

    # -- httptools' callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body = bytes(self._body)
        if self._url == b"/_received":
            self._write(_json_answer(b"%d" % Upstream.received))
            return
        if b"/chat/completions" not in self._url:
            self._write(_json_answer(b"{}"))
            return
        order = read_order(body)
        if b'"stream":true' not in body.replace(b" ", b""):
            self._write(_whole(order))
        elif order.gap_us:
            self._pace(order)
        else:
            self._burst(order)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _pace(self, order: Order) -> None:
        self._write(_STREAM + _framed(_ROLE))
        left: Iterator[int] = iter(range(order.count))

        def step() -> bool:
            index = next(left, None)
            if index is None:
                self._write(_framed(_FINISH) + _END)
                return False
            self._write(_chunk(index, order.size))
            return self._transport is not None

        self._ticker = Ticker(order.gap_us / 1e6, step)

    def _burst(self, order: Order) -> None:
        block: list[bytes] = [_STREAM, _framed(_ROLE)]
        waiting = 0
        for index in range(order.count):
            chunk = _chunk(index, order.size)
            block.append(chunk)
            waiting += len(chunk)
            if waiting >= BLOCK_BYTES:
                self._write(b"".join(block))
                block, waiting = [], 0
        if not order.hold:
            block += (_framed(_FINISH), _END)
        self._write(b"".join(block))


if __name__ == "__main__":
    serve(Upstream)
