"""Extracts the text of a PDF in a separate process: reads the file from stdin, writes JSON; limits pages, characters,
memory and CPU.

A hostile PDF can hold streams that unpack without end or pages that refer to themselves, so the gateway never parses a
PDF itself. The caller sets a time limit (`documents.py`). Imports no other module of the package, to start quickly.
"""

import io
import json
import logging
import sys
from typing import Any, Final

MAX_PAGES: Final = 1000
MAX_CHARS: Final = 4 * 2**20
MAX_MEMORY: Final = 2**30
MAX_CPU_S: Final = 30


def text_of(data: bytes) -> dict[str, Any]:
    """Returns `pages`, `text`, and `cut` if there was more; or `failure`."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"failure": "it needs a password"}
        texts: list[str] = []
        length = 0
        for page in reader.pages[:MAX_PAGES]:
            texts.append(page.extract_text())
            length += len(texts[-1])
            if length > MAX_CHARS:
                break
        pages = len(reader.pages)
    except (
        PyPdfError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        MemoryError,
    ) as broken:
        return {"failure": f"it is damaged ({type(broken).__name__})"}
    return {"pages": pages, "text": "\n\n".join(texts)[:MAX_CHARS], "cut": length > MAX_CHARS or len(texts) < pages}


def limit() -> None:
    """Limit this process's memory and CPU time."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))


if __name__ == "__main__":
    logging.disable()
    limit()
    sys.stdout.write(json.dumps(text_of(sys.stdin.buffer.read())))
