"""The working directory of cursor-agent when none is named: an empty one of ours, shared for read-only modes, else one
for each conversation (32 kept). Pictures as files; files readable by their owner only.

A mode that only reads shares one. A mode that writes gets one for each conversation, and the oldest are thrown away.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...core.request import Image
from ...storage.private_file import write_file

KEPT: Final = 32
_SHARED: Final = "read-only"
_WITH_TOOLS: Final = "with-tools-"
"""And the number of the process that uses it."""


class Scratch:
    def __init__(self, root: Path) -> None:
        self._root = root

    def shared(self) -> Path:
        return self._made(_SHARED)

    def own(self) -> Path:
        made = self._made(uuid.uuid4().hex)
        others = [path for path in self._root.iterdir() if path.name != _SHARED and _WITH_TOOLS not in path.name]
        for old in sorted(others, key=_age)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return made

    def with_tools(self) -> Path:
        """For turns that have a client's tools: of this process alone."""
        return self._made(f"{_WITH_TOOLS}{os.getpid()}")

    def left_behind(self) -> list[Path]:
        """Such directories of processes that are gone."""
        found = self._root.glob(f"{_WITH_TOOLS}*") if self._root.is_dir() else ()
        return [path for path in found if not _lives(path.name.removeprefix(_WITH_TOOLS))]

    def keep_images(self, place: Path, images: Sequence[Image]) -> Path:
        """Files for pictures that can only be told of, in a directory of their own inside `place`. Throw it away."""
        folder = place / f"images-{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        for number, image in enumerate(images, 1):
            kind = image.mime_type.rpartition("/")[2]
            suffix = kind if kind.isalnum() else "png"
            write_file(folder / f"{number}.{suffix}", image.data, durable=False)
        return folder

    def is_ours(self, path: Path) -> bool:
        return path.parent == self._root

    def _made(self, name: str) -> Path:
        path = self._root / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        pass  # somebody else's, or not to be asked
    return True


def _age(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
