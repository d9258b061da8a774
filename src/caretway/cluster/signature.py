"""Proves that two gateways have the same cluster key, and that a request between them was not made, changed or sent
again by somebody else. Pure.

A connection begins with a challenge that holds the dialled address, both ids and a nonce; the answer holds a nonce of
the other side and the MAC of everything so far. Both derive the key of the session from it. Each hop has a number and a
MAC with that key, so no hop needs a round trip of its own, and a copy of one is refused.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from ..core.passing import Asker, Visit

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
