"""How many cursor-agent turns run at once, and their queue: first come, first served; a full queue is OVERLOADED with
Retry-After; a place is given back once, also by a turn that was cancelled."""

import asyncio
from collections import deque

from ...core.errors import ErrorKind, GatewayError


class Slots:
    def __init__(self, permits: int, queue: int, *, retry_after: float) -> None:
        self._free = permits
        self._queue = queue
        self._retry_after = retry_after
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def join(self) -> "Slot":
        """A slot, or GatewayError(OVERLOADED) when the queue is full. Nothing is awaited here."""
        if self._free:
            self._free -= 1
            return Slot(self, None)
        if len(self._waiting) >= self._queue:
            raise GatewayError(
                ErrorKind.OVERLOADED,
                f"Every cursor-agent process is busy and {len(self._waiting)} requests wait already.",
                hint="Raise cli_max_processes or cli_queue.",
                retry_after=self._retry_after,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return Slot(self, turn)

    def leave(self, turn: "asyncio.Future[None] | None") -> None:
        if turn is not None and not turn.done():
            self._waiting.remove(turn)
            turn.cancel()
            return
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1


class Slot:
    """Somebody's place: in the queue first, then at work. Given back once, from either."""

    def __init__(self, slots: Slots, turn: "asyncio.Future[None] | None") -> None:
        self._slots = slots
        self._turn = turn
        self._left = False

    async def reached(self) -> None:
        """It is our turn. Being cancelled here does not lose the place; `leave` does."""
        if self._turn is not None:
            await asyncio.shield(self._turn)

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._slots.leave(self._turn)
