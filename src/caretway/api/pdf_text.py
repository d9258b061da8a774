"""The text of a PDF, in a process of its own that reads the file from stdin and writes JSON: how many pages and
characters are read, how much memory and CPU a hostile file may take.

A PDF can be a bomb: streams that unpack without end, pages that refer to themselves. So the gateway never reads one
itself. The caller sets a time limit (`documents.py`). Imports nothing else of the package, to start quickly.
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
    """`pages`, `text`, and `cut` when there was more; or `failure`."""
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
    """Less memory and CPU for this process."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))


if __name__ == "__main__":
    logging.disable()
    limit()
    sys.stdout.write(json.dumps(text_of(sys.stdin.buffer.read())))
