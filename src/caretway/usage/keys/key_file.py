"""The file of named keys in the data directory: mode 0600, replaced whole, one writer at a time (a lock between
processes); and the keys that a running gateway knows, read again as soon as the file has changed.

`KeyFile` blocks: for the commands and for the gateway's start. A look of `KeyBook` at the file is one `stat`, so a key
that was revoked is refused from the next request on. Neither knows who asks with a key.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ...storage.private_file import open_file, try_lock, write_file
from .named_key import VERSION, Keys, KeysFile, NamedKey, dump, load

log = logging.getLogger(__name__)

FILE: Final = "keys.json"
CLUSTER_COPY: Final = "cluster-keys.json"
"""What a gateway of a cluster knows of the keys that all of them have."""
LOCK: Final = "keys.lock"
LOCK_PATIENCE_S: Final = 10.0
LOCK_LOOK_S: Final = 0.02
MAX_BYTES: Final = 8 * 2**20
MAX_REVOKED: Final = 4096

Stamp = tuple[int, int, int]


class KeyFile:
    def __init__(self, data_dir: Path, patience_s: float = LOCK_PATIENCE_S, name: str = FILE) -> None:
        self.path = data_dir / name
        self._lock = data_dir / LOCK
        self._name = str(self.path)  # looked at for every request
        self._patience = patience_s

    def stamp(self) -> Stamp | None:
        """Another one after each change; None when there is no file."""
        try:
            seen = os.stat(self._name)
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_ino, seen.st_size

    def read(self) -> Keys:
        return self.numbered()[1]

    def numbered(self) -> tuple[int, Keys]:
        """The keys, and their serial number in a cluster."""
        held = self._held()
        return held.serial, held.keys

    def _held(self) -> KeysFile:
        """Raises GatewayError when there is a file that cannot be used: a gateway must not go on without its keys."""
        try:
            with open_file(self.path) as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    os.fchmod(file.fileno(), 0o600)
                text = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return KeysFile(VERSION)
        except OSError as failure:
            raise self._trouble("read", failure.strerror or str(failure)) from failure
        try:
            return load(text)
        except ValueError as problem:
            raise self._trouble("read", str(problem)) from None

    def change(self, work: Callable[[Keys], Keys]) -> Keys:
        """What `work` makes of the keys, written. While it works nobody else changes them."""
        with self._locked():
            keys = work(self.read())
            self._write(dump(keys))
        return keys

    def keep(self, serial: int, keys: Keys) -> None:
        """Keys of a cluster, unless newer ones are here. A key that was revoked before stays so: it is left out."""
        with self._locked():
            held = self._held()
            if serial < held.serial:
                return
            now = {key.digest for key in keys}
            revoked = (*held.revoked, *[key.digest for key in held.keys if key.digest not in now])[-MAX_REVOKED:]
            self._write(dump(tuple([key for key in keys if key.digest not in revoked]), serial, revoked))

    def _write(self, text: bytes) -> None:
        try:
            write_file(self.path, text)
        except OSError as failure:
            raise self._trouble("write", failure.strerror or str(failure)) from failure

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as failure:
            raise self._trouble("write", failure.strerror or str(failure)) from failure
        try:
            give_up = time.monotonic() + self._patience
            while not try_lock(handle):
                if time.monotonic() >= give_up:
                    raise self._trouble("change", f"another process has been changing them for {self._patience:g} s")
                time.sleep(LOCK_LOOK_S)
            yield
        finally:
            os.close(handle)  # this releases the lock, and so does the end of the process

    def _trouble(self, what: str, why: str) -> GatewayError:
        return GatewayError(
            ErrorKind.INTERNAL,
            f"Cannot {what} the gateway's keys in {self.path}: {why}.",
            hint="Check its owner and permissions, or move it away and make new keys.",
        )


class KeyBook:
    """The named keys of a running gateway. A file that can no longer be read leaves those that were known."""

    def __init__(self, file: KeyFile) -> None:
        """Raises GatewayError when there is a file that cannot be used."""
        self._file = file
        self._stamp = file.stamp()
        self._closed = False
        self._learn(*file.numbered())

    def current(self) -> Mapping[bytes, NamedKey] | None:
        """By their digests, as of now; the same object until something changes. None: no key is required. Empty: the
        last one was revoked, and every request is refused, also after a restart, until the file is deleted."""
        stamp = self._file.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._read_again()
        return self._by_digest if self._closed else None

    def named(self, name: str) -> NamedKey | None:
        """As it was when all were last read."""
        return self._by_name.get(name)

    def _learn(self, serial: int, keys: Keys) -> None:
        self._by_digest = {bytes.fromhex(key.digest): key for key in keys}
        self._by_name = {key.name: key for key in keys}
        # A cluster's copy without a key and a change says that the cluster never had a key.
        there = self._stamp is not None and (serial > 0 or self._file.path.name != CLUSTER_COPY)
        self._closed = self._closed or there or bool(keys)

    def _read_again(self) -> None:
        try:
            serial, keys = self._file.numbered()
        except GatewayError as problem:
            log.error("the keys that were known go on working: %s", problem)
            return
        self._learn(serial, keys)
        log.info("the gateway's keys have changed: there are %d with a name", len(keys))
