"""The file of `--log-file`: rotated and private to the user. `log_lines` formats its lines.

Imported only if there is such a file: Python's rotating handlers import `socket` and `pickle`, which costs time.
"""

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from ..config import ConfigError

LOG_FILE_BYTES: Final = 10_000_000
LOG_FILES_KEPT: Final = 5


class _PrivateFile(RotatingFileHandler):
    """A rotated log file that only the owner can read."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
        os.set_blocking(descriptor, True)  # O_NONBLOCK is only for opening a pipe without a reader
        return open(descriptor, "a", encoding="utf-8")


def log_file(path: Path) -> logging.Handler:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _PrivateFile(path, maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES_KEPT)
    except OSError as failure:
        raise ConfigError("log_file", "log_file", f"cannot write {path}: {failure.strerror}") from failure
