"""Writes a recording (`--trace`): JSON lines that only the owner can read, in one file per side (`clients-...`,
`cursor-...`). `redact` decides about the content.

At its size limit the file ends with a line that says so. A failing disk never disturbs the traffic.
"""

import itertools
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from .redact import Redactor

MAX_BYTES: Final = 64 * 2**20

log = logging.getLogger(__name__)

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class Trace:
    def __init__(
        self,
        directory: Path,
        side: str,
        *,
        hidden: Iterable[str],
        content: bool,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.redact = Redactor(hidden, content=content, salt=secrets.token_bytes(16))
        self._left = max_bytes
        self._clock = clock
        self._numbers = itertools.count(1)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock()))
        self.path = directory / f"{side}-{stamp}-{os.getpid()}-{secrets.token_hex(3)}.jsonl"
        self._file: int | None = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self.write("recording", side=side, content=content)

    def number(self) -> int:
        """A new exchange id, which marks all its lines."""
        return next(self._numbers)

    def write(self, what: str, **fields: Any) -> None:
        """Writes one line. `redact` must have processed the values."""
        if self._file is None:
            return
        line = _encode({"at": round(self._clock(), 4), "what": what, **fields}) + b"\n"
        self._left -= len(line)
        if self._left < 0:
            line = _encode({"at": round(self._clock(), 4), "what": "the recording has reached its limit"}) + b"\n"
        try:
            os.write(self._file, line)
        except OSError as failure:
            log.warning("the recording ends here: %s", failure.strerror)
            self._left = -1
        if self._left < 0:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
