"""`/caretway/v1/account`: what the account has used of its plan, asked at most once a minute (after a failure every
15 s), for at most 5 s, and never for a request to a model.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ..core.account_report import known_account, unknown_account
from ..core.account_usage import AccountUsage
from ..core.errors import GatewayError

FRESH_S: Final = 60.0
AGAIN_S: Final = 15.0
PATIENCE_S: Final = 5.0
TELLS_NOTHING: Final = "This backend does not report what the account has used; `agent` does."

AccountSource = Callable[[], Awaitable[AccountUsage]]
"""Raises GatewayError."""


class AccountWatch:
    def __init__(self, source: AccountSource | None, clock: Callable[[], float] = time.time) -> None:
        """`source` None: the backend reports nothing. `clock`: unix seconds."""
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._told: dict[str, Any] | None = None
        self._until = 0.0

    async def told(self) -> dict[str, Any]:
        """Of many who ask at once, one asks Cursor."""
        async with self._lock:
            if self._told is None or time.monotonic() >= self._until:
                self._told = await ask_account(self._source, self._clock)
                self._until = time.monotonic() + (FRESH_S if self._told["known"] else AGAIN_S)
            return self._told


async def ask_account(source: AccountSource | None, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Now, whatever was told before; a failure is an answer too."""
    if source is None:
        return unknown_account(TELLS_NOTHING, clock())
    try:
        async with asyncio.timeout(PATIENCE_S):
            return known_account(await source(), clock())
    except TimeoutError:
        return unknown_account(f"Cursor did not answer within {PATIENCE_S:g} s.", clock())
    except GatewayError as failure:
        return unknown_account(str(failure), clock())
