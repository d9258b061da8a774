"""Replaces the estimated cost of a run by the cost that Cursor billed, where a backend learns it only later.

It asks a few times after the run, off the path of any response, and records the run again with the billed cost. A run
is recognised by its tokens among the agent's turns, each of which is used once. A run that is never found keeps its
estimate.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace

from ..core.account_usage import BilledTurn
from ..core.errors import GatewayError
from ..core.records import RunRecord
from ..processes.tasks import spawn

log = logging.getLogger(__name__)

WAITS_S: Final = (2.0, 8.0, 30.0, 120.0)
"""Seconds before each question: billing lags behind a run's end."""
MAX_AGENTS: Final = 4096

AskBilled = Callable[[str], Awaitable[Sequence[BilledTurn]]]
"""The billed turns of an agent, by Cursor's id of its conversation. Raises GatewayError."""


class BilledRuns:
    def __init__(
        self,
        ask: AskBilled,
        run_ended: Callable[[RunRecord], None],
        corrected: Callable[[RunRecord], None],
    ) -> None:
        """`run_ended` receives every record, and a second one with the billed cost; `corrected` only the second."""
        self._ask = ask
        self._tell = run_ended
        self._corrected = corrected
        self._used: OrderedDict[str, set[str]] = OrderedDict()
        """Agent -> its turns that belong to a recorded run."""
        self._tasks: set[asyncio.Task[None]] = set()

    def run_ended(self, record: RunRecord) -> None:
        self._tell(record)
        if record.upstream and record.usage is not None and record.usage.cents is None:
            task = spawn(self._follow(record), "billed-run")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _follow(self, record: RunRecord) -> None:
        for wait in WAITS_S:
            await asyncio.sleep(wait)
            try:
                turns = await self._ask(record.upstream)
            except GatewayError as failure:
                log.info("what Cursor billed for a run is not known yet: %s", failure.message)
                continue
            if (turn := self._take(record, turns)) is not None:
                assert record.usage is not None
                usage = replace(record.usage, cents=turn.cents, charged_cents=turn.charged_cents)
                billed = replace(record, usage=usage, again=True)
                self._tell(billed)
                self._corrected(billed)
                return

    def _take(self, record: RunRecord, turns: Sequence[BilledTurn]) -> BilledTurn | None:
        usage = record.usage
        assert usage is not None
        used = self._used.setdefault(record.upstream, set())
        self._used.move_to_end(record.upstream)
        while len(self._used) > MAX_AGENTS:
            self._used.popitem(last=False)
        for turn in turns:
            if turn.id in used or turn.output_tokens != usage.output_tokens:
                continue
            if usage.cache_read_tokens in (None, turn.cache_read_tokens):
                used.add(turn.id)
                return turn
        return None
