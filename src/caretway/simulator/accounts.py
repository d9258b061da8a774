"""Simulated accounts: which keys and tokens are accepted, JWT-shaped tokens that expire, are refreshed and revoked, the
browser sign-in (PKCE), wishes in a key (`life=`, `model=`, `spent=`).

Any key is good unless it says that it is bad; two keys are two accounts. Nobody checks the signature of a token.
`life=SECONDS` sets the life of its tokens, `model=ID` adds a model that only this account has, `spent=PERCENT` is how
much of its plan is used.
"""

import base64
import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from .shared import Shared

LIFETIME_S: Final = 3600
REFRESH_LIFETIME_S: Final = 60 * 86400
MAX_LOGINS: Final = 1024
ISSUER: Final = "caretway-simulator"
_REFUSED: Final = ("bad", "expired")
_USER: Final = "simulated|user"
_LIFE: Final = re.compile(r"life=(\d{1,9})")
_SPENT: Final = re.compile(r"spent=(\d{1,3})")
_MODEL: Final = re.compile(r"model=([A-Za-z0-9-]{1,64})")


@dataclass(frozen=True, slots=True)
class _Person:
    """Whom tokens are issued to, and what the key has wished for."""

    name: str = _USER
    life: int = LIFETIME_S
    model: str = ""
    spent: int = 0


class Accounts:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._issued = 0
        self._revoked = {"session": 0, "refresh": 0}
        """Tokens of each type up to this number are good for nothing any more."""
        self._polled: OrderedDict[str, str] = OrderedDict()
        """Sign-ins that somebody has begun: uuid -> challenge, empty when the page was not opened."""

    def accepts(self, token: str) -> bool:
        """Any text that does not say it is bad; of our own tokens, those that are neither expired nor revoked."""
        if not accepted(token):
            return False
        known = _claims(token)
        if known.get("iss") != ISSUER:
            return True
        number = int(str(known.get("jti", "sim-0")).removeprefix("sim-"))
        return self._shared.clock() < known["exp"] and number > self._revoked[known["type"]]

    def revoke(self, kind: str) -> None:
        """All tokens issued so far: `session`, `refresh`, or both for any other word."""
        for one in [kind] if kind in self._revoked else list(self._revoked):
            self._revoked[one] = self._issued

    def exchange(self, key: str) -> dict[str, str] | None:
        """An API key, or a refresh token, for a pair of tokens."""
        if not self.accepts(key):
            return None
        if _claims(key).get("type") == "refresh":
            if self._shared.manners.refresh_at == "token":
                return None
            self._shared.stats.token_refreshes += 1
        else:
            self._shared.stats.token_exchanges += 1
        return self._issue(_person(key))

    def refresh(self, token: str) -> dict[str, str] | None:
        return self._renewed(token) if self._shared.manners.refresh_at == "anywhere" else None

    def renew(self, token: str) -> dict[str, str] | None:
        """The same at `/auth/token`."""
        return self._renewed(token) if self._shared.manners.refresh_at != "exchange" else None

    def _renewed(self, token: str) -> dict[str, str] | None:
        if not self.accepts(token):
            return None
        self._shared.stats.token_refreshes += 1
        return self._issue(_person(token))

    def visit(self, uuid: str, challenge: str) -> None:
        """The user has opened the link and agreed."""
        self._note(uuid, challenge)

    def poll(self, uuid: str, verifier: str) -> dict[str, str] | None:
        """None at the first look: the user is still in the browser. A sign-in whose page was opened is given only to
        whoever knows what the link's challenge was made from."""
        challenge = self._polled.get(uuid)
        if challenge is None:
            self._note(uuid, "")
            return None
        if challenge and challenge != _challenge(verifier):
            return None
        del self._polled[uuid]
        return {**self._issue(_Person()), "authId": _USER, "challenge": challenge}

    def model_of(self, token: str) -> str:
        """The model that only this account has; usually none."""
        return str(_claims(token).get("model", ""))

    def spent(self, token: str) -> int:
        """How much of its plan this account has used, in percent."""
        return _person(token).spent

    def _note(self, uuid: str, challenge: str) -> None:
        self._polled[uuid] = challenge
        while len(self._polled) > MAX_LOGINS:
            self._polled.popitem(last=False)

    def _issue(self, person: _Person) -> dict[str, str]:
        self._issued += 1
        return {
            "accessToken": self._token("session", person, person.life),
            "refreshToken": self._token("refresh", person, max(person.life, REFRESH_LIFETIME_S)),
        }

    def _token(self, kind: str, person: _Person, life: int) -> str:
        now = int(self._shared.clock())
        claims = {
            "sub": person.name,
            "type": kind,
            "jti": f"sim-{self._issued}",
            "iat": now,
            "exp": now + life,
            "life": person.life,
            "model": person.model,
            "spent": person.spent,
            "iss": ISSUER,
        }
        return f"{_encode({'alg': 'none', 'typ': 'JWT'})}.{_encode(claims)}.{_encode({'simulated': self._issued})}"


def _person(credential: str) -> _Person:
    known = _claims(credential)
    if known.get("iss") == ISSUER:
        return _Person(known["sub"], known["life"], known["model"], known.get("spent", 0))
    life, model, spent = (pattern.search(credential) for pattern in (_LIFE, _MODEL, _SPENT))
    name = f"simulated|{hashlib.sha256(credential.encode()).hexdigest()[:12]}"
    return _Person(name, int(life[1]) if life else LIFETIME_S, model[1] if model else "", int(spent[1]) if spent else 0)


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def accepted(token: str) -> bool:
    return bool(token) and not token.startswith(_REFUSED)


def _encode(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
