"""Replaces the PDFs of a request by their text before decoding: in the three APIs' places for files, one PDF at a time,
in a separate process (`pdf_text.py`) with a time limit. Without the package pypdf a PDF is an error with the command
that installs it.

A PDF without text (a scan) is an error too: a model would answer about nothing.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError
from ..dialects.attachments import decode_base64
from ..installation import install_command

MARK: Final = b"JVBERi0"
"""The start of every PDF in base64: a body without it has no PDF."""
MAX_PDFS: Final = 20
TIMEOUT_S: Final = 60.0
_PDFS: Final = ThreadPoolExecutor(1, "pdf")
"""One PDF at a time for all callers."""

Read = Callable[[bytes], dict[str, Any]]


async def inline_pdfs(body: object, read: Read | None = None) -> int:
    """Replace each PDF by its text. Returns by how many bytes the body became shorter."""
    places = pdf_places(body)
    if len(places) > MAX_PDFS:
        raise _unreadable(f"At most {MAX_PDFS} PDFs can be read in one request, not {len(places)}.", "Send fewer.")
    shorter = 0
    for place in places:
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(_PDFS, _text, place.data, read or read_aside)
        shorter += len(place.data) - len(text)
        place.put(text)
    return shorter


def read_aside(data: bytes) -> dict[str, Any]:
    """Read a PDF in a separate process. Blocks: call it from a thread."""
    if find_spec("pypdf") is None:
        raise _unreadable("PDFs are read with the package pypdf, which is not installed.", install_command("pdf"))
    command = [sys.executable, "-P", str(Path(__file__).with_name("pdf_text.py"))]
    try:
        done = subprocess.run(  # noqa: S603 (our own module; the file is only its input)
            command,
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # the path of its packages, and no secrets
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"it took longer than {TIMEOUT_S:g} s"}
    try:
        read: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"failure": "it takes more memory or time than one may"}
    return read


def _text(encoded: str, read: Read) -> str:
    try:
        data = decode_base64(encoded)
    except ValueError as broken:
        raise _unreadable(f"A PDF is not valid base64 ({str(broken)[:80]}).", "Send the file as base64.") from broken
    answer = read(data)
    if "failure" in answer:
        raise _unreadable(f"A PDF cannot be read: {answer['failure']}.", "Send the document's text.")
    text = str(answer["text"]).strip()
    if not text:
        raise _unreadable("A PDF has no text; it may be a scan.", "Send its pages as images, or its text.")
    return f"{text}\n\n(The document has {answer['pages']} pages; the rest is left out.)" if answer["cut"] else text


def _unreadable(message: str, hint: str) -> GatewayError:
    return GatewayError(ErrorKind.UNSUPPORTED, message, hint=hint, code="document_not_supported")


class PdfPlace(Struct, frozen=True):
    """The position of a PDF in a body."""

    holder: dict[str, Any]
    key: str
    data: str
    """In base64."""

    def put(self, text: str) -> None:
        if self.key == "source":
            self.holder["source"] = {"type": "text", "media_type": "text/plain", "data": text}
        else:
            self.holder[self.key] = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


def pdf_places(body: object) -> list[PdfPlace]:
    """Anthropic's `document` blocks and OpenAI's `file_data`."""
    found: list[PdfPlace] = []
    waiting = [body]
    while waiting:  # no recursion: a body may be nested deeply
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            source, file = value.get("source"), value.get("file_data")
            if isinstance(source, dict) and source.get("type") == "base64" and _is_pdf(source.get("data")):
                found.append(PdfPlace(value, "source", source["data"].strip()))
            elif isinstance(file, str) and _is_pdf(payload := file.rpartition(",")[2].strip()):
                found.append(PdfPlace(value, "file_data", payload))
            else:
                waiting.extend(value.values())
    return found


def _is_pdf(data: object) -> bool:
    return isinstance(data, str) and data.lstrip().startswith(MARK.decode())
