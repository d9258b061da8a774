"""One timer for a whole stream: it wakes whoever waits for the next events when nothing was said for too long.

A timeout around every wait would make and cancel a timer for each delta. Here the timer is left alone while things are
said; when it rings it looks at when that was last, and either sleeps on or interrupts the wait. Only the wait: never a
write to the client, which may be half done. A wait that is cancelled asks `interrupted` whose doing it was.
"""

import asyncio


class SilenceWatch:
    def __init__(self, patience: float, end: float) -> None:
        """`patience`: seconds without a word. `end`: when, on the loop's clock, waiting is over in any case."""
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._end = end
        self.waiting = False
        """True while events are waited for: only then may the timer interrupt."""
        self._rang = False
        self._spoken = self._loop.time()
        self._timer = self._loop.call_at(self._due(), self._ring)

    def spoke(self) -> None:
        self._spoken = self._loop.time()

    def interrupted(self) -> bool:
        """For a wait that was cancelled: True when it was this watch that did it, and nobody else."""
        rang, self._rang = self._rang, False
        return rang and not self._task.uncancel()

    def stop(self) -> None:
        self._timer.cancel()

    def _due(self) -> float:
        return min(self._spoken + self._patience, self._end)

    def _ring(self) -> None:
        now = self._loop.time()
        if not self.waiting:
            due = now + self._patience  # a slow client: its silence is not upstream's
        elif now < self._due():
            due = self._due()
        else:
            self._rang = True
            self._task.cancel()
            due = now + self._patience
        self._timer = self._loop.call_at(due, self._ring)
