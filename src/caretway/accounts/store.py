"""Stores sign-ins in a file (mode 0600, replaced whole) or the system's keyring, with a lock between processes. A login
or logout takes effect in a running gateway. Renewal under the lock is in `tokens`.

The file is in a directory of its own with mode 0700. It is always replaced, never written in place. Processes share a
lock on a second file, so if several gateways use one sign-in, exactly one renews it. This module does not interpret
tokens.
"""

import asyncio
import errno
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from ..core.errors import ErrorKind, GatewayError
from ..installation import install_command
from ..storage.private_file import open_file, try_lock, write_file
from .account import Account, dump, issued_at, load

# Reads another program's sign-in from the text of its file (cursor-agent, the official SDK, REFRESH and API key in one
# string). Another address or an expired key is refused. Pure: the caller reads files.
#
# `{"accessToken", "refreshToken", "apiKey"?}`: the auth.json of cursor-agent.
# `{"version", "backendUrl", "apiKey", "apiKeyExpiresAtMs"?, "email"?}`: the auth.json of the official SDK.
# `REFRESH|APIKEY`, either may be empty: gateways that keep both in one string.

MAX_BYTES: Final = 64 * 1024
KEY_PREFIX: Final = "crsr_"
_ONE_STRING: Final = re.compile(r"([\x21-\x7b\x7d\x7e]*)\|([\x21-\x7b\x7d\x7e]*)")


class _SignInFile(msgspec.Struct, rename="camel"):
    access_token: str | None = None
    refresh_token: str | None = None
    api_key: str | None = None
    email: str | None = None
    backend_url: str | None = None
    api_key_expires_at_ms: float | None = None


def read_import(text: str, *, url: str, now: float) -> Account:
    """The account in this text for the address `url`. Raises GatewayError if there is none."""
    text = text.strip()
    if one_string := _ONE_STRING.fullmatch(text):
        file = _SignInFile(refresh_token=one_string[1], api_key=one_string[2])
    else:
        try:
            file = msgspec.json.decode(text, type=_SignInFile)
        except (msgspec.DecodeError, RecursionError):
            file = _SignInFile()
    if file.backend_url is not None and file.backend_url.rstrip("/") != url.rstrip("/"):
        raise GatewayError(
            ErrorKind.BAD_REQUEST,
            f"This sign-in belongs to {file.backend_url}, not to {url}.",
            hint="Name that address with --agent-url if it is what you want.",
        )
    if file.api_key_expires_at_ms is not None and file.api_key_expires_at_ms / 1000 <= now:
        raise GatewayError(ErrorKind.SIGNED_OUT, "The API key in this file has expired.", hint="Run `caretway login`.")
    access, refresh, key, email = (
        (word or "").strip() for word in (file.access_token, file.refresh_token, file.api_key, file.email)
    )
    if refresh.startswith(KEY_PREFIX):  # some programs store an API key in this field
        refresh, key = "", key or refresh
    issued = issued_at(access)
    account = Account(access, refresh, key, issued if 0 < issued < now else now, email)
    if not (access or account.renewable):
        raise GatewayError(
            ErrorKind.BAD_REQUEST,
            "There is no sign-in in this file.",
            hint="Expected cursor-agent's or the official SDK's auth.json, or one line REFRESH|APIKEY.",
        )
    return account


log = logging.getLogger(__name__)

DIRECTORY: Final = "auth"
FILE: Final = "accounts.json"
LOCK: Final = "lock"
MAX_STORED: Final = 8 * 2**20
"""The size limit for the file of sign-ins."""
LOCK_PATIENCE_S: Final = 60.0
"""How long to wait for the lock: longer than a renewal takes, because the holder may be renewing."""
LOCK_LOOK_S: Final = 0.05
TOUCH_LOOK_S: Final = 0.3
"""The interval for checking whether a sign-in was changed: one `stat`."""
KEYRING_SERVICE: Final = "caretway"
KEYRING_NAME: Final = "accounts"


