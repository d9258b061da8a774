"""`caretway ask "..."`: asks one question and prints the answer. Chooses the gateway (a running one or its own), sends
words, files and standard input, and marks a simulated answer.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..config import Settings
from ..core.errors import ErrorKind, GatewayError
from ..storage.private_file import open_file, write_file
from .flags import REACHING_CURSOR, add_setting_flags, given, settings_from
from .process import CommandFailed, log_to_stderr, remark, say, shown_width
from .process import run as run_loop
from .terminal import AnswerFolder, printable, style_for

NAME: Final = "ask"
SUMMARY: Final = "ask a model, here in the terminal"
DESCRIPTION: Final = (
    "Ask one question and print the answer as it comes. Uses the gateway that is\n"
    "running, or starts one of its own for the question. What is piped in, and files\n"
    "(text or images), are sent along. Exit code: 0 answered, 1 not, 2 wrong use."
)
EXAMPLES: Final = """\
examples:
  caretway ask "What does EADDRINUSE mean?"
  git diff | caretway ask "Write a commit message"
  caretway ask "What is wrong here?" --file app.py --file screen.png
  caretway ask --continue "And on macOS?"
  caretway ask --model gpt-5.4@effort=high "..."
  caretway ask --json "..." | jq -r '.choices[0].message.content'
