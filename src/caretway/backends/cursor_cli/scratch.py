"""Where cursor-agent works when nobody named a directory: an empty one of ours, never the directory we were started in.

A mode that only reads shares one. A mode that writes gets one for each conversation, and the oldest are thrown away.
"""

import contextlib
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...core.request import Image

KEPT: Final = 32
_SHARED: Final = "read-only"


class Scratch:
    def __init__(self, root: Path) -> None:
        self._root = root

    def shared(self) -> Path:
        return self._made(_SHARED)

    def own(self) -> Path:
        made = self._made(uuid.uuid4().hex)
        others = [path for path in self._root.iterdir() if path.name != _SHARED]
        for old in sorted(others, key=_age)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return made

    def keep_images(self, place: Path, images: Sequence[Image]) -> Path:
        """Files for pictures that can only be told of, in a directory of their own inside `place`. Throw it away."""
        folder = place / f"images-{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        for number, image in enumerate(images, 1):
            kind = image.mime_type.rpartition("/")[2]
            suffix = kind if kind.isalnum() else "png"
            (folder / f"{number}.{suffix}").write_bytes(image.data)
        return folder

    def is_ours(self, path: Path) -> bool:
        return path.parent == self._root

    def _made(self, name: str) -> Path:
        path = self._root / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path


def _age(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
