"""Proves that a request was passed on by a gateway of the same cluster, for this one, now and unchanged: an HMAC with
the cluster's key over everything that matters. Which schema of hops is understood. Pure.

The key that signs is derived from the cluster's key, which also encrypts what is stored: the two are never the same.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from ..core.passing import Asker, Visit

WINDOW_S: Final = 60.0
"""How far the clocks of two gateways may be apart, and how long a copy of a request would count."""
_FIELDS: Final = ("v", "to", "from", "at", "body", "key", "agent", "owner")
_MAX_CHARS: Final = 4096


class NotForUs(Exception):
    """The proof is missing, wrong, late, or for another gateway. Its text says which."""


def signing_key(cluster_key: str) -> bytes:
    return hmac.digest(cluster_key.encode(), b"caretway hop", "sha256")


def signed(
    key: bytes, *, schema: int, to: str, sender: str, now: float, method: str, target: str, digest: str, asker: Asker
) -> str:
    """The value of the header."""
    values = (str(schema), to, sender, str(int(now)), digest, asker.key, asker.agent, asker.owner)
    told = ";".join(f"{name}={quote(value, safe='')}" for name, value in zip(_FIELDS, values, strict=True))
    return f"{told};sig={_signature(key, method, target, told)}"


def proven(key: bytes, header: str, *, schema: int, own: str, now: float, method: str, target: str) -> Visit:
    """Raises NotForUs."""
    told, _, given = header[:_MAX_CHARS].rpartition(";sig=")
    if not hmac.compare_digest(_signature(key, method, target, told), given):
        raise NotForUs("its signature is not of this cluster's key")
    values = _values(told)
    if values.get("v") != str(schema):
        raise NotForUs(f"it speaks version {values.get('v', '?')} of the protocol between gateways, not {schema}")
    if values.keys() != set(_FIELDS) or not values["at"].isdecimal():
        raise NotForUs("it is not complete")
    if values["to"] != own:
        raise NotForUs(f"it is for {values['to']}, and this is {own}")
    if abs(now - int(values["at"])) > WINDOW_S:
        raise NotForUs(f"it is {abs(now - int(values['at'])):.0f} s old, or the clocks differ")
    return Visit(Asker(values["key"], values["agent"], values["owner"]), values["from"], values["body"])


def _values(told: str) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in told.split(";")]
    return {name: unquote(value) for name, _, value in pairs}


def _signature(key: bytes, method: str, target: str, told: str) -> str:
    return hmac.digest(key, f"{method}\n{target}\n{told}".encode("utf-8", "replace"), hashlib.sha256).hex()