class SignInStore(Protocol):
    """A place for one text: a file or an entry of the keyring."""

    place: str
    """The location, for messages."""

    def stamp(self) -> object: ...

    def read(self) -> str | None: ...

    def write(self, text: str) -> None: ...

    def erase(self) -> None: ...


class FileSignInStore:
    def __init__(self, directory: Path, file: str = FILE) -> None:
        self._path = directory / file
        self.place = str(self._path)

    def stamp(self) -> object:
        try:
            seen = os.stat(self._path)
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_ino, seen.st_size

    def read(self) -> str | None:
        try:
            with open_file(self._path) as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    log.warning("%s was open to other users; it is private now", self._path)
                    os.fchmod(file.fileno(), 0o600)
                data = file.read(MAX_STORED + 1)
            if len(data) > MAX_STORED:
                raise OSError(errno.EFBIG, "it is larger than sign-ins can be")
            return data.decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as failure:
            raise _trouble("read", self.place, failure) from failure

    def write(self, text: str) -> None:
        try:
            closed_directory(self._path.parent)
            write_file(self._path, text)
        except OSError as failure:
            raise _trouble("write", self.place, failure) from failure

    def erase(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as failure:
            raise _trouble("remove", self.place, failure) from failure


class KeyringSignInStore:
    """The system's keyring, through the package `keyring`. It cannot detect changes by another process."""

    place = "the system's keyring"

    def __init__(self, keyring: Any, name: str = KEYRING_NAME) -> None:
        self._keyring = keyring
        self._name = name

    def stamp(self) -> object:
        return None

    def read(self) -> str | None:
        with self._complaining("read"):
            text: str | None = self._keyring.get_password(KEYRING_SERVICE, self._name)
            return text

    def write(self, text: str) -> None:
        with self._complaining("write"):
            self._keyring.set_password(KEYRING_SERVICE, self._name, text)

    def erase(self) -> None:
        if self.read() is not None:
            with self._complaining("remove"):
                self._keyring.delete_password(KEYRING_SERVICE, self._name)

    @contextmanager
    def _complaining(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as failure:  # the package has many back ends, and their errors share no class
            raise _trouble(what, self.place, failure) from failure


def open_vault(
    kind: str,
    directory: Path,
    load_module: Callable[[str], Any] = import_module,
    *,
    file: str = FILE,
    name: str = KEYRING_NAME,
) -> SignInStore:
    """The store that the settings name: `kind` is `file`, in `directory`, or `keyring`, under the entry `name`. Raises
    GatewayError if the package for the keyring is missing."""
    if kind == "file":
        return FileSignInStore(directory, file)
    try:
        return KeyringSignInStore(load_module("keyring"), name)
    except ImportError as missing:
        raise GatewayError(
            ErrorKind.UNSUPPORTED,
            "The keyring is not available: the `keyring` package is not installed.",
            hint=f"Run `{install_command('keyring')}`, or use --token-store file.",
        ) from missing


class LockedDirectory:
    """A directory of sign-ins that several processes change."""

    def __init__(self, directory: Path, *, patience_s: float = LOCK_PATIENCE_S) -> None:
        self._directory = directory
        self._patience = patience_s

    def touched(self) -> object:
        """A value that differs after any process has changed a sign-in, in the file or the keyring. Cheap."""
        try:
            return os.stat(self._directory / LOCK).st_mtime_ns
        except OSError:
            return None

    async def changed(self, since: object) -> object:
        """Waits until `touched` differs from `since`, and returns its new value."""
        while True:
            await asyncio.sleep(TOUCH_LOOK_S)
            if (now := self.touched()) != since:
                return now

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """While held, no other process changes a sign-in in this directory."""
        path = self._directory / LOCK
        try:
            closed_directory(self._directory)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as failure:
            raise _trouble("lock", str(path), failure) from failure
        try:
            give_up = time.monotonic() + self._patience
            while not try_lock(handle):
                if time.monotonic() >= give_up:
                    raise GatewayError(
                        ErrorKind.TIMEOUT,
                        f"Another process has been changing the sign-in for {self._patience:g} s.",
                        hint=f"Look for a caretway process that hangs; its lock is {path}.",
                    )
                await asyncio.sleep(LOCK_LOOK_S)
            yield
            os.utime(path)  # for `touched`: a keyring does not report changes
        finally:
            os.close(handle)  # closing releases the lock, and so does the end of the process


class SignIns(LockedDirectory):
    """The accounts of this machine, by the address they belong to."""

    def __init__(self, vault: SignInStore, directory: Path, *, patience_s: float = LOCK_PATIENCE_S) -> None:
        super().__init__(directory, patience_s=patience_s)
        self._vault = vault

    @property
    def place(self) -> str:
        return self._vault.place

    def stamp(self) -> object:
        return self._vault.stamp()

    def find(self, url: str) -> Account | None:
        return self._all().get(url)

    def _all(self) -> dict[str, Account]:
        return load(self._vault.read() or "")

    def keep(self, url: str, account: Account) -> None:
        """Stores the account of an address. Must be called within `locked`."""
        self._vault.write(dump(self._all() | {url: account}))

    def forget(self, url: str) -> bool:
        """Deletes the account of an address. Returns False if there was none. Must be called within `locked`."""
        accounts = self._all()
        if url not in accounts:
            return False
        del accounts[url]
        if accounts:
            self._vault.write(dump(accounts))
        else:
            self._vault.erase()
        return True


class StoredAccount:
    """The account of one address, as an `AccountStore`. File and keyring block, so a thread calls them."""

    def __init__(self, sign_ins: SignIns, url: str) -> None:
        self._sign_ins = sign_ins
        self._url = url
        self.locked = sign_ins.locked

    def stamp(self) -> object:
        return self._sign_ins.stamp()

    async def read(self) -> Account | None:
        return await asyncio.to_thread(self._sign_ins.find, self._url)

    async def write(self, account: Account) -> None:
        await asyncio.to_thread(self._sign_ins.keep, self._url, account)

    async def original(self, account: Account, now: float) -> Account | None:
        if not account.copied_from:
            return None
        return await asyncio.to_thread(_read_copied, Path(account.copied_from), self._url, now)


def read_bounded(file: Path) -> str:
    """Reads a sign-in file up to a size limit. Raises OSError and UnicodeDecodeError."""
    with file.open(encoding="utf-8") as opened:
        return opened.read(MAX_BYTES)


def _read_copied(file: Path, url: str, now: float) -> Account | None:
    """The sign-in in another program's file; None if there is none any more."""
    try:
        return read_import(read_bounded(file), url=url, now=now)
    except (OSError, UnicodeDecodeError, GatewayError) as gone:
        log.debug("there is no sign-in in %s: %s", file, gone)
        return None


class StoredKey:
    """The current API key of one address; a login or logout takes effect at the next request."""

    def __init__(self, sign_ins: SignIns, url: str) -> None:
        self._sign_ins = sign_ins
        self._url = url
        self._stamp: object = None
        self._key = ""

    async def __call__(self) -> str:
        """The key; empty if there is no sign-in, or none with a key."""
        stamp = self._sign_ins.stamp()
        if not self._key or stamp != self._stamp:
            account = await asyncio.to_thread(self._sign_ins.find, self._url)
            self._stamp, self._key = stamp, account.api_key if account is not None else ""
        return self._key


def open_sign_ins(data_dir: Path, kind: str) -> SignIns:
    directory = data_dir / DIRECTORY
    return SignIns(open_vault(kind, directory), directory)


def closed_directory(path: Path) -> None:
    """Ensures that the directory exists and is private to this user."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # `mode` applies only to the last new directory
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def _trouble(what: str, place: str, failure: Exception) -> GatewayError:
    reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else type(failure).__name__
    return GatewayError(
        ErrorKind.INTERNAL,
        f"Cannot {what} the sign-in in {place}: {reason}.",
        hint="Check the owner and the permissions of the data directory, or set CARETWAY_DATA_DIR.",
    )
