"""How rows are kept from those who can read or write Redis: each is encrypted (AES-256-GCM) under a key of its own,
derived from the cluster key and the row's name. A row of another cluster key, another schema version or another place,
and one that was changed, reads as "not there"; the log names it, once. Names of conversations, keys and accounts are
HMACs.

What Redis holds of a conversation is content. So no word of a prompt, no key and no account is in it in plain text, nor
in a name: who copies its memory or its file has nothing. A row's own key is what makes random nonces safe however many
rows there are. No I/O, except for the log and the randomness of nonces.
"""

import hashlib
import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from os import urandom
from typing import Final
from urllib.parse import quote, unquote

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..core.passing import Asker, Visit

log = logging.getLogger(__name__)

SCHEMA: Final = 1
"""Of what is inside of rows. Replicas with another number do not see each other's rows: they replay."""
ANY_SCHEMA: Final = 0
"""Of rows that have their schema inside: those of replicas, which are listed whatever they speak."""
NAME_BYTES: Final = 18
_NONCE: Final = 12
_KEY_ID: Final = 4
_HEAD: Final = 1 + 1 + _KEY_ID + _NONCE
_FORMAT: Final = 1
"""Of the head: format, schema, key id, nonce."""
OVERHEAD: Final = _HEAD + 16
"""Bytes that a sealed row is longer."""
SMALL: Final = 4096
"""Rows of the directory and claims are read up to here; a longer one is forged."""
_MAX_NAMED: Final = 1000


class Seal:
    def __init__(self, cluster_key: str, *, schema: int = SCHEMA) -> None:
        root = hashlib.sha256(b"caretway cluster\0" + cluster_key.encode("utf-8", "surrogateescape")).digest()
        self._rows = _derived(root, b"rows")
        self._names = _derived(root, b"names")
        self._named: set[bytes] = set()
        """Rows that the log has named."""
        self._head = bytes((_FORMAT, schema)) + _derived(root, b"key id")[:_KEY_ID]

    def name(self, kind: str, *parts: bytes) -> bytes:
        """What stands in Redis for these words: 36 hexadecimal digits. Parts cannot run into each other."""
        said = hmac.new(self._names, kind.encode(), hashlib.sha256)
        for part in parts:
            said.update(len(part).to_bytes(4, "big") + part)
        return said.digest()[:NAME_BYTES].hex().encode()

    def close(self, place: bytes, content: bytes) -> bytes:
        """`place`: the row's name; it opens under that name only."""
        head = self._head + urandom(_NONCE)
        return head + self._cipher(place).encrypt(head[-_NONCE:], content, head + place)

    def open(self, place: bytes, row: bytes | None) -> bytes | None:
        """None: there is nothing that this replica can read."""
        if not row:
            return None
        head = row[:_HEAD]
        if row[: len(self._head)] == self._head and len(row) >= OVERHEAD:
            try:
                return self._cipher(place).decrypt(head[-_NONCE:], row[_HEAD:], head + place)
            except InvalidTag:
                pass  # as any other that was not written here
        self._forged(place)
        return None

    def _forged(self, place: bytes) -> None:
        """Name a row in the log that was not written under this name with the cluster's key."""
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


def _derived(root: bytes, purpose: bytes) -> bytes:
    """HKDF (expand, one block): `root` is uniform already."""
    return hmac.digest(root, purpose + b"\x01", "sha256")


# ---- signature

# Proves that two gateways have the same cluster key, and that a request between them was not made, changed or sent
# again by somebody else. Pure.

_CHALLENGE: Final = ("v", "to", "at", "from", "nonce")
_ANSWER: Final = ("nonce",)
_HOP: Final = ("session", "n", "body", "key", "agent", "owner")
_MAX_CHARS: Final = 4096


class NotForUs(Exception):
    """The proof is missing, wrong, used, or for another gateway. Its text says which."""


@dataclass(slots=True)
class HopSession:
    """What both sides of a connection know after the challenge."""

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
    """The first header on a connection to the gateway `to` at this address."""
    return _sealed(key, "challenge", _CHALLENGE, (str(schema), to, address, sender, nonce))


def answered(key: bytes, header: str, *, schema: int, own: str, address: str, nonce: str) -> tuple[str, HopSession]:
    """The header that answers a challenge. `nonce`: fresh. Raises NotForUs."""
    values = _opened(key, "challenge", _CHALLENGE, header)
    if values["v"] != str(schema):
        raise NotForUs(f"it speaks version {values['v']} of the protocol between gateways, not {schema}")
    if (values["to"], values["at"]) != (own, address):
        raise NotForUs(f"it is for {values['to']} at {values['at']}, and this is {own} at {address}")
    answer = _sealed(key, f"answer\n{header}", _ANSWER, (nonce,))
    return answer, _session(key, header, nonce, values)


def met(key: bytes, header: str, answer: str) -> HopSession:
    """The session, if the answer to this challenge is from a gateway with the same key. Raises NotForUs."""
    nonce = _opened(key, f"answer\n{header}", _ANSWER, answer)["nonce"]
    return _session(key, header, nonce, _values(header))


def signed(session: HopSession, *, method: str, target: str, digest: str, asker: Asker) -> str:
    """The header of the next hop of this session."""
    session.used += 1
    values = (session.name, str(session.used), digest, asker.key, asker.agent, asker.owner)
    return _sealed(session.key, f"hop\n{method}\n{target}", _HOP, values)


def proven(sessions: Mapping[str, HopSession], header: str, *, own: str, method: str, target: str) -> tuple[str, Visit]:
    """The name of its session, and who passed the request on. Raises NotForUs."""
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
    """Raises NotForUs."""
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
