"""One renewal of an access token: which credentials go to which endpoint, in which order, and what each answer means
(refused, try later, a rotated refresh token). When, and by which process: `token_lifetime`, `tokens`. Pure, except for
`renew`.

A refresh token goes to the exchange endpoint first and to the refresh endpoint second, because clients of this service
use both. An API key goes to the exchange endpoint only. When an answer refuses the credentials, the next pair is tried.
When an answer is a temporary failure, the renewal ends, and may be tried again later.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from ..core.errors import ErrorKind, GatewayError
from .account import Account

EXCHANGE: Final = "/auth/exchange_user_api_key"
REFRESH: Final = "/auth/refresh"
_REFUSED: Final = frozenset({400, 401, 403, 404})

Call = Callable[[str, str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]
"""(method, path, headers, body) -> (status, body). Raises GatewayError when there is no answer."""


@dataclass(frozen=True, slots=True)
class RenewalOffer:
    path: str
    credential: str


def offers(account: Account) -> tuple[RenewalOffer, ...]:
    refresh, key = account.refresh_token, account.api_key
    return (
        *((RenewalOffer(EXCHANGE, refresh), RenewalOffer(REFRESH, refresh)) if refresh else ()),
        *((RenewalOffer(EXCHANGE, key),) if key else ()),
    )


async def renew(account: Account, call: Call, clock: Callable[[], float], hint: str) -> Account:
    """The account with a new access token. Raises SIGNED_OUT when no credential is accepted; other errors are
    temporary."""
    for offer in offers(account):
        headers = {"authorization": f"Bearer {offer.credential}", "content-type": "application/json"}
        status, body = await call("POST", offer.path, headers, b"{}")
        if status not in _REFUSED:
            return renewed(account, status, body, clock())
    raise GatewayError(ErrorKind.SIGNED_OUT, refusal(account), hint=hint)


def refusal(account: Account) -> str:
    if account.refresh_token:
        return "The sign-in to Cursor has ended: it expired or was revoked."
    return "Cursor does not accept the API key." if account.api_key else "The Cursor access token is not accepted."


def renewed(account: Account, status: int, body: bytes, now: float) -> Account:
    """The account after an answer that accepted the credentials."""
    if status == 429:
        raise GatewayError(ErrorKind.RATE_LIMITED, "Cursor limits how often a token may be renewed.")
    if status != 200:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, f"The token could not be renewed: HTTP {status}.")
    tokens = read_tokens(body)
    if tokens is None:
        raise GatewayError(ErrorKind.UPSTREAM_PROTOCOL, "Cursor's answer to the token renewal has no token.")
    # A refresh token comes along when the old one is to be replaced; an exchanged API key stays the better credential.
    refresh = tokens.refresh_token if account.refresh_token and tokens.refresh_token else account.refresh_token
    return replace(account, access_token=tokens.access_token, refresh_token=refresh, received_at=now)


def read_tokens(body: bytes) -> Account | None:
    """The tokens in an answer of the sign-in endpoints, if any."""
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        return None
    if not isinstance(answer, dict) or not _text(answer, "accessToken"):
        return None
    who = _text(answer, "email") or _text(answer, "authId")
    return Account(_text(answer, "accessToken"), _text(answer, "refreshToken"), who=who)


def _text(answer: dict[str, Any], name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""