"""

LAST: Final = "ask.json"
MAX_FILE: Final = 20 * 1024 * 1024
SIMULATED: Final = (
    "simulated answer: nothing of it comes from Cursor or from any model; for real answers: caretway login"
)
_PICTURES: Final = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = 'caretway ask [flags] "QUESTION"'
    parser.add_argument("words", nargs="*", metavar="QUESTION", help="What to ask.")
    parser.add_argument("-m", "--model", default="", metavar="NAME", help="Which model. [default: auto]")
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="Send a file along; may be repeated.",
    )
    parser.add_argument(
        "-c", "--continue", dest="goes_on", action="store_true", help="Go on with the last question and its answer."
    )
    parser.add_argument("--json", action="store_true", help="Print the whole answer as JSON, when it is complete.")
    add_setting_flags(parser, REACHING_CURSOR)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("error")
    piped = (
        "" if sys.stdin is None or sys.stdin.isatty() else _decoded(sys.stdin.buffer.read(MAX_FILE + 1), "the input")
    )
    content = message(" ".join(arguments.words), piped, [(path.name, _read(path)) for path in arguments.files])
    if not content:
        raise CommandFailed("say what to ask", 'try: caretway ask "What is a gateway?"', 2)
    kept = settings.data_dir / LAST
    before = _last(kept) if arguments.goes_on else _Talk()
    talk = _Talk(arguments.model or before.model, [*before.messages, {"role": "user", "content": content}])
    body: dict[str, object] = {"model": talk.model, "messages": talk.messages}
    if not arguments.json:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    own = bool({*given(arguments)} - {"data_dir", "config"})
    answer = run_loop(_ask(settings, body, own=own))
    _keep(kept, _Talk(talk.model, [*talk.messages, {"role": "assistant", "content": answer}]))
    return 0


class _Talk(Struct, frozen=True):
    """Questions and answers so far, for --continue."""

    model: str = "auto"
    messages: list[dict[str, Any]] = []


def _last(path: Path) -> _Talk:
    try:
        with open_file(path) as file:
            return msgspec.json.decode(file.read(), type=_Talk)
    except FileNotFoundError:
        raise CommandFailed("there is no question to go on with", 'ask one: caretway ask "..."', 2) from None
    except (OSError, msgspec.MsgspecError, RecursionError) as failure:
        raise CommandFailed(f"cannot read {path}: {failure}", exit_code=2) from failure


def _keep(path: Path, talk: _Talk) -> None:
    try:
        write_file(path, msgspec.json.encode(talk).decode(), durable=False)
    except OSError as failure:
        remark([f"--continue will not know this answer: {path} cannot be written ({failure.strerror})"])


@dataclass(frozen=True, slots=True)
class PlaceToAsk:
    url: str
    key: str


@asynccontextmanager
async def gateway(settings: Settings, *, own: bool) -> AsyncIterator[PlaceToAsk]:
    """The running gateway, unless flags ask for another; otherwise one for this question."""
    from .client_gateway import usable_gateways

    for note in () if own else usable_gateways(settings.data_dir):
        yield PlaceToAsk(note.url, note.key)
        return
    from ..gateway import Gateway

    alone = replace(settings, host="127.0.0.1", port=0, tls_cert=None, tls_key=None, auth_mode="own")
    from ..server.access import new_key

    # Named keys are required here as well.
    async with Gateway(replace(alone, gateway_key=None, api_key_file=None), local_key=new_key()) as started:
        yield PlaceToAsk(started.base_url, started.local_key)


async def _ask(settings: Settings, body: dict[str, object], *, own: bool) -> str:
    """Prints the answer and returns its text."""

    style, began, first = style_for(sys.stderr), time.monotonic(), 0.0
    folder = AnswerFolder(shown_width(sys.stdout)) if sys.stdout.isatty() else None
    last, texts = "\n", []
    async with gateway(settings, own=own) as place:
        async for piece in stream_answer(place.url, place.key, body):
            first = first or time.monotonic() - began
            match piece:
                case AnswerHead(headers=headers):
                    if headers.get("x-caretway-backend") == "simulator":
                        remark([SIMULATED])
                case bytes():
                    answer = json.loads(piece)
                    say([json.dumps(answer, indent=2, ensure_ascii=False)])
                    texts.append(answer["choices"][0]["message"].get("content") or "")
                case AnswerPiece(text, thinking):
                    if thinking and style.colour:
                        print(style.dim(printable(thinking)), end="", file=sys.stderr, flush=True)
                    if text:
                        print(folder.feed(printable(text)) if folder else text, end="", flush=True)
                        last = text[-1]
                        texts.append(text)
                case AnswerEnd():
                    if folder:
                        print(folder.end(), end="", flush=True)
                    if last != "\n":
                        print(flush=True)
                    if sys.stderr.isatty():
                        print(style.dim(footer(piece, time.monotonic() - began)), file=sys.stderr, flush=True)
    return "".join(texts)


def footer(closing: AnswerEnd, seconds: float) -> str:
    usage = closing.usage or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    counts = [
        f"{usage['prompt_tokens']:,} tokens in" + (f" ({cached:,} cached)" if cached else "")
        if usage.get("prompt_tokens") is not None
        else "",
        f"{usage['completion_tokens']:,} out" if usage.get("completion_tokens") is not None else "",
        "cut at the limit of tokens" if closing.finish_reason == "length" else "",
    ]
    return ", ".join(filter(None, (closing.model, *counts, f"{seconds:.1f} s")))


def message(words: str, piped: str, files: Sequence[tuple[str, bytes]]) -> str | list[dict[str, Any]]:
    """The content of the user's message: files and standard input, then the question. May be empty."""
    texts = [_quoted(name, _decoded(data, name)) for name, data in files if not picture_type(data)]
    texts += [_quoted("standard input", piped) if words else piped] if piped.strip() else []
    text = "\n\n".join([*texts, *([words] if words.strip() else [])])
    pictures = [data for _, data in files if picture_type(data)]
    if not pictures:
        return text
    return [*({"type": "image_url", "image_url": {"url": _data_url(data)}} for data in pictures), _text_part(text)]


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text or "Describe this."}


def picture_type(data: bytes) -> str:
    return next((mime for magic, mime in _PICTURES.items() if data.startswith(magic)), "")


def _data_url(data: bytes) -> str:
    return f"data:{picture_type(data)};base64,{base64.b64encode(data).decode()}"


def _quoted(name: str, text: str) -> str:
    """Puts the text between fences that do not occur in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{name}:\n{fence}\n{text.rstrip()}\n{fence}"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as failure:
        raise CommandFailed(f"cannot read {path}: {failure.strerror}", exit_code=2) from failure
    return data


def _decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_FILE:
        raise CommandFailed(f"{name} is larger than {MAX_FILE // 1024 // 1024} MB", "send a part of it", 2)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as binary:
        raise CommandFailed(f"{name} is neither text nor an image", "send it as text (UTF-8)", 2) from binary


# ---- one question over HTTP

# Also for `mcp serve`. HTTP/1.0, because its answers end with the connection and have no chunks. Independent of the
# terminal.

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
