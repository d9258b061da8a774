"""Who has a port that is in use: a gateway of ours (version, backend, process), or another program by its name, where
the system tells it (Linux, programs of the same user).
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .running import dialled, noted_gateways

PROBE_S: Final = 3.0
_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"


def port_owner(data_dir: Path, host: str, port: int) -> str:
    """In words; empty when nobody knows."""
    url = dialled(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    for note in noted_gateways(data_dir):
        if note.url.rpartition(":")[2] == str(port):
            return f"a Caretway gateway (version {note.version}, backend {note.backend}, process {note.pid})"
    if backend := gateway_there(url):
        return f"a Caretway gateway of somebody else or with other settings (backend {backend})"
    found = next(_listeners(port), None)
    return "" if found is None else f"{found[1]} (process {found[0]})"


def gateway_there(url: str) -> str:
    """The backend of the gateway at this address; empty if there is none."""
    name, _, port = url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(name.strip("[]"), int(port), timeout=PROBE_S)
    try:
        connection.request("HEAD", "/")
        return connection.getresponse().getheader("x-caretway-backend") or ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def _listeners(port: int) -> Iterator[tuple[int, str]]:
    """(process, name) of those that listen on the port, as far as this user may see them."""
    sockets = set(_sockets(port))
    for process in _PROC.glob("[0-9]*") if sockets else ():
        try:
            if any(os.readlink(link) in sockets for link in (process / "fd").iterdir()):
                yield int(process.name), (process / "comm").read_text().strip()
        except OSError:
            continue  # it is gone, or another user's


def _sockets(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"
