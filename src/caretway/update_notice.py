"""Whether a newer version is out: asks the package index for its JSON of this project, once a day at most, if the
setting `update_check` is on; what is remembered, which versions count as newer, and the one line that is said.

Only a running gateway asks, beside its work. Commands read what it found, so no command and no start waits for it.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from . import __version__
from .config import Settings
from .core.errors import GatewayError
from .cursor_transport.auto_transport import open_transport
from .cursor_transport.limits import TransportLimits
from .installation import NAME, update_command
from .processes.file_lock import try_lock
from .storage.private_file import write_file
from .transport_factory import dialler

log = logging.getLogger(__name__)

FILE: Final = "update.json"
DAY_S: Final = 86_400.0
_LIMITS: Final = TransportLimits(call_timeout_s=10.0, max_call_bytes=2 * 2**20)
_MAX_NOTE: Final = 10_000
_RELEASE: Final = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class UpdateNote:
    asked: float = 0.0
    """When the index was asked last, whatever it said."""
    newest: str = ""
    """What it said then, or before."""


def due(note: UpdateNote, now: float) -> bool:
    """A clock that was set back does not silence it for ever."""
    return not 0 <= now - note.asked < DAY_S


def newer(newest: str, ours: str = __version__) -> bool:
    """Only finished releases count, on both sides."""
    if not (_RELEASE.fullmatch(newest) and _RELEASE.fullmatch(ours)):
        return False
    return _numbers(newest) > _numbers(ours)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def told_version(answer: bytes) -> str:
    """The newest release in an index's JSON of a project; empty where it is no such thing."""
    try:
        version = json.loads(answer)["info"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version if isinstance(version, str) and _RELEASE.fullmatch(version) else ""


def notice(newest: str) -> str:
    return f"version {newest} is out (this is {__version__}); update: {update_command()}"


def read_note(data_dir: Path) -> UpdateNote:
    """An empty one where there is none, or it cannot be read."""
    try:
        with (data_dir / FILE).open(encoding="utf-8") as opened:
            told = json.loads(opened.read(_MAX_NOTE))
        return UpdateNote(
            float(told["asked"]), told_version(json.dumps({"info": {"version": told["newest"]}}).encode())
        )
    except (OSError, ValueError, KeyError, TypeError):
        return UpdateNote()


def known_notice(settings: Settings) -> str:
    """The line, if a newer version is known here; empty otherwise. Asks nobody."""
    if not settings.update_check:
        return ""
    newest = read_note(settings.data_dir).newest
    return notice(newest) if newer(newest) else ""


async def ask_index(settings: Settings, now: Callable[[], float] = time.time) -> bool:
    """Asks, if that is due, and remembers the answer. True: it was asked. One gateway of a data directory asks; the
    time is kept before the answer, so that an index that is down is not asked again before the next day."""
    place = settings.data_dir / f"{FILE}.lock"
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as failure:
        log.debug("no newer version is looked for: %s: %s", place, failure.strerror)
        return False
    try:
        note = read_note(settings.data_dir)
        if not try_lock(handle) or not due(note, now()):
            return False
        _keep(settings.data_dir, UpdateNote(now(), note.newest))
        if newest := await _answer(settings):
            _keep(settings.data_dir, UpdateNote(now(), newest))
        return True
    except OSError as failure:  # a full disk; without a note it would be asked again and again
        log.debug("no newer version is looked for: %s", failure)
        return False
    finally:
        os.close(handle)


def _keep(data_dir: Path, note: UpdateNote) -> None:
    write_file(data_dir / FILE, json.dumps(asdict(note)), durable=False)


async def _answer(settings: Settings) -> str:
    parts = urlsplit(settings.update_index)
    path = f"{parts.path.rstrip('/')}/pypi/{NAME}/json"
    transport = open_transport(f"{parts.scheme}://{parts.netloc}", dialler(settings), mode="http1", limits=_LIMITS)
    try:
        answer = await transport.call("GET", path, {"accept": "application/json", "user-agent": NAME})
    except GatewayError as failure:
        log.debug("the package index was not reached: %s", failure)
        return ""
    finally:
        await transport.aclose()
    return told_version(answer.body) if answer.status == 200 else ""


async def watch_index(settings: Settings, say: Callable[[str], None]) -> None:
    """As long as the gateway runs: says the line when it starts, and when there is news."""
    import asyncio

    said = ""
    while True:
        await ask_index(settings)
        if (line := known_notice(settings)) and line != said:
            say(line)
            said = line
        asked = read_note(settings.data_dir).asked
        await asyncio.sleep(min(max(60.0, asked + DAY_S - time.time()), DAY_S))
