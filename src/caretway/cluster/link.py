"""The one way to Redis of a process: its URL, its time limits, the names of its rows, and whether Redis is there, with
the reason. After a failure others fail at once for a moment, so that nobody waits for a Redis that is away.

Nothing is sent twice: a command whose answer got lost may have been done, and only its caller knows whether that
matters.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

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
"""Redis answers within a millisecond; one that takes this long is away."""
TOTAL_S: Final = 2.0
"""For waiting for a free connection, connecting and the answer together."""
PAUSE_S: Final = 0.5
"""After a failure, how long others fail at once."""
MAX_CONNECTIONS: Final = 32
MAX_REASON: Final = 200
_AWAY: Final = (ConnectionFailed, TimedOut, AuthenticationError, BusyLoadingError, ReadOnlyError, OSError)


class RedisAway(Exception):
    """Redis did not answer, or it refused. What was asked for may have been done all the same."""


@dataclass(frozen=True, slots=True)
class LinkState:
    there: bool
    why: str = ""
    """Where it is not."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    url: str = field(repr=False)
    name: str = "default"
    """Of the cluster."""
    ca: Path | None = None


class RedisLink:
    def __init__(self, options: LinkOptions, clock: Callable[[], float]) -> None:
        """Connects when it is first used. `clock`: monotonic seconds."""
        self.prefix: Final = f"caretway:{options.name}:"
        """Of the names of all rows."""
        self.asked = 0
        """How often Redis was asked."""
        self.failures = 0
        """How often Redis did not answer."""
        self._clock = clock
        self._why = ""
        self._refused = ""
        """The last reason that the log has, for a command that is repeated all the time."""
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
        """What `work` does with Redis. Raises RedisAway, at the latest after TOTAL_S."""
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
    """For the administrator."""
    said = (str(failure) or type(failure).__name__)[:MAX_REASON].rstrip(". ")
    if isinstance(failure, AuthenticationError):
        return "user and password are wrong or missing in the address, redis://USER:PASSWORD@HOST:6379/0"
    if isinstance(failure, TimedOut) and "connecting" in said:
        return f"{said}; rediss:// is for one with TLS, redis:// for one without"
    return said
