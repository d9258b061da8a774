"""Protects rows from readers and writers of Redis: each row is encrypted (AES-256-GCM) under its own key, derived from
the cluster key and the row's name. A row of another cluster key, schema version or place, or a changed row, reads as
missing; the log names it once.

Rows hold conversations, so Redis holds no prompt, key or account in plain text, neither in content nor in names: names
are HMACs. Separate keys make random nonces safe for any number of rows. No I/O, except for the log and the randomness
of nonces.
"""

import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import urandom
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..core.passing import Asker, Visit

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEMA: Final = 1
"""Version of the rows' content. Replicas with another version do not see these rows: they replay."""
ANY_SCHEMA: Final = 0
"""For rows that carry their schema inside, so that replicas of every version are listed."""
NAME_BYTES: Final = 18
_NONCE: Final = 12
_KEY_ID: Final = 4
_HEAD: Final = 1 + 1 + _KEY_ID + _NONCE
_FORMAT: Final = 1
"""The head: format, schema, key id, nonce."""
OVERHEAD: Final = _HEAD + 16
"""Bytes that sealing adds to a row."""
SMALL: Final = 4096
"""Bytes that are read of a directory row or a claim; a longer row is forged."""
_MAX_NAMED: Final = 1000


class Seal:
    def __init__(self, cluster_key: str, *, schema: int = SCHEMA) -> None:
        root = hashlib.sha256(b"caretway cluster\0" + cluster_key.encode("utf-8", "surrogateescape")).digest()
        self._rows = _derived(root, b"rows")
        self._names = _derived(root, b"names")
        self._named: set[bytes] = set()
        """Rows that the log has named already."""
        self._head = bytes((_FORMAT, schema)) + _derived(root, b"key id")[:_KEY_ID]

    def name(self, kind: str, *parts: bytes) -> bytes:
        """The name in Redis for these parts: 36 hexadecimal digits. Parts are length-prefixed, so they stay
        distinct."""
        said = hmac.new(self._names, kind.encode(), hashlib.sha256)
        for part in parts:
            said.update(len(part).to_bytes(4, "big") + part)
        return said.digest()[:NAME_BYTES].hex().encode()

    def close(self, place: bytes, content: bytes) -> bytes:
        """Encrypt a row. `place`: the row's name; the row opens only under this name."""
        head = self._head + urandom(_NONCE)
        return head + self._cipher(place).encrypt(head[-_NONCE:], content, head + place)

    def open(self, place: bytes, row: bytes | None) -> bytes | None:
        """Decrypt a row; None if this replica cannot read it."""
        if not row:
            return None
        head = row[:_HEAD]
        if row[: len(self._head)] == self._head and len(row) >= OVERHEAD:
            try:
                return self._cipher(place).decrypt(head[-_NONCE:], row[_HEAD:], head + place)
            except InvalidTag:
                pass  # handled like any other unreadable row
        self._forged(place)
        return None

    def _forged(self, place: bytes) -> None:
        """Log once that a row was not written under this name with the cluster's key."""
        if len(self._named) >= _MAX_NAMED:
            self._named.clear()
        if place not in self._named:
            self._named.add(place)
            log.warning(
                "the row %s in Redis is forged, or from another version or another cluster key: it is ignored",
                place[:200].decode("ascii", "backslashreplace"),
            )

    def _cipher(self, place: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._rows, place, "sha256"))


def decoded(content: bytes | None, kind: type[T], decode: Callable[..., T] = msgspec.msgpack.decode) -> T | None:
    """The content of a row as a value; None if there is no row, or a row of another version."""
    try:
        return None if content is None else decode(content, type=kind)
    except ValueError:
        return None


def _derived(root: bytes, purpose: bytes) -> bytes:
    """HKDF (expand, one block): `root` is uniform already."""
    return hmac.digest(root, purpose + b"\x01", "sha256")


# ---- signature

# Proves that two gateways have the same cluster key, and that a request between them was not forged, changed or
# replayed. Pure.

_CHALLENGE: Final = ("v", "to", "at", "from", "nonce")
_ANSWER: Final = ("nonce",)
_HOP: Final = ("session", "n", "body", "key", "agent", "owner")
_MAX_CHARS: Final = 4096


