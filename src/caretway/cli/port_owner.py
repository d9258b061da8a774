"""The owner of a port in use: one of our gateways (version, backend, process), or another program by its name if the
system reveals it (Linux, programs of the same user). Also whether another user owns the socket (Linux).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from .running import dialled, gateway_there, noted_gateways

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"


def port_owner(data_dir: Path, host: str, port: int) -> str:
    """Describes the owner; empty if unknown."""
    url = dialled(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    for note in noted_gateways(data_dir):
        if note.url.rpartition(":")[2] == str(port):
            return f"a Caretway gateway (version {note.version}, backend {note.backend}, process {note.pid})"
    if backend := gateway_there(url, data_dir):
        return f"a Caretway gateway of another user or with other settings (backend {backend})"
    found = next(_listeners(port), None)
    return "" if found is None else f"{found[1]} (process {found[0]})"


def strangers_port(url: str, trusted: frozenset[int] | None = None) -> bool:
    """Whether another user listens on the port and would get prompts and keys. Root can read them anyway. False if
    unknown. `trusted`: accepted user ids, by default this user's and root's."""
    parts = urlsplit(url)
    return bool(listening_users(parts.hostname or "", parts.port or 0) - (trusted or {os.getuid(), 0}))


def listening_users(host: str, port: int) -> frozenset[int]:
    """The ids of the users who listen on this address; empty if there are none or the system does not say."""
    meant = _address(host)
    return frozenset(
        user for address, user, _ in _sockets(port) if meant is None or address == meant or int(address) == 0
    )


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """None if the host is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _listeners(port: int) -> Iterator[tuple[int, str]]:
    """(process, name) of the listeners on the port that this user may see."""
    sockets = {f"socket:[{inode}]" for _, _, inode in _sockets(port)}
    for process in _PROC.glob("[0-9]*") if sockets else ():
        try:
            if any(os.readlink(link) in sockets for link in (process / "fd").iterdir()):
                yield int(process.name), (process / "comm").read_text().strip()
        except OSError:
            continue  # the process has ended or belongs to another user


def _sockets(port: int) -> Iterator[tuple[IPv4Address | IPv6Address, int, str]]:
    """(address, user, inode) of each socket that listens on the port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            address, _, listens_on = fields[1].rpartition(":")
            if fields[3] == _LISTENS and int(listens_on, 16) == port:
                yield proc_address(address), int(fields[7]), fields[9]


def proc_address(text: str) -> IPv4Address | IPv6Address:
    """Parses an address of /proc/net/tcp and tcp6: words of four bytes in this machine's byte order."""
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    address = ip_address(packed)
    return getattr(address, "ipv4_mapped", None) or address
