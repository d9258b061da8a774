"""Replaces a settings file: whole or not at all; a link stays a link; a new file is this user's alone, because it may
hold secrets. Raises OSError.
"""

import os
from pathlib import Path


def replace_file(file: Path, text: str) -> None:
    place = file.resolve()
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = place.stat().st_mode & 0o777 if place.exists() else 0o600
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as opened:
            opened.write(text)
        aside.replace(place)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
