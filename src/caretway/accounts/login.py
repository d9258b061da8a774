"""Browser sign-in with OAuth's PKCE: polls for the token with backoff, gives up after repeated failures, falls back to
the older form of the request, and keeps the verifier out of errors.

The link carries the challenge. The gateway polls with the verifier until the user has agreed. The browser may run on
another machine: it sends nothing to the gateway. `invite` and `Polling` are pure; `sign_in` does I/O.
"""

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError
from .account import Account, claims

# One renewal of an access token: which credential goes to which endpoint, in which order, and the meaning of each
# answer (refused, try later, a rotated refresh token). `tokens` decides when and in which process. Pure, except for
# `renew`.
#
# Clients of this service renew a login in four ways and disagree about which of them work. So a refresh token is tried
# once in each way, in the order of `WAYS`; the way that worked is tried first the next time. An API key goes only to
# the exchange endpoint. A refusal or a failure of one endpoint leads to the next way: the login is over only if all
# ways refuse.

EXCHANGE: Final = "/auth/exchange_user_api_key"
OAUTH: Final = "/oauth/token"
TOKEN: Final = "/auth/token"  # noqa: S105 (a path)
REFRESH: Final = "/auth/refresh"
CLIENT_ID: Final = "KbZUR41cY7W6zRSdpSUJ7I7mLYBKOCmB"
"""The public client name of Cursor's browser login: the same for all users, and no secret."""
LATER: Final = "Try again in a few minutes. If it stays so, `caretway login` signs in anew."
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 410, 422})

Call = Callable[[str, str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]
"""(method, path, headers, body) -> (status, body). Raises GatewayError without an answer."""


def _no_body(_: str) -> dict[str, str]:
    return {}


def _grant(credential: str) -> dict[str, str]:
    return {"grant_type": "refresh_token", "client_id": CLIENT_ID, "refresh_token": credential}


def _named(credential: str) -> dict[str, str]:
    return {"refreshToken": credential}


class RenewalWay(Struct, frozen=True):
    path: str
    body: Callable[[str], dict[str, str]]
    """The JSON to send. If it does not hold the credential, the credential is the bearer token."""


WAYS: Final = (
    RenewalWay(EXCHANGE, _no_body),
    RenewalWay(OAUTH, _grant),
    RenewalWay(TOKEN, _named),
    RenewalWay(REFRESH, _no_body),
)
"""In order: the official SDK's way for API keys, to which other clients send refresh tokens; the way of Cursor's
editor; two others, the last from an older client."""


class RenewalOffer(Struct, frozen=True):
    way: RenewalWay
    credential: str

    def request(self) -> tuple[dict[str, str], bytes]:
        body = self.way.body(self.credential)
        bearer = {} if body else {"authorization": f"Bearer {self.credential}"}
        return {**bearer, "content-type": "application/json"}, msgspec.json.encode(body)


def offers(account: Account) -> Iterator[RenewalOffer]:
    """Yields the attempts in order."""
    ways = sorted(WAYS, key=lambda way: way.path != account.renewed_by)
    if account.refresh_token:
        if _is_session(account.refresh_token) and account.access_token != account.refresh_token:
            # Some logins store one token in both places. The newest token is the most likely to be accepted.
            yield RenewalOffer(ways[0] if account.renewed_by else WAYS[1], account.access_token)
        for way in ways:
            yield RenewalOffer(way, account.refresh_token)
    if account.api_key and account.api_key != account.refresh_token:
        yield RenewalOffer(WAYS[0], account.api_key)


def _is_session(token: str) -> bool:
    return claims(token).get("type") == "session"


async def renew(account: Account, call: Call, clock: Callable[[], float], hint: str) -> Account:
    """The account with a new access token. Raises SIGNED_OUT if no credential is accepted; other errors are
    temporary."""
    broken: GatewayError | None = None
    page = 0
    """The status of a web page, if every answer so far was a page."""
    for number, offer in enumerate(offers(account)):
        headers, body = offer.request()
        status, answer = await call("POST", offer.way.path, headers, body)
        page = status if (page or not number) and _is_page(account, status, answer) else 0
        if refuses(status, answer):
            continue
        try:
            fresh = renewed(account, offer, status, answer, clock())
        except GatewayError as failure:
            if failure.kind is ErrorKind.RATE_LIMITED:
                raise
            broken = broken or failure
            continue
        # The key was needed: a refresh token that every way refuses is not kept.
        return replace(fresh, refresh_token="") if offer.credential == account.api_key and broken is None else fresh
    if page:
        raise GatewayError(
            ErrorKind.UPSTREAM_PROTOCOL,
            f"The token could not be renewed: a web page answers at Cursor's address (HTTP {page}).",
            hint="It comes from a proxy on the way or from another server: check --agent-url; `caretway doctor` shows "
            "the way.",
        )
    if broken is not None:
        raise broken
    raise GatewayError(ErrorKind.SIGNED_OUT, refusal(account), hint=hint)


def _is_page(account: Account, status: int, body: bytes) -> bool:
    """Whether a web page answered instead of Cursor's API. A missing renewal endpoint may answer with one, too."""
    if status in (404, 405) and account.refresh_token:
        return False
    return body[:64].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def refuses(status: int, body: bytes) -> bool:
    """Whether this way refuses the credentials. One endpoint refuses with status 200."""
    return status in _REFUSED or (status == 200 and _object(body).get("shouldLogout") is True)


def refusal(account: Account) -> str:
    if account.refresh_token:
        return "The sign-in to Cursor has ended: it expired or was revoked, and Cursor does not renew it."
    if account.api_key:
        return "Cursor does not accept the API key."
    return "The sign-in to Cursor has ended: its access token is not accepted, and nothing came with it to renew it."


def renewed(account: Account, offer: RenewalOffer, status: int, body: bytes, now: float) -> Account:
    """The account with the tokens of a renewal's answer. Raises GatewayError if the answer has none."""
    if status == 429:
        raise GatewayError(ErrorKind.RATE_LIMITED, "Cursor limits how often a token may be renewed.", hint=LATER)
    if status != 200:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, f"The token could not be renewed: HTTP {status}.", hint=LATER)
    tokens = read_tokens(body)
    if tokens is None:
        raise GatewayError(
            ErrorKind.UPSTREAM_PROTOCOL, "Cursor's answer to the token renewal has no token.", hint=LATER
        )
    known = replace(account, access_token=tokens.access_token, received_at=now, refused="", refused_at=0.0)
    if offer.credential == account.api_key:
        return known  # the API key stays the better credential
    # The answer has a refresh token if the old one is replaced.
    return replace(known, refresh_token=tokens.refresh_token or offer.credential, renewed_by=offer.way.path)


