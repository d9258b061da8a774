"""Is cursor-agent signed in? Its `status` as JSON or text; a yes is kept for a minute and renewed in the background, a
no for 2 s, both forgotten after a sign-in error; a program that cannot say is trusted.

Only the program itself knows: that its files exist proves nothing.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.turn import BackendStatus
from ...processes.nursery import Output
from ...processes.tasks import spawn
from .faults import plain

Ask = Callable[[Sequence[str], float], Awaitable[Output]]
"""(arguments, limit in seconds) -> what the program said."""

NO_FRESH_S: Final = 2.0
"""A "no" is believed for a shorter time: its reader is about to sign in."""

# "Not logged in" contains "logged in": the negative is looked for first.
_NO: Final = re.compile(r"not (?:logged|signed) in|not authenticated|authentication required|logged out", re.IGNORECASE)
_YES: Final = re.compile(r"(?:logged|signed) in|login successful|\bauthenticated\b", re.IGNORECASE)
_WHO: Final = re.compile(r"(?:logged|signed) in as ([^\s(]+)", re.IGNORECASE)


def read_status(said: str) -> BackendStatus | None:
    """What a `status` answer means, in its JSON or its text form; None when it says neither yes nor no."""
    said = plain(said)
    try:
        value = msgspec.json.decode(said)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        signed_in = value.get("isAuthenticated")
        if not isinstance(signed_in, bool):
            signed_in = value.get("status") == "authenticated"
        user = value.get("email") or value.get("user")
        return _status(signed_in, user if isinstance(user, str) else "")
    if _NO.search(said):
        return _status(False)
    if _YES.search(said):
        who = _WHO.search(said)
        return _status(True, who[1] if who else "")
    return None


def _status(signed_in: bool, user: str = "") -> BackendStatus:
    if not signed_in:
        return BackendStatus(False, "cursor-agent is not signed in; run `cursor-agent login`.")
    return BackendStatus(True, f"cursor-agent is signed in as {user}." if user else "cursor-agent is signed in.")


class CliAccount:
    def __init__(
        self, ask: Ask, clock: Callable[[], float], *, limit: float, fresh: float, by_key: bool = False
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._limit = limit
        self._fresh = fresh
        self._by_key = by_key
        self._known: BackendStatus | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def status(self) -> BackendStatus:
        if self._by_key:
            return BackendStatus(True, "cursor-agent uses an API key.")
        async with self._lock:
            if self._known is None or self._clock() >= self._until:
                self._known = await self._check()
                self._until = self._clock() + (self._fresh if self._known.signed_in else NO_FRESH_S)
            return self._known

    async def require(self) -> None:
        """Raises GatewayError(SIGNED_OUT). A program that cannot say is given the benefit of the doubt: its own error
        will tell. A "yes" that is getting old is asked for again while the turn begins, not before it."""
        if self._known is not None and self._known.signed_in and not self._lock.locked():
            if self._clock() >= self._until:
                spawn(self._ask_again(), "cursor-agent-status")
            return
        status = await self.status()
        if status.signed_in is False:
            raise GatewayError(
                ErrorKind.SIGNED_OUT,
                "cursor-agent is not signed in.",
                hint="Run `cursor-agent login`, or `caretway login --backend cli`.",
            )

    async def _ask_again(self) -> None:
        with contextlib.suppress(GatewayError):  # whoever runs the program next hears of it
            await self.status()

    def forget(self) -> None:
        self._known = None

    async def _check(self) -> BackendStatus:
        for arguments in (("status", "--format", "json"), ("status",)):  # older builds do not know the option
            try:
                output = await self._ask(arguments, self._limit)
            except TimeoutError:
                break
            said = output.stdout if output.stdout.strip() else output.stderr
            if (status := read_status(said)) is not None:
                return status
        return BackendStatus(None, "cursor-agent does not say whether it is signed in.")
