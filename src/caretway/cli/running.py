"""The running gateways of this user on all ports. Each gateway writes a note to the data directory, with its address
and a key for this user's programs; notes of ended processes are removed.

A note is no proof, so `answers` calls the address. The key is valid only if the gateway requires one, changes with
every start, and is as private as the sign-in in the same directory.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import __version__
from ..config import Settings
from ..storage.private_file import open_file, write_file

if TYPE_CHECKING:
    from ..gateway import Gateway

log = logging.getLogger(__name__)

FOLDER: Final = "gateways"
LAUNCH_LOG: Final = "launch.log"
NOT_RUNNING: Final = "no gateway is running"
START_ONE: Final = "start one: caretway serve"
_MAX_NOTE: Final = 10_000
_MAX_ANSWER: Final = 8_000_000
_ASK_S: Final = 10.0
PROBE_S: Final = 0.5
"""The timeout for an address that no gateway has announced: another program may listen there and not answer."""
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses for listening only


class RunningGateway(Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    """The address for programs on this machine, without /v1."""
    pid: int
    version: str
    backend: str
    passthrough: bool
    """Clients must send their own Cursor key."""
    key: str
    started: float
    awaits_login: bool = False
    """The gateway simulates until there is a sign-in, then uses Cursor."""
    restarts: bool = False
    """The gateway restarts on the signal `process.RESTART`."""
    log_file: str = ""
    """The log file, in addition to the terminal."""
    launched: bool = False
    """The gateway was started for one client and ends with it, so no other client uses it."""


@asynccontextmanager
async def announced_gateway(settings: Settings, *, launched: bool = False) -> AsyncIterator[Gateway]:
    """Runs a gateway and a note by which other commands of this user find it. A `launched` gateway logs to
    LAUNCH_LOG."""
    from ..gateway import Gateway
    from ..server.access import new_key

    log_file = settings.data_dir / LAUNCH_LOG if launched else settings.log_file
    local_key = settings.gateway_key if launched and settings.gateway_key else new_key()
    async with Gateway(settings, local_key=local_key) as gateway:
        note = RunningGateway(
            dialled(gateway.base_url),
            os.getpid(),
            __version__,
            gateway.backend.name,
            settings.auth_mode == "passthrough",
            gateway.local_key,
            time.time(),
            gateway.awaits_sign_in,
            not launched,
            str(log_file.absolute()) if log_file else "",
            launched,
        )
        with _noted(settings.data_dir / FOLDER, note) as file:
            gateway.switched = lambda: _write(file, replace(note, backend=gateway.backend.name, awaits_login=False))
            yield gateway


def dialled(url: str) -> str:
    """Replaces an address that listens everywhere by one to connect to."""
    parts = urlsplit(url)
    host = _EVERYWHERE.get(parts.hostname or "", parts.hostname or "")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}"


@contextmanager
def _noted(folder: Path, note: RunningGateway) -> Iterator[Path]:
    file = folder / f"{note.pid}-{urlsplit(note.url).port}.json"
    _write(file, note)
    try:
        yield file
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _write(file: Path, note: RunningGateway) -> None:
    try:
        write_file(file, msgspec.json.encode(note), durable=False)
    except OSError as failure:
        log.warning("other commands cannot find this gateway: %s cannot be written (%s)", file, failure.strerror)


def noted_gateways(data_dir: Path) -> list[RunningGateway]:
    """The notes of live processes, newest first, launched ones last. Notes of dead processes are removed. An unreadable
    note of a live process is skipped and kept: it may be half written or of another version."""
    found: list[RunningGateway] = []
    for file in sorted((data_dir / FOLDER).glob("*.json")):
        note = _read(file)
        if not process_exists(_pid_of(file) if note is None else note.pid):
            with suppress(OSError):
                file.unlink(missing_ok=True)
        elif note is not None:
            found.append(note)
    return sorted(found, key=lambda note: (note.launched, -note.started))


def _read(file: Path) -> RunningGateway | None:
    try:
        with open_file(file) as opened:
            note = msgspec.json.decode(opened.read(_MAX_NOTE), type=RunningGateway)
        return note if urlsplit(note.url).port else None
    except (OSError, ValueError, RecursionError):  # another version, or half written
        return None


def _pid_of(file: Path) -> int:
    """The process id in the file's name; 0 if there is none."""
    word = file.stem.partition("-")[0]
    return int(word) if word.isascii() and word.isdigit() else 0


def process_exists(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def is_another_process(note: RunningGateway) -> bool:
    """Whether the process id now belongs to a process that was started after the gateway. Known only on Linux, and
    unreliable after clock changes, so it is used only for gateways that do not answer."""
    try:
        ticks = int(Path(f"/proc/{note.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
        boot = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
        return boot + ticks / os.sysconf("SC_CLK_TCK") > note.started + _CLOCKS_S
    except (OSError, ValueError, IndexError, StopIteration):
        return False


_CLOCKS_S: Final = 60.0


class GatewayAnswer(Struct, frozen=True):
    status: int
    """The HTTP status; 0 without an answer."""
    headers: Mapping[str, str] = {}
    body: Any = None
    """The JSON; None if it is not JSON."""

    @property
    def backend(self) -> str:
        """The backend of the answering gateway; empty for another program."""
        return self.headers.get("x-caretway-backend", "")

    @property
    def error(self) -> str:
        """The message of the gateway's error, or the status."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return str(error["message"]) if error else f"status {self.status}" if self.status else "no answer"


def ask(
    url: str,
    path: str,
    key: str = "",
    *,
    method: str = "GET",
    body: object = None,
    csrf: str = "",
    timeout: float = _ASK_S,
) -> GatewayAnswer:
    """Sends a request without proxies. Blocking."""
    import http.client

    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        return GatewayAnswer(0)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    headers |= {"x-caretway-csrf": csrf} if csrf else {}
    headers |= {} if body is None else {"content-type": "application/json"}
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        data = response.read(_MAX_ANSWER)
    except (OSError, http.client.HTTPException):
        return GatewayAnswer(0)
    finally:
        connection.close()
    found = {name.lower(): value for name, value in response.getheaders()}
    try:
        return GatewayAnswer(response.status, found, json.loads(data))
    except (ValueError, RecursionError):
        return GatewayAnswer(response.status, found)


def answering_gateways(data_dir: Path) -> Iterator[RunningGateway]:
    """This user's gateways that answer, newest first; gateways behind TLS are included without a call. Blocking."""
    return (note for note in noted_gateways(data_dir) if note.url.startswith("https:") or answers(note.url))


def answers(url: str) -> bool:
    """Whether a gateway answers at the address. `/healthz` needs no key."""
    return bool(ask(url, "/healthz").backend)


def gateway_there(url: str, data_dir: Path) -> str:
    """The backend of the gateway at this address; empty if there is none."""
    noted = any(note.url == url for note in noted_gateways(data_dir))
    return ask(url, "/healthz", timeout=_ASK_S if noted else PROBE_S).backend