class NotForUs(Exception):
    """The proof is missing, wrong, used, or for another gateway. The message says which."""


@dataclass(slots=True)
class HopSession:
    """The state that both ends of a connection share after the challenge."""

    name: str
    """The nonce of the gateway that was dialled."""
    key: bytes
    to: str
    sender: str
    used: int = 0
    """The number of the last hop."""


def signing_key(cluster_key: str) -> bytes:
    return hmac.digest(cluster_key.encode("utf-8", "surrogateescape"), b"caretway hop", "sha256")


def challenge(key: bytes, *, schema: int, to: str, address: str, sender: str, nonce: str) -> str:
    """The signed header with which `sender` opens a connection to the gateway `to` at `address`."""
    return _sealed(key, "challenge", _CHALLENGE, (str(schema), to, address, sender, nonce))


def answered(key: bytes, header: str, *, schema: int, own: str, address: str, nonce: str) -> tuple[str, HopSession]:
    """The response header to a challenge, and the session. `nonce`: fresh. Raises NotForUs."""
    values = _opened(key, "challenge", _CHALLENGE, header)
    if values["v"] != str(schema):
        raise NotForUs(f"it speaks version {values['v']} of the protocol between gateways, not {schema}")
    if (values["to"], values["at"]) != (own, address):
        raise NotForUs(f"it is for {values['to']} at {values['at']}, and this is {own} at {address}")
    answer = _sealed(key, f"answer\n{header}", _ANSWER, (nonce,))
    return answer, _session(key, header, nonce, values)


def met(key: bytes, header: str, answer: str) -> HopSession:
    """The session, if a gateway with the same key made this response to the challenge. Raises NotForUs."""
    nonce = _opened(key, f"answer\n{header}", _ANSWER, answer)["nonce"]
    return _session(key, header, nonce, _values(header))


def signed(session: HopSession, *, method: str, target: str, digest: str, asker: Asker) -> str:
    """The header of the session's next hop."""
    session.used += 1
    values = (session.name, str(session.used), digest, asker.key, asker.agent, asker.owner)
    return _sealed(session.key, f"hop\n{method}\n{target}", _HOP, values)


def proven(sessions: Mapping[str, HopSession], header: str, *, own: str, method: str, target: str) -> tuple[str, Visit]:
    """The name of the request's session, and the gateway that passed it on. Raises NotForUs."""
    session = sessions.get(_values(header).get("session", ""))
    if session is None:
        raise NotForUs("its session is not known here")
    values = _opened(session.key, f"hop\n{method}\n{target}", _HOP, header)
    if session.to != own:
        raise NotForUs(f"it is for {session.to}, and this is {own}")
    if int(values["n"]) <= session.used:
        raise NotForUs("it was sent before")
    session.used = int(values["n"])
    asker = Asker(values["key"], values["agent"], values["owner"])
    return session.name, Visit(asker, session.sender, values["body"])


def _session(key: bytes, header: str, nonce: str, values: Mapping[str, str]) -> HopSession:
    return HopSession(nonce, bytes.fromhex(_mac(key, "session", f"{header};{nonce}")), values["to"], values["from"])


def _sealed(key: bytes, purpose: str, fields: tuple[str, ...], values: tuple[str, ...]) -> str:
    text = ";".join(f"{name}={quote(value, safe='')}" for name, value in zip(fields, values, strict=True))
    return f"{text};sig={_mac(key, purpose, text)}"


def _opened(key: bytes, purpose: str, fields: tuple[str, ...], header: str) -> Mapping[str, str]:
    text, _, given = header[:_MAX_CHARS].rpartition(";sig=")
    if not hmac.compare_digest(_mac(key, purpose, text).encode(), given.encode("utf-8", "replace")):
        raise NotForUs("its signature is not of this cluster's key")
    values = _values(text)
    if values.keys() != set(fields):
        raise NotForUs("it is not complete")
    return values


def _values(text: str) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in text[:_MAX_CHARS].split(";")]
    return {name: unquote(value) for name, _, value in pairs}


def _mac(key: bytes, purpose: str, text: str) -> str:
    return hmac.digest(key, f"{purpose}\n{text}".encode("utf-8", "replace"), "sha256").hex()
