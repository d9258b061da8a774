"""Hooks: a command or a web address that is called when the owner is needed: a budget is low or used up, Cursor's usage
is spent or available again, the sign-in is lost.

The gateway's own budgets report themselves; their refusals are not Cursor's. While usage is spent, the account is asked
every ten minutes until usage is available again.
"""

import asyncio
import logging
import shlex
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..core.account_usage import AccountUsage
from ..core.errors import ErrorKind, GatewayError
from ..core.records import Observer, RefusedRequest, TurnRecord
from ..processes.child import CannotStart, Command
from ..processes.child_group import ChildGroup, run_once
from ..processes.tasks import spawn

log = logging.getLogger(__name__)

KEPT: Final = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "DBUS_SESSION_BUS_ADDRESS")
"""The environment variables that a command gets; the others may hold keys and tokens."""


class CommandHook(Struct, frozen=True):
    argv: tuple[str, ...]


class WebHook(Struct, frozen=True):
    origin: str
    path: str


def read_hook(text: str) -> CommandHook | WebHook:
    """Parse a setting: a text with http:// or https:// is an address, any other text is a command line. A ValueError
    does not quote the text, because an address may hold a secret."""
    if text.lower().startswith(("http://", "https://")):
        parts = urlsplit(text)
        if not parts.hostname or parts.username is not None or (parts.port is not None and not parts.port):
            raise ValueError("the address has no host, or a user in it")
        path = parts.path or "/"
        return WebHook(f"{parts.scheme}://{parts.netloc}", f"{path}?{parts.query}" if parts.query else path)
    argv = tuple(shlex.split(text))
    if not argv:
        raise ValueError("there is no command in it")
    return CommandHook(argv)


def message(event: str, sentence: str, at: float) -> bytes:
    return msgspec.json.encode({"event": event, "message": sentence, "at": round(at), "from": "caretway"})


def command_environment(environment: Mapping[str, str], event: str) -> dict[str, str]:
    return {name: environment[name] for name in KEPT if name in environment} | {"CARETWAY_EVENT": event}


# ---- sending

PATIENCE_S: Final = 10.0
MAX_WAITING: Final = 32

Send = Callable[[str, bytes], Awaitable[None]]
"""Sends (event, message). Raises GatewayError if that fails."""


class HookFailed(Exception):
    """The hook failed or could not be called."""


class HookQueue:
    def __init__(self, send: Send, patience_s: float = PATIENCE_S) -> None:
        self._send = send
        self._patience = patience_s
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._task: asyncio.Task[None] | None = None

    def tell(self, event: str, sentence: str) -> None:
        """Queues the event; events are sent in order."""
        if len(self._waiting) >= MAX_WAITING:
            log.warning("the hook is too slow: %s is skipped", event)
            return
        self._waiting.append((event, message(event, sentence, time.time())))
        if self._task is None:
            self._task = spawn(self._work(), "tell-the-hook")

    async def _work(self) -> None:
        try:
            while self._waiting:
                event, body = self._waiting.popleft()
                try:
                    async with asyncio.timeout(self._patience):
                        await self._send(event, body)
                except TimeoutError:
                    log.warning("the hook did not end within %g s: %s", self._patience, event)
                except (GatewayError, HookFailed) as failure:
                    log.warning("the hook could not be called for %s: %s", event, failure)
        finally:
            self._task = None

    async def aclose(self) -> None:
        """Finishes the current call and sends queued events, within the same time limit."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._patience)
            if self._task is not None:
                self._task.cancel()


def run_command(hook: CommandHook, environment: Mapping[str, str]) -> Send:
    async def send(event: str, body: bytes) -> None:
        command = Command(hook.argv, None, command_environment(environment, event))
        try:
            done = await run_once(ChildGroup(), command, data=body + b"\n", timeout=None, limit=0)
        except CannotStart as failure:
            raise HookFailed(str(failure)) from None
        if done.code:
            raise HookFailed(f"`{hook.argv[0]}` ended with code {done.code}")

    return send


# ---- what happens

LOOK_S: Final = 600.0
_OWN_CODE: Final = "insufficient_quota"
"""The code of refusals by the gateway's own budgets; Cursor's refusals have the code of their kind."""
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
        """Sets the source of the account's usage."""
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
                    log.debug("the account does not report its usage: %s", failure)
                    continue
                spent = plan is None or plan.cursor_models_spent or plan.other_models_spent
                if not spent and not self._left:
                    self._back("The account's usage is back.")
        finally:
            self._looking = None

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
