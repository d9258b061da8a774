"""Keeps the data directory private: removes access of other users and refuses a directory of another user or a path
that is no directory (root only gets a warning).

`judge` decides from values; `close_data_dir` applies its verdict. A missing directory is created private when something
is first written to it.
"""

import logging
import os
import stat
from enum import Enum
from pathlib import Path
from typing import Final

from .kinds import ConfigError

log = logging.getLogger(__name__)

_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022


class Verdict(Enum):
    FINE = "it is this user's alone"
    OPEN = "others may look into it"
    WRITABLE = "others may write to it"
    FOREIGN = "it belongs to another user"
    NO_DIRECTORY = "it is no directory"


def judge(mode: int, owner: int, me: int) -> Verdict:
    if not stat.S_ISDIR(mode):
        return Verdict.NO_DIRECTORY
    if owner != me:
        return Verdict.FOREIGN
    if mode & _OTHERS_WRITE:
        return Verdict.WRITABLE
    return Verdict.OPEN if mode & _OTHERS else Verdict.FINE


def look(path: Path) -> Verdict:
    """Judges the directory by its mode and owner. A directory that is missing or cannot be examined is FINE."""
    try:
        info = path.stat()
    except OSError:
        return Verdict.FINE
    return judge(info.st_mode, info.st_uid, os.geteuid())


def close_data_dir(path: Path, origin: str) -> None:
    """Removes other users' access to the directory. Raises ConfigError if the directory cannot be trusted."""
    verdict = look(path)
    if verdict is Verdict.FINE:
        return
    if verdict is Verdict.NO_DIRECTORY:
        raise ConfigError("data_dir", origin, f"{path} is not a directory: choose another --data-dir")
    if verdict is Verdict.FOREIGN:
        if os.geteuid() == 0:  # another owner of a container volume cannot harm root unseen
            log.warning("the data directory %s belongs to another user, who can read what is kept there", path)
            return
        hint = f"choose another --data-dir, or make it yours: sudo chown -R {os.geteuid()} {path}"
        raise ConfigError("data_dir", origin, f"{path} belongs to another user, who could read your sign-in: {hint}")
    try:
        path.chmod(0o700)
    except OSError as failure:
        if verdict is Verdict.WRITABLE:
            raise ConfigError(
                "data_dir", origin, f"{path} can be written to by other users; close it: chmod 700 {path}"
            ) from failure
        log.warning("other users can read the data directory %s: chmod 700 %s", path, path)
        return
    log.warning("the data directory %s was open to other users; it is private now", path)
