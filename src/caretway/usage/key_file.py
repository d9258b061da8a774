"""The file of named keys in the data directory (mode 0600, replaced whole, one writer at a time by a lock between
processes), and the running gateway's view of it, which follows changes of the file.

`KeyFile` blocks; commands and the gateway's start use it. `KeyRegistry` checks the file with one `stat` per request, so
a revoked key is refused from the next request on. Neither knows the request's key.
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

# A named key as a value: name, models, expiry, budgets, workspace, dashboard access; valid names; adding, renaming and
# revoking a key; its effect on a request; the file's format. Pure.

VERSION: Final = 1
MAX_KEYS: Final = 1000
MAX_WORDS: Final = 64
"""The maximum number of models or budgets of one key."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,39}")


class NamedKey(Struct, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    id: str
    name: str
    digest: str
    """SHA-256 of the key in hexadecimal digits. The key itself is not stored."""
    made_at: float
    expires_at: float | None = None
    models: tuple[str, ...] = ()
    """Patterns such as `claude-*`; empty for all models."""
    budgets: tuple[str, ...] = ()
    """The budgets as typed, such as `runs=50/day`."""
    workspace: str = ""
    """The only directory in which the key's requests may work; empty for those of the settings."""
    page: bool = False
    """The key opens the dashboard, which shows the work of all keys."""

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def may_use(self, model: str) -> bool:
        """Whether the model fits one of the key's patterns, in any case of letters; true if the key has no patterns."""
        return not self.models or any(fnmatchcase(model.lower(), pattern.lower()) for pattern in self.models)


Keys = tuple[NamedKey, ...]


class KeysFile(Struct, frozen=True):
    version: int
    keys: Keys = ()
    serial: int = 0
    """The revision of a cluster's keys."""
    revoked: tuple[str, ...] = ()
    """In a gateway's copy of a cluster's keys: digests of keys that were removed from it."""


def digest_of(key: str) -> bytes:
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
    """Decode a key file. Raises ValueError if the text is no key file or has a newer version."""
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
    """Applies the key's directory to the request and drops fallback models that the key may not use. A model is allowed
    if the resolved name fits a pattern of the key or the requested name `asked` is in the key's list. Raises
    GatewayError if the request's model is not allowed."""
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
"""A gateway's copy of the cluster's keys."""
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
        self._name = str(self.path)  # used for every request
        self._patience = patience_s

    def stamp(self) -> Stamp | None:
        """A value that differs after each change of the file; None without a file."""
        try:
            seen = os.stat(self._name)
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_ino, seen.st_size

    def read(self) -> Keys:
        return self.numbered()[1]

    def numbered(self) -> tuple[int, Keys]:
        """The keys, and in a cluster the number of their version."""
        held = self._held()
        return held.serial, held.keys

    def _held(self) -> KeysFile:
        """The file's content; no keys if there is no file. Raises GatewayError if the file exists and cannot be used: a
        gateway must not run without its keys."""
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
        """Writes the keys that `work` returns, under the lock."""
        with self._locked():
            keys = work(self.read())
            self._write(dump(keys))
        return keys

    def keep(self, serial: int, keys: Keys) -> None:
        """Stores a cluster's keys unless the stored ones are newer. Keys revoked before are left out."""
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
            os.close(handle)  # closing releases the lock, and so does the end of the process

    def _trouble(self, what: str, why: str) -> GatewayError:
        return GatewayError(
            ErrorKind.INTERNAL,
            f"Cannot {what} the gateway's keys in {self.path}: {why}.",
            hint="Check its owner and permissions, or move it away and make new keys.",
        )


class KeyRegistry:
    """The named keys of a running gateway. If the file becomes unreadable, the known keys stay valid."""

    def __init__(self, file: KeyFile) -> None:
        """Raises GatewayError if the file exists and cannot be used."""
        self._file = file
        self._stamp = file.stamp()
        self._closed = False
        self._learn(*file.numbered())

    def current(self) -> Mapping[bytes, NamedKey] | None:
        """The current keys by digest; the same object until a change. None if no key is required. An empty mapping
        refuses every request: the last key was revoked. That holds after restarts until the file is deleted."""
        stamp = self._file.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._read_again()
        return self._by_digest if self._closed else None

    def named(self, name: str) -> NamedKey | None:
        """The key of this name as of the last read."""
        return self._by_name.get(name)

    def _learn(self, serial: int, keys: Keys) -> None:
        self._by_digest = {bytes.fromhex(key.digest): key for key in keys}
        self._by_name = {key.name: key for key in keys}
        # A cluster's copy with neither keys nor revisions shows that the cluster never had a key.
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
