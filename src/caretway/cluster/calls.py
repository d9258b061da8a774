"""Commands to Redis in one round trip, and what went wrong as a part of a sentence for people: away, slow, full,
read-only, loading, not allowed.

Over the link, which has the time limits. Nothing here knows what the commands mean.
"""

from collections.abc import Awaitable, Callable, Sequence
from math import isnan
from typing import Any, Final, Protocol, TypeVar

from redis import exceptions as failures
from redis.asyncio import Redis

from .link import LinkState, RedisAway

Done = TypeVar("Done")
Command = tuple[Any, ...]

MAX_TOLD: Final = 120
MAX_COUNT: Final = 1e15


class ClusterLink(Protocol):
    """What is used of it here."""

    @property
    def prefix(self) -> str: ...

    @property
    def state(self) -> LinkState: ...

    async def do(self, work: Callable[["Redis"], Awaitable[Done]]) -> Done: ...


class Calls:
    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    def key(self, kind: str, name: bytes = b"") -> bytes:
        return f"{self._link.prefix}{kind}".encode() + (b":" + name if name else b"")

    @property
    def away(self) -> bool:
        return not self._link.state.there

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """All of them in one round trip, in their order; their results. Raises RedisAway when any of them failed,
        whatever the others did."""
        found = await self.run_each(commands)
        for one in found:
            if isinstance(one, RedisAway):
                raise one
        return found

    async def run_each(self, commands: Sequence[Command]) -> list[Any]:
        """Like `run`, with a RedisAway in place of each refused command. Raises RedisAway without an answer: then the
        outcome is unknown."""

        async def work(redis: "Redis") -> list[Any]:
            pipeline = redis.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute(raise_on_error=False)

        found = await self._link.do(work)
        return [RedisAway(why(one)) if isinstance(one, Exception) else one for one in found]


def number(row: bytes | None) -> float:
    """A count; 0 if the value is not a number, since anyone with write access to Redis can store anything."""
    try:
        found = float(row or 0)
    except ValueError:
        return 0.0
    return 0.0 if isnan(found) else max(-MAX_COUNT, min(MAX_COUNT, found))


def why(failure: Exception) -> str:
    """The part of a sentence that says what is wrong with Redis."""
    match failure:
        case failures.BusyLoadingError():
            return "Redis has just started and reads its file"
        case failures.AuthenticationError() | failures.AuthorizationError():
            return "Redis does not accept the user or the password"
        case failures.ReadOnlyError():
            return "Redis is read-only: it is a replica, or a failover is under way"
        case failures.OutOfMemoryError():
            return "Redis is full (maxmemory)"
        case failures.NoPermissionError():
            return "the Redis user may not do this (ACL)"
        case failures.ResponseError() if "OOM" in str(failure)[:40]:
            return "Redis is full (maxmemory)"
        case failures.ResponseError() if "READONLY" in str(failure):
            return "Redis is read-only: it is a replica, or a failover is under way"
        case failures.ResponseError() if str(failure).startswith("MISCONF"):
            return "Redis takes no writes: it cannot save its file"
        case failures.ResponseError():
            return f"Redis refused a command ({str(failure)[:MAX_TOLD]})"
        case TimeoutError() | failures.TimeoutError():
            return "Redis does not answer"
        case _:
            return f"Redis cannot be reached ({str(failure)[:MAX_TOLD] or type(failure).__name__})"
