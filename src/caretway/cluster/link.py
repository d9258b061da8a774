"""A process's link to Redis: the URL, time limits, names of rows, and whether Redis is available, with the reason.
After a failure, calls fail at once for a moment, so that no request waits for a Redis that is away.

No command is sent twice: a command whose reply was lost may have run, and only its caller knows whether that matters.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from redis import exceptions as failures
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, ReadOnlyError, RedisError
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import TimeoutError as TimedOut

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_S: Final = 1.0
ANSWER_S: Final = 1.0
"""Redis replies within a millisecond; one that takes this long counts as away."""
TOTAL_S: Final = 2.0
"""Time limit for a free connection, connecting and the reply together."""
PAUSE_S: Final = 0.5
"""How long calls fail at once after a failure."""
MAX_CONNECTIONS: Final = 32
MAX_REASON: Final = 200
_AWAY: Final = (ConnectionFailed, TimedOut, AuthenticationError, BusyLoadingError, ReadOnlyError, OSError)


class RedisAway(Exception):
    """Redis did not reply, or refused. The command may still have run."""


@dataclass(frozen=True, slots=True)
class LinkState:
    there: bool
    why: str = ""
    """The reason, if Redis is not there."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    url: str = field(repr=False)
    name: str = "default"
    """The cluster's name."""
    ca: Path | None = None


class RedisLink:
    def __init__(self, options: LinkOptions, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds. Connects at first use."""
        self.prefix: Final = f"caretway:{options.name}:"
        """The prefix of all row names."""
        self.asked = 0
        """Calls to Redis."""
        self.failures = 0
        """Calls that failed."""
        self._clock = clock
        self._why = ""
        self._refused = ""
        """The last refusal in the log, so that a repeated command logs it once."""
        self._pause_until = 0.0
        more: dict[str, Any] = {}
        if options.ca is not None and options.url.startswith("rediss:"):
            more = {"ssl_ca_certs": str(options.ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        self._pool = BlockingConnectionPool.from_url(
            options.url,
            max_connections=MAX_CONNECTIONS,
            timeout=TOTAL_S,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=ANSWER_S,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            client_name="caretway",
            **more,
        )
        self._redis: Redis = Redis(connection_pool=self._pool)

    @property
    def state(self) -> LinkState:
        return LinkState(not self._why, self._why)

    def row(self, *parts: str) -> str:
        """The name of a row: `row("claim", sid)`."""
        return self.prefix + ":".join(parts)

    async def do(self, work: Callable[[Redis], Awaitable[T]]) -> T:
        """Run `work` with Redis and return its result. Raises RedisAway, after TOTAL_S at the latest."""
        if self._why and self._clock() < self._pause_until:
            raise RedisAway(self._why)
        self.asked += 1
        try:
            async with asyncio.timeout(TOTAL_S):
                done = await work(self._redis)
        except (RedisError, OSError, TimeoutError) as failure:
            raise RedisAway(self._failed(failure)) from failure
        if self._why:
            log.info("Redis is back")
            self._why = ""
        return done

    def _failed(self, failure: Exception) -> str:
        self.failures += 1
        why = f"Redis: {reason(failure)}"
        if not isinstance(failure, (*_AWAY, TimeoutError)):
            if why != self._refused:
                log.warning("Redis refused a command: %s", why)
                self._refused = why
            return why
        if not self._why:
            log.warning("Redis is away: %s", why)
        self._why = why
        self._pause_until = self._clock() + PAUSE_S
        return why

    async def aclose(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()


def reason(failure: Exception) -> str:
    """The reason of a failure, for the administrator."""
    said = (str(failure) or type(failure).__name__)[:MAX_REASON].rstrip(". ")
    if isinstance(failure, AuthenticationError):
        return "user and password are wrong or missing in the address, redis://USER:PASSWORD@HOST:6379/0"
    if isinstance(failure, TimedOut) and "connecting" in said:
        return f"{said}; rediss:// is for one with TLS, redis:// for one without"
    return said


# ---- calls

# Commands to Redis in one round trip, and failures as part of a sentence for people.

Done = TypeVar("Done")
Command = tuple[Any, ...]

MAX_TOLD: Final = 120
MAX_COUNT: Final = 1e15


class ClusterLink(Protocol):
    """The part of the link that `Calls` uses."""

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
        """Run the commands in order in one round trip. Raises RedisAway if any failed; the others may have
        succeeded."""
        found = await self.run_each(commands)
        for one in found:
            if isinstance(one, RedisAway):
                raise one
        return found

    async def run_each(self, commands: Sequence[Command]) -> list[Any]:
        """Like `run`, with a RedisAway in place of each refused command. Raises RedisAway without a reply: then the
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
    """The failure as part of a sentence."""
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
