"""The file of named keys in the data directory: mode 0600, replaced whole, one writer at a time (a lock between
processes); and the keys that a running gateway knows, read again as soon as the file has changed.

`KeyFile` blocks: for the commands and for the gateway's start. A look of `KeyRegistry` at the file is one `stat`, so
a key that was revoked is refused from the next request on. Neither knows who asks with a key.
"""

import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..storage.private_file import open_file, try_lock, write_file

if TYPE_CHECKING:
    from ..core.request import TurnRequest
    from ..core.turn import ModelInfo


# ---- named key

# A named key as a value: its name, models it may use, expiry, budgets, workspace, whether it opens the page; what a
# name may be; making, renaming and revoking one; what it lets a request do; the file's format. Pure.

VERSION: Final = 1
MAX_KEYS: Final = 1000
MAX_WORDS: Final = 64
"""How many models or budgets one key may name."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,39}")


class NamedKey(Struct, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    id: str
    name: str
    digest: str
    """SHA-256 of the key, in hexadecimal digits. The key itself is not kept."""
    made_at: float
    expires_at: float | None = None
    models: tuple[str, ...] = ()
    """Patterns such as `claude-*`; empty: all models."""
    budgets: tuple[str, ...] = ()
    """As they were typed: `runs=50/day`."""
    workspace: str = ""
    """The only directory in which its requests may work; empty: those of the settings."""
    page: bool = False
    """It opens the gateway's page, which shows what all keys do."""

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def may_use(self, model: str) -> bool:
        """Cases do not matter: they do not in the names of models either."""
        return not self.models or any(fnmatchcase(model.lower(), pattern.lower()) for pattern in self.models)


Keys = tuple[NamedKey, ...]


class KeysFile(Struct, frozen=True):
    version: int
    keys: Keys = ()
    serial: int = 0
    """Of a cluster's keys: how often they were changed."""
    revoked: tuple[str, ...] = ()
    """In a gateway's copy of a cluster's keys: digests of those that were in it and are not any more."""


def digest_of(key: str) -> bytes:
    """The digest of a key, which is stored and compared."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _wrong(
            "A key's name has 1 to 40 letters, digits or . _ @ -, and begins with a letter or digit.",
            "Choose another name, such as opencode or ci.bot.",
        )
    return name


def find(keys: Keys, name: str) -> NamedKey:
    for key in keys:
        if key.name.lower() == name.lower():
            return key
    known = ", ".join(sorted(key.name for key in keys)[:20]) or "there is none"
    raise GatewayError(ErrorKind.NOT_FOUND, f"There is no key named {name[:40]}.", hint=f"Known names: {known}.")


def added(
    keys: Keys,
    key: str,
    name: str,
    now: float,
    *,
    expires_at: float | None = None,
    models: Sequence[str] = (),
    budgets: Sequence[str] = (),
    workspace: str = "",
    page: bool = False,
) -> Keys:
    """The keys with a new one. Raises GatewayError if the name is not allowed."""
    _check_free(keys, check_name(name))
    if len(keys) >= MAX_KEYS:
        raise _wrong(f"There are {MAX_KEYS} keys already.", "Revoke those that are not used: caretway key list")
    if len(models) > MAX_WORDS or len(budgets) > MAX_WORDS:
        raise _wrong(f"A key names at most {MAX_WORDS} models and {MAX_WORDS} budgets.", "Use patterns: claude-*")
    made = NamedKey(
        id=f"k{secrets.token_hex(6)}",
        name=name,
        digest=digest_of(key).hex(),
        made_at=now,
        expires_at=expires_at,
        models=tuple(models),
        budgets=tuple(budgets),
        workspace=workspace,
        page=page,
    )
    return (*keys, made)


def renamed(keys: Keys, old: str, new: str) -> Keys:
    found = find(keys, old)
    others = tuple(key for key in keys if key is not found)
    _check_free(others, check_name(new))
    return tuple(replace(key, name=new) if key is found else key for key in keys)


def revoked(keys: Keys, name: str) -> Keys:
    found = find(keys, name)
    return tuple(key for key in keys if key is not found)


def _check_free(keys: Keys, name: str) -> None:
    if any(key.name.lower() == name.lower() for key in keys):
        raise _wrong(f"There is a key named {name} already.", f"Revoke it first: caretway key revoke {name}")


def dump(keys: Keys, serial: int = 0, revoked: tuple[str, ...] = ()) -> bytes:
    return msgspec.json.format(msgspec.json.encode(KeysFile(VERSION, keys, serial, revoked)), indent=1)


def load(text: bytes) -> KeysFile:
    """Raises ValueError when it is no such file, or one of a newer version."""
    try:
        read = msgspec.json.decode(text, type=KeysFile)
        for key in read.keys:
            if len(bytes.fromhex(key.digest)) != hashlib.sha256().digest_size:
                raise ValueError("a digest has the wrong length")
            if not _NAME.fullmatch(key.name):
                raise ValueError(f"{key.name[:40]!r} is no name of a key")
        for what in ("id", "name", "digest"):
            if len({getattr(key, what).lower() for key in read.keys}) < len(read.keys):
                raise ValueError(f"two keys have the same {what}")
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise ValueError(f"it is no file of keys ({problem})") from None
    if read.version != VERSION:
        raise ValueError(f"it has version {read.version}, this program knows {VERSION}")
    return read


def _wrong(message: str, hint: str) -> GatewayError:
    return GatewayError(ErrorKind.BAD_REQUEST, message, hint=hint)


# ---- requests


def restricted(key: NamedKey, asked: str, request: "TurnRequest") -> "TurnRequest":
    """The request with the key's directory, and those of its next models that the key may use. A model may be used
    when the one that is taken fits the key's patterns, or when the name that was asked for is on the key's list as it
    is. `asked`: the model as the client named it; `request` has the one that is taken. Raises GatewayError."""
    if not _may_use(key, asked, request.model):
        raise GatewayError(
            ErrorKind.FORBIDDEN,
            f"The key {key.name} may not use the model {request.model}.",
            hint=f"It may use: {', '.join(key.models)}. See /v1/models.",
            param="model",
            code="model_not_allowed",
        )
    if request.fallbacks:
        allowed = [each for each in request.fallbacks if _may_use(key, each.asked or asked, each.model)]
        request = replace(request, fallbacks=tuple(allowed))
    return replace(request, home=key.workspace) if key.workspace else request


def visible(key: NamedKey, models: "Sequence[ModelInfo]") -> "list[ModelInfo]":
    """The models of the list that the key may use."""
    return [model for model in models if _may_use(key, model.id, model.stands_for or model.id)]


def _may_use(key: NamedKey, asked: str, taken: str) -> bool:
    listed = asked.lower() in (pattern.lower() for pattern in key.models)
    return listed or key.may_use(taken)


# ---- key file


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


class KeyRegistry:
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
