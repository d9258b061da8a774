"""Tells a hook: runs its command or posts to its address, one after the other, each for 10 s at most; what waits is
bounded, a failure is one log line and hurts nobody.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ..core.errors import GatewayError
from ..processes.child import CannotStart, Child, Command, Exit, start_child
from ..tasks import spawn
from .hook import CommandHook, command_environment, message

log = logging.getLogger(__name__)

PATIENCE_S: Final = 10.0
MAX_WAITING: Final = 32

Send = Callable[[str, bytes], Awaitable[None]]
"""(event, message): tells it. Raises GatewayError when that cannot be done."""


class HookFailed(Exception):
    """The hook was told and failed, or could not be told."""


class Teller:
    def __init__(self, send: Send, patience_s: float = PATIENCE_S) -> None:
        self._send = send
        self._patience = patience_s
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._task: asyncio.Task[None] | None = None

    def tell(self, event: str, sentence: str) -> None:
        """Soon, and in order."""
        if len(self._waiting) >= MAX_WAITING:
            log.warning("the hook is too slow: it is not told of %s", event)
            return
        self._waiting.append((event, message(event, sentence, time.time())))
        if self._task is None:
            self._task = spawn(self._work(), "tell-the-hook")

    async def _work(self) -> None:
        try:
            while self._waiting:
                event, told = self._waiting.popleft()
                try:
                    async with asyncio.timeout(self._patience):
                        await self._send(event, told)
                except TimeoutError:
                    log.warning("the hook did not end within %g s: %s", self._patience, event)
                except (GatewayError, HookFailed) as failure:
                    log.warning("the hook could not be told of %s: %s", event, failure)
        finally:
            self._task = None

    async def aclose(self) -> None:
        """What is being told may end; what waits is told, within the same patience."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._patience)
            if self._task is not None:
                self._task.cancel()


class _Ending:
    """Reads a command's output away, and waits for its end."""

    def __init__(self) -> None:
        self.over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def data(self, data: bytes) -> None:
        pass

    def ended(self, exit_: Exit) -> None:
        if not self.over.done():
            self.over.set_result(exit_)


def run_command(hook: CommandHook, environment: Mapping[str, str]) -> Send:
    async def send(event: str, told: bytes) -> None:
        ending = _Ending()
        command = Command(hook.argv, None, command_environment(environment, event))
        try:
            child: Child = await start_child(command, ending)
        except CannotStart as failure:
            raise HookFailed(str(failure)) from None
        try:
            child.write(told + b"\n")
            child.close_stdin()
            exit_ = await ending.over
        finally:
            await child.aclose()
        if exit_.code:
            raise HookFailed(f"`{hook.argv[0]}` ended with code {exit_.code}")

    return send
