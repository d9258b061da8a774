"""Signing in with a browser: OAuth's PKCE, polling for the token with growing pauses (backoff), when to give up, the
older form of the request, errors that do not tell the verifier.

The link carries the challenge. The gateway asks for the token, with the verifier, until the user has agreed. The
browser may be on another machine: it sends nothing to this one. `invite` and `Polling` are pure; `sign_in` does I/O.
"""

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from ..core.errors import ErrorKind, GatewayError
from .account import Account
from .renewal import Call, read_tokens

POLL: Final = "/auth/poll"
PAGE: Final = "/loginDeepControl"
MAX_QUESTIONS: Final = 150
MAX_FAILURES: Final = 3
"""Give up after this many answers in a row that are neither "not yet" nor a token."""
FIRST_PAUSE_S: Final = 1.0
PAUSE_GROWTH: Final = 1.2
LONGEST_PAUSE_S: Final = 10.0
VERIFIER_BYTES: Final = 32
AGAIN: Final = "Check the network, then run `caretway login` again."
_PENDING: Final = b"Not found"
OLDER: Final = frozenset({400, 405, 415, 501})
"""Answers to the newer form of the request after which the older one is tried."""
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
"""Statuses after which asking again cannot help: what happened, and what to type."""


@dataclass(frozen=True, slots=True)
class Invitation:
    verifier: str
    challenge: str
    uuid: str

    def link(self, site: str) -> str:
        """What the user opens, in a browser on any machine. It does not contain the verifier."""
        asked = {"challenge": self.challenge, "uuid": self.uuid, "mode": "login", "redirectTarget": "cli"}
        return f"{site.rstrip('/')}{PAGE}?{urlencode(asked)}"


def invite(random: bytes, uuid: str) -> Invitation:
    """`random`: at least 32 bytes that nobody can guess."""
    if len(random) < VERIFIER_BYTES:
        raise ValueError("too little randomness for a verifier")
    verifier = _url_safe(random)
    return Invitation(verifier, _url_safe(hashlib.sha256(verifier.encode()).digest()), uuid)


def _url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def pause(question: int) -> float:
    """How long to wait after the n-th request, counted from 0."""
    growth = min(question, 64)  # far beyond the longest pause, and no float overflows
    return min(FIRST_PAUSE_S * PAUSE_GROWTH**growth, LONGEST_PAUSE_S)


@dataclass(frozen=True, slots=True)
class LoginRequest:
    method: str
    path: str
    body: bytes


class Polling:
    """Which request to send next, and what its answer means. No clock, no socket."""

    def __init__(self, invitation: Invitation) -> None:
        self._invitation = invitation
        self._asked = 0
        self._failures = 0
        self._older = False
        """The service knows only the older form of the request."""

    def question(self) -> LoginRequest:
        parameters = {"uuid": self._invitation.uuid, "verifier": self._invitation.verifier}
        if self._older:
            return LoginRequest("GET", f"{POLL}?{urlencode(parameters)}", b"")
        return LoginRequest("POST", POLL, json.dumps(parameters).encode())

    def heard(self, status: int, body: bytes) -> Account | float:
        """The account, or how long to wait before the next request. Raises GatewayError when asking again cannot
        help."""
        if status == 200 and (account := read_tokens(body)) is not None:
            return account
        if status == 404:
            self._failures = 0
            if not self._older and body.strip() != _PENDING:
                self._older = True
                return self._next(0.0)
            return self._next(pause(self._asked))
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
        return self._next(pause(self._asked))

    def _next(self, wait: float) -> float:
        self._asked += 1
        if self._asked >= MAX_QUESTIONS:
            raise GatewayError(
                ErrorKind.TIMEOUT,
                "The sign-in was not completed within the time that Cursor allows.",
                hint="Run `caretway login` again and open the new link.",
            )
        return wait


async def sign_in(
    invitation: Invitation, call: Call, sleep: Callable[[float], Awaitable[None]], clock: Callable[[], float]
) -> Account:
    """Ask until the user has signed in. Raises GatewayError."""
    polling = Polling(invitation)
    while True:
        question = polling.question()
        headers = {"content-type": "application/json"} if question.body else {}
        try:
            status, body = await call(question.method, question.path, headers, question.body)
        except GatewayError as failure:
            outcome: Account | float = polling.failed(*_without_verifier(failure))
        else:
            outcome = polling.heard(status, body)
        if isinstance(outcome, Account):
            return replace(outcome, received_at=clock())
        await sleep(outcome)


def _without_verifier(failure: GatewayError) -> tuple[str, str]:
    """Why there was no answer, and what to do. A message that quotes the request could quote the verifier."""
    if POLL in str(failure):
        return "it did not answer in time" if failure.kind is ErrorKind.TIMEOUT else "the connection broke", AGAIN
    hint = f"{failure.hint} Then run `caretway login` again." if failure.hint else AGAIN
    return failure.message.rstrip("."), hint