def read_tokens(body: bytes) -> Account | None:
    """The tokens in an answer of the sign-in endpoints; None without an access token."""
    answer = _object(body)
    access = _text(answer, "accessToken") or _text(answer, "access_token")
    if not access:
        return None
    who = _text(answer, "email") or _text(answer, "authId")
    return Account(access, _text(answer, "refreshToken") or _text(answer, "refresh_token"), who=who)


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _text(answer: dict[str, Any], name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""


POLL: Final = "/auth/poll"
PAGE: Final = "/loginDeepControl"
MAX_QUESTIONS: Final = 150
MAX_FAILURES: Final = 3
"""Polling gives up after this many consecutive answers that are neither "not yet" nor a token."""
FIRST_PAUSE_S: Final = 1.0
PAUSE_GROWTH: Final = 1.2
LONGEST_PAUSE_S: Final = 10.0
VERIFIER_BYTES: Final = 32
AGAIN: Final = "Check the network, then run `caretway login` again."
_PENDING: Final = b"Not found"
OLDER: Final = frozenset({400, 405, 415, 501})
"""Statuses after which the older form of the request is tried."""
ENDS: Final = {
    400: (
        "Cursor does not understand the question about the sign-in (HTTP 400).",
        "Update Caretway (`caretway doctor` says how), or sign in with a key: `caretway login --api-key-stdin`.",
    ),
    401: (
        "Cursor refused the sign-in (HTTP 401): it was not agreed to, or another account was used.",
        "Run `caretway login` again, open the new link and agree.",
    ),
    403: (
        "Cursor does not allow this sign-in (HTTP 403): a team's rule, the account, or the address of this machine.",
        "Check a VPN or proxy, or sign in with a key: `caretway login --api-key-stdin`.",
    ),
    410: (
        "The link of this sign-in is no longer valid (HTTP 410): it expired, or it was used already.",
        "Run `caretway login` again and open the new link.",
    ),
}
"""Statuses that end polling -> what happened and what to type."""


class Invitation(Struct, frozen=True):
    verifier: str
    challenge: str
    uuid: str

    def link(self, site: str) -> str:
        """The link that the user opens in a browser on any machine. It does not contain the verifier."""
        parameters = {"challenge": self.challenge, "uuid": self.uuid, "mode": "login", "redirectTarget": "cli"}
        return f"{site.rstrip('/')}{PAGE}?{urlencode(parameters)}"


def invite(random: bytes, uuid: str) -> Invitation:
    """A sign-in to begin: verifier, its challenge, and id. `random`: at least 32 unpredictable bytes."""
    if len(random) < VERIFIER_BYTES:
        raise ValueError("too little randomness for a verifier")
    verifier = _url_safe(random)
    return Invitation(verifier, _url_safe(hashlib.sha256(verifier.encode()).digest()), uuid)


def _url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def pause(question: int) -> float:
    """The pause after the n-th request, counted from 0."""
    growth = min(question, 64)  # far beyond the longest pause, and no float overflows
    return min(FIRST_PAUSE_S * PAUSE_GROWTH**growth, LONGEST_PAUSE_S)


class LoginRequest(Struct, frozen=True):
    method: str
    path: str
    body: bytes


class Polling:
    """Decides the next request and interprets its answer. Uses no clock and no socket."""

    def __init__(self, invitation: Invitation) -> None:
        self._invitation = invitation
        self._questions = 0
        self._failures = 0
        self._older = False
        """Whether the service knows only the older form of the request."""

    def question(self) -> LoginRequest:
        parameters = {"uuid": self._invitation.uuid, "verifier": self._invitation.verifier}
        if self._older:
            return LoginRequest("GET", f"{POLL}?{urlencode(parameters)}", b"")
        return LoginRequest("POST", POLL, json.dumps(parameters).encode())

    def receive(self, status: int, body: bytes) -> Account | float:
        """Returns the account, or the pause before the next request. Raises GatewayError if polling again cannot
        help."""
        if status == 200 and (account := read_tokens(body)) is not None:
            return account
        if status == 404:
            self._failures = 0
            if not self._older and body.strip() != _PENDING:
                self._older = True
                return self._next(0.0)
            return self._next(pause(self._questions))
        if not self._older and status in OLDER:
            self._older = True
            return self._next(0.0)
        if status in ENDS:
            message, hint = ENDS[status]
            raise GatewayError(ErrorKind.SIGNED_OUT, message, hint=hint)
        return self.failed(f"HTTP {status}" if status != 200 else "an answer without a token")

    def failed(self, reason: str, hint: str = AGAIN) -> float:
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            raise GatewayError(
                ErrorKind.UPSTREAM_DOWN,
                f"Cursor could not be asked about the sign-in: {reason}.",
                hint=hint,
            )
        return self._next(pause(self._questions))

    def _next(self, wait: float) -> float:
        self._questions += 1
        if self._questions >= MAX_QUESTIONS:
            raise GatewayError(
                ErrorKind.TIMEOUT,
                "The sign-in was not completed within the time that Cursor allows.",
                hint="Run `caretway login` again and open the new link.",
            )
        return wait


async def sign_in(
    invitation: Invitation, call: Call, sleep: Callable[[float], Awaitable[None]], clock: Callable[[], float]
) -> Account:
    """Polls until the user has signed in. Raises GatewayError."""
    polling = Polling(invitation)
    while True:
        question = polling.question()
        headers = {"content-type": "application/json"} if question.body else {}
        try:
            status, body = await call(question.method, question.path, headers, question.body)
        except GatewayError as failure:
            outcome: Account | float = polling.failed(*_without_verifier(failure))
        else:
            outcome = polling.receive(status, body)
        if isinstance(outcome, Account):
            return replace(outcome, received_at=clock())
        await sleep(outcome)


def _without_verifier(failure: GatewayError) -> tuple[str, str]:
    """The message and hint of a failed call. A message that quotes the request could reveal the verifier."""
    if POLL in str(failure):
        return "it did not answer in time" if failure.kind is ErrorKind.TIMEOUT else "the connection broke", AGAIN
    hint = f"{failure.hint} Then run `caretway login` again." if failure.hint else AGAIN
    return failure.message.rstrip("."), hint
