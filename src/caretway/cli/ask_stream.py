"""One question to a gateway over HTTP, streamed or whole: yields pieces of the answer, usage, or an error in one
sentence. `caretway ask` uses it instead of a client library.

HTTP/1.0, because its answers end with the connection and have no chunks. Independent of the terminal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from ..core.errors import ErrorKind, GatewayError

PATH: Final = "/v1/chat/completions"
_LINE_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of one event, or of a whole answer."""
_CUT: Final = "The answer ended before it was complete."


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The status and headers of an answer."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    text: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    model: str = ""
    usage: Mapping[str, Any] | None = None
    finish_reason: str = ""


async def stream_answer(
    url: str, key: str, body: Mapping[str, object]
) -> AsyncIterator[AnswerHead | AnswerPiece | AnswerEnd | bytes]:
    """Yields `AnswerHead`, then pieces and an `AnswerEnd`; without streaming, the JSON. Raises GatewayError."""
    address = urlsplit(url)
    content = json.dumps(body).encode()
    head = [
        f"POST {PATH} HTTP/1.0",
        f"host: {address.netloc}",
        "content-type: application/json",
        f"content-length: {len(content)}",
        "user-agent: caretway-ask",
        *([f"authorization: Bearer {key}"] if key else []),
    ]
    try:
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=_LINE_BYTES)
    except OSError as failure:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, f"No gateway answers at {url}.", hint="caretway serve") from failure
    try:
        writer.write("\r\n".join([*head, "", ""]).encode() + content)
        await writer.drain()
        opened = await _head(reader)
        if opened.status != 200:
            raise refused(opened.status, await reader.read(_LINE_BYTES))
        yield opened
        if not body.get("stream"):
            yield await reader.read(-1)
            return
        async for piece in _events(reader):
            yield piece
    except (OSError, asyncio.IncompleteReadError) as failure:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, _CUT) from failure
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> AnswerHead:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = [line.partition(":") for line in lines[1:] if line]
    return AnswerHead(int(lines[0].split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in fields})


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[AnswerPiece | AnswerEnd]:
    model, finish, usage = "", "", None
    while line := await reader.readline():
        if not line.startswith(b"data: "):
            continue
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            yield AnswerEnd(model, usage, finish)
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise refused(0, data)
        model = chunk.get("model") or model
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta", {})
            piece = AnswerPiece(delta.get("content") or "", delta.get("reasoning_content") or "")
            if piece.text or piece.thinking:
                yield piece
    raise GatewayError(ErrorKind.UPSTREAM_DOWN, _CUT)


def refused(status: int, body: bytes) -> GatewayError:
    """The gateway's own error message, or its HTTP status."""
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"The gateway answered with HTTP {status}."
    return GatewayError(ErrorKind.UPSTREAM_ERROR, message)
