"""Files for this user alone: a write replaces a file whole or not at all, and the new content is on disk before the old
is gone; a read does not block on a pipe."""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

# ---- A lock between processes on an open file, without waiting. The end of the process, or of the handle, releases it.


def try_lock(handle: int) -> bool:
    """Lock an open file without waiting. False if another process has the lock. Raises OSError if the file system has
    no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        if failure.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError, also if it is not a regular file."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(handle, "rb")


def write_file(path: Path, data: str | bytes, *, mode: int = 0o600, keep: bool = False, durable: bool = True) -> None:
    """Replace or create a file with this mode, and create a missing directory. Raises OSError.

    `keep`: for files that people edit: a link stays a link, and an existing file keeps its mode. `durable`: wait for
    the disk; False where a loss costs nothing, and in the event loop.
    """
    target = path.resolve() if keep else path
    half = target.with_name(f".{target.name}.{os.getpid()}.new")
    kept: int | None = None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if keep:
        with suppress(FileNotFoundError):
            kept = stat.S_IMODE(target.stat().st_mode)
    half.unlink(missing_ok=True)  # left by a killed process with the same id
    try:
        with os.fdopen(os.open(half, flags, mode if kept is None else kept), "wb") as file:
            if kept is not None:
                os.fchmod(file.fileno(), kept)  # the umask applies to new files only
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(half, target)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
    if durable:
        with suppress(OSError):  # not every file system supports it
            directory = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
