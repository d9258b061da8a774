"""Provides a bearer token for each request. All waiting requests share one renewal, which a disconnect does not cancel;
after a failed renewal the old token is used while it lasts. If two processes share a refresh token, the second one
reads the account again under the lock and uses the first one's result.

`refused` names the token that Cursor did not accept, so many refusals of one token cause one renewal. A disconnect does
not cancel a renewal because its answer may hold the only valid refresh token.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from math import inf
from typing import Final, Protocol

from msgspec import Struct

from ..core.errors import KEYS_PAGE, ErrorKind, GatewayError, gateway_stops
from ..processes.tasks import spawn
from .account import Account, Term, issued_at, term, utc_text
from .login import Call, refusal, renew

log = logging.getLogger(__name__)

SIGN_IN_HINT: Final = "Run `caretway login`, or set CURSOR_API_KEY, then try again."
KEY_HINT: Final = f"Set CURSOR_API_KEY to a key from {KEYS_PAGE}, then start again."
COPY_HINT: Final = "Run `caretway login`. Or sign in again with the program whose sign-in this is; its file is {file}."
RETRY_S: Final = 30.0
"""How long a still valid token is used after a failed renewal, before the next attempt; longer for a long-lived
token."""
RETRY_SHARE: Final = 10
SETTLE_S: Final = 5.0
"""How long closing waits for a running renewal."""


class FixedToken:
    """A token from the settings, which cannot be renewed. `refusal` replaces Cursor's error for a refused token."""

    def __init__(self, token: str, refusal: GatewayError | None = None) -> None:
        self._token = token
        self._refusal = refusal
        self.renewable = refusal is not None

    def at_hand(self) -> str | None:
        return self._token

    async def token(self, *, refused: str = "") -> str:
        if self._refusal is not None and refused == self._token:
            raise copy(self._refusal)
        return self._token

    async def aclose(self) -> None:
        pass


class NoToken:
    renewable = False

    def __init__(self, message: str = "Not signed in to Cursor.", hint: str = SIGN_IN_HINT) -> None:
        self._message = message
        self._hint = hint

    def at_hand(self) -> str | None:
        return None

    async def token(self, *, refused: str = "") -> str:
        raise GatewayError(ErrorKind.SIGNED_OUT, self._message, hint=self._hint)

    async def aclose(self) -> None:
        pass


class AccountStore(Protocol):
    """The store of an account. Other processes may change it at any time, except within `locked`."""

    def stamp(self) -> object:
        """A new value after every change by another process. Must be cheap: it is read before every request."""
        ...

    async def read(self) -> Account | None: ...

    async def write(self, account: Account) -> None: ...

    async def original(self, account: Account, now: float) -> Account | None:
        """The current sign-in of the program from which the account was copied; None if it was not copied."""
        ...

    def locked(self) -> AbstractAsyncContextManager[None]:
        """While held, no other process renews. Raises GatewayError if the lock is not free in time."""
        ...


