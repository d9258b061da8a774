"""Which state directory the SDK uses: the lasting one under a file lock, or a temporary one while another gateway has
it. Removes what killed guests left behind.

Two programs on one data directory are common (`caretway models` beside `caretway serve`), and what one has under way
the other must not take for leftovers. A lock, which the system releases even after a SIGKILL, shows which directories
are in use.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .layout import Layout

NAME: Final = "sdk"
GUESTS: Final = "sdk-guest-"


def acquire(data_dir: Path) -> tuple[Layout, Callable[[], None]]:
    """The directory, and what is to be called at the end."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    data_dir = data_dir.resolve()  # permissions are given by path, and none may lead through a symbolic link
    lasting = data_dir / NAME
    lasting.mkdir(mode=0o700, exist_ok=True)
    lock = _lock(lasting)
    if lock is not None:
        _sweep(data_dir)
        shutil.rmtree(Layout(lasting).temporary, ignore_errors=True)
        return Layout(lasting), lambda: os.close(lock)
    passing = Path(tempfile.mkdtemp(prefix=GUESTS, dir=data_dir))
    held = _lock(passing)

    def leave() -> None:
        shutil.rmtree(passing, ignore_errors=True)
        if held is not None:
            os.close(held)

    return Layout(passing), leave


def _sweep(data_dir: Path) -> None:
    """Guests that were killed left their directories behind."""
    for guest in data_dir.glob(f"{GUESTS}*"):
        if (lock := _lock(guest)) is not None:
            shutil.rmtree(guest, ignore_errors=True)
            os.close(lock)


def _lock(directory: Path) -> int | None:
    """A lock on the directory, for as long as it stays open; None when somebody else has it."""
    import fcntl  # not on Windows, where this backend does not run

    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None  # another one swept it away meanwhile
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
