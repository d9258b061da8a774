"""When Cursor's usage is spent or back and when the sign-in is lost, told once for each change: from what observers are
told, and, while the usage is spent, from the account itself every ten minutes.

The gateway's own budgets tell of themselves; a refusal by one of them is not Cursor's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ..core.account_usage import AccountUsage
from ..core.errors import ErrorKind, GatewayError
from ..core.records import Observer, RefusedRequest, TurnRecord
from ..tasks import spawn

log = logging.getLogger(__name__)

LOOK_S: Final = 600.0
_OWN_CODE: Final = "insufficient_quota"
"""Only the gateway's budgets name it; Cursor's refusals have the code of their kind."""
_NO_SIGN_IN: Final = ErrorKind.SIGNED_OUT.value
_SPENT: Final = ErrorKind.QUOTA.value
_ANSWERED: Final = frozenset({"end", "paused", "stop_sequence", "length", "refusal"})

Tell = Callable[[str, str], None]
Account = Callable[[], Awaitable[AccountUsage]]


class HookWatch(Observer):
    def __init__(self, tell: Tell, look_s: float = LOOK_S) -> None:
        self._tell = tell
        self._look_s = look_s
        self._account: Account | None = None
        self._signed_in = True
        self._left = True
        self._looking: asyncio.Task[None] | None = None

    def ask(self, account: Account) -> None:
        """Who tells what the account has used."""
        self._account = account

    def response_ended(self, record: TurnRecord) -> None:
        if record.outcome in _ANSWERED:
            self._answered()
        else:
            self._refused(record.outcome, record.error)

    def request_refused(self, record: RefusedRequest) -> None:
        self._refused(record.kind, record.code)

    def _answered(self) -> None:
        self._signed_in = True
        if not self._left:
            self._back("Cursor answers again: its usage is back.")

    def _refused(self, kind: str, code: str) -> None:
        if kind == _NO_SIGN_IN and self._signed_in:
            self._signed_in = False
            self._tell("sign_in_lost", "Cursor does not accept the sign-in any more: run caretway login.")
        elif kind == _SPENT and code != _OWN_CODE and self._left:
            self._left = False
            self._tell("quota_spent", "Cursor refuses runs: the account's usage is spent.")
            if self._account is not None and self._looking is None:
                self._looking = spawn(self._look(self._account), "wait-for-quota")

    def _back(self, sentence: str) -> None:
        self._left = True
        self._tell("quota_back", sentence)

    async def _look(self, account: Account) -> None:
        try:
            while not self._left:
                await asyncio.sleep(self._look_s)
                try:
                    plan = (await account()).period.plan
                except GatewayError as failure:
                    log.debug("the account does not tell its usage: %s", failure)
                    continue
                spent = plan is None or plan.cursor_models_spent or plan.other_models_spent
                if not spent and not self._left:
                    self._back("The account's usage is back.")
        finally:
            self._looking = None

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