class OwnAccount:
    """An account that exists only in this process, such as an API key and its tokens."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def stamp(self) -> object:
        return None

    async def read(self) -> Account:
        return self._account

    async def write(self, account: Account) -> None:
        self._account = account

    async def original(self, account: Account, now: float) -> Account | None:
        return None

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        yield


class _Outcome(Struct, frozen=True):
    """The result of a renewal: an account, the reason why it could not be renewed, or both."""

    account: Account | None
    failure: GatewayError | None = None


class RenewedToken:
    """The access token of a stored account, renewed before it expires and after it was refused."""

    renewable = True

    def __init__(
        self, shelf: AccountStore, call: Call, clock: Callable[[], float], *, hint: str = SIGN_IN_HINT
    ) -> None:
        self._shelf = shelf
        self._call = call
        self._clock = clock
        self._hint = hint
        self._last = _Outcome(None)
        self._read: tuple[Account, Term] | None = None
        self._stamp: object = None
        self._again_at = 0.0
        """The earliest time of the next renewal after a failed one."""
        self._stored_now: Account | None = None
        self._unwritten: Account | None = None
        """The newest account, if it could not be stored."""
        self._said = ""
        """The failure that was logged last."""
        self._renewal: asyncio.Task[_Outcome] | None = None

    def at_hand(self) -> str | None:
        return self._at_hand("", self._clock())

    def _at_hand(self, refused: str, now: float) -> str | None:
        if self._stamp != self._shelf.stamp():
            self._last, self._again_at = _Outcome(None), 0.0  # another process signed in, signed out, or renewed it
        account = self._last.account
        if account is not None and account.access_token != refused and self._fresh(account, now):
            return account.access_token
        return None

    async def token(self, *, refused: str = "") -> str:
        """Returns a token to send; `refused` is a token that Cursor did not accept."""
        now = self._clock()
        if (token := self._at_hand(refused, now)) is not None:
            return token
        if now >= self._again_at or not self._settled(refused, now):
            return self._verdict(await self._outcome(refused), refused)
        return self._verdict(self._last, refused)

    async def _outcome(self, refused: str) -> _Outcome:
        """The result of a renewal that replaces the token `refused`. A renewal that already runs may end with the
        refused token; then another one starts."""
        while True:
            begins = self._renewal is None
            if self._renewal is None:
                self._renewal = spawn(self._attempt(refused), "token-renewal")
            renewal = self._renewal
            await asyncio.wait([renewal])  # unlike `await renewal`, this does not cancel it when we are cancelled
            if renewal.cancelled():
                raise gateway_stops()
            outcome = renewal.result()
            account = outcome.account
            if begins or outcome.failure is not None or account is None or account.access_token != refused:
                return outcome

    async def aclose(self) -> None:
        if self._renewal is not None:
            await asyncio.wait([self._renewal], timeout=SETTLE_S)
        if self._unwritten is not None:
            with suppress(GatewayError):  # was reported when storing failed
                async with self._shelf.locked():
                    account = await self._look()
                    if account is not None and account is self._unwritten:
                        await self._shelf.write(account)

    def _fresh(self, account: Account, now: float) -> bool:
        return bool(account.access_token) and not self._term(account).due(now)

    def _settled(self, refused: str, now: float) -> bool:
        """Whether the last failure still holds, so that Cursor is not asked again so soon."""
        account, failure = self._last.account, self._last.failure
        if failure is not None and failure.kind is ErrorKind.SIGNED_OUT:
            return True
        return account is not None and account.access_token != refused and self._alive(account, now)

    def _alive(self, account: Account, now: float) -> bool:
        return bool(account.access_token) and now < self._term(account).ends_at

    def _term(self, account: Account) -> Term:
        """The term of the account's access token, decoded once, because every request needs it."""
        if self._read is None or self._read[0] is not account:
            self._read = account, term(account.access_token, account.received_at)
        return self._read[1]

    def _verdict(self, outcome: _Outcome, refused: str) -> str:
        account, failure = outcome.account, outcome.failure
        if account is not None and account.access_token != refused and self._alive(account, self._clock()):
            return account.access_token
        raise copy(failure) if failure is not None else self._signed_out(account)

    def _signed_out(self, account: Account | None) -> GatewayError:
        message = "Not signed in to Cursor." if account is None else refusal(account)
        return GatewayError(ErrorKind.SIGNED_OUT, message, hint=self._way_out(account))

    def _way_out(self, account: Account | None) -> str:
        copied = account.copied_from if account is not None else ""
        return COPY_HINT.format(file=copied) if copied else self._hint

    # ---- one renewal

    async def _attempt(self, refused: str) -> _Outcome:
        try:
            self._last = await self._renewed(refused)
        except GatewayError as failure:
            self._last = _Outcome(self._last.account, failure)
        finally:
            self._renewal = None
        if self._last.failure is None:
            self._again_at, self._said = 0.0, ""
        else:
            self._failed(self._last.account, self._last.failure)
        return self._last

    def _failed(self, account: Account | None, failure: GatewayError) -> None:
        now = self._clock()
        left = self._term(account).ends_at - now if account is not None and self._alive(account, now) else 0.0
        over = failure.kind is ErrorKind.SIGNED_OUT
        self._again_at = now + (RETRY_S if over or left == inf else max(RETRY_S, left / RETRY_SHARE))
        if failure.message == self._said:
            return
        self._said = failure.message
        if over and left > 0:
            until = f"It works until {utc_text(now + left)}. Before that: " if left < inf else ""
            log.warning("Cursor does not renew this sign-in any more. %s%s", until, failure.hint)
        else:
            log.warning("no new token from Cursor: %s", failure)

    async def _renewed(self, refused: str) -> _Outcome:
        self._last = _Outcome(await self._look())
        if self._good(self._last.account, refused):
            return self._last
        async with self._shelf.locked():
            account = await self._look()  # another process may have renewed it during the wait for the lock
            self._last = _Outcome(account)
            if account is None or self._good(account, refused):
                return self._last
            account = await self._newer_original(account, refused)
            if self._good(account, refused):
                return await self._stored(account)
            self._last = _Outcome(account)
            if not account.renewable or account.dead(self._clock()):
                return _Outcome(account, self._signed_out(account))
            try:
                account = await renew(account, self._call, self._clock, self._way_out(account))
            except GatewayError as failure:
                if failure.kind is ErrorKind.SIGNED_OUT and account.refresh_token:
                    self._last = await self._stored(account.marked_dead(self._clock()))
                raise
            return await self._stored(account)

    async def _newer_original(self, ours: Account, refused: str) -> Account:
        """The newer sign-in of the same person in the program from which ours was copied; else ours."""
        now = self._clock()
        theirs = await self._shelf.original(ours, now)
        if theirs is None or theirs.access_token == refused or theirs.name != ours.name:
            return ours
        if not issued_at(theirs.access_token) > issued_at(ours.access_token) or not self._alive(theirs, now):
            return ours
        log.info("using the newer sign-in in %s", ours.copied_from)
        return replace(theirs, who=ours.who, copied_from=ours.copied_from)

    async def _stored(self, account: Account) -> _Outcome:
        """Stores the account. If that fails, the account is used anyway: the earlier refresh token may be invalid."""
        try:
            await self._shelf.write(account)
            self._unwritten = None
        except GatewayError as failure:
            log.error("the sign-in as it is now is not stored yet: %s %s", failure.message, failure.hint)
            self._unwritten = account
        self._stamp = self._shelf.stamp()
        return _Outcome(account)

    async def _look(self) -> Account | None:
        self._stamp = self._shelf.stamp()  # before reading, so that a change in between is noticed next time
        before, self._stored_now = self._stored_now, await self._shelf.read()
        if self._unwritten is not None and self._stored_now == before:
            return self._unwritten
        self._unwritten = None
        return self._stored_now

    def _good(self, account: Account | None, refused: str) -> bool:
        return account is not None and account.access_token != refused and self._fresh(account, self._clock())


def exchanged_key(api_key: str, call: Call, clock: Callable[[], float], *, hint: str = KEY_HINT) -> RenewedToken:
    """A token from an API key that only this process knows, exchanged as the official client does."""
    return RenewedToken(OwnAccount(Account(api_key=api_key)), call, clock, hint=hint)


def token_of_settings(token: str, origin: str) -> FixedToken:
    """A token with an error of its own: a login does not help, because the settings win. `origin`: its source."""
    over = GatewayError(
        ErrorKind.SIGNED_OUT,
        f"Cursor does not accept the access token of the settings ({origin}): it expired, or it was revoked.",
        hint="Take it out of the settings and run `caretway login`, or put a new one there; then start again.",
    )
    return FixedToken(token, over)
