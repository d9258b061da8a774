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
from os import urandom
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

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
