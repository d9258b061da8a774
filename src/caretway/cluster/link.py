"""A process's link to Redis: the URL, time limits, names of rows, and whether Redis is available, with the reason.
After a failure, calls fail at once for a moment, so that no request waits for a Redis that is away.

No command is sent twice: a command whose reply was lost may have run, and only its caller knows whether that matters.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, Final

from redis import exceptions as failures
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

Command = tuple[Any, ...]

CONNECT_S: Final = 1.0
ANSWER_S: Final = 1.0
"""Redis normally replies within a millisecond; a Redis that takes this long is treated as away."""
TOTAL_S: Final = 2.0
"""Time limit for a free connection, connecting and the reply together."""
PAUSE_S: Final = 0.5
"""How long calls fail at once after a failure."""
MAX_CONNECTIONS: Final = 32
MAX_REASON: Final = 200
MAX_COUNT: Final = 1e15
_AWAY: Final = (
    *(failures.ConnectionError, failures.TimeoutError, failures.AuthenticationError, failures.BusyLoadingError),
    *(failures.ReadOnlyError, OSError),
)


class RedisAway(Exception):
    """Redis did not reply, or refused. The command may still have run."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    url: str = field(repr=False)
    name: str = "default"
    """The cluster's name."""
    ca: Path | None = None


class RedisLink:
    def __init__(self, options: LinkOptions, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds. Connects at first use."""
        self.failures = 0
        """Commands and round trips that failed."""
        self._prefix = f"caretway:{options.name}:"
        self._clock = clock
        self.why = ""
        """Why Redis is away; empty if it is there."""
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
    def away(self) -> bool:
        return bool(self.why)

    def key(self, kind: str, name: bytes = b"") -> bytes:
        """The name of a row."""
        return f"{self._prefix}{kind}".encode() + (b":" + name if name else b"")

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """Run the commands in order in one round trip. Raises RedisAway, after TOTAL_S at the latest, if any failed;
        the others may have succeeded."""
        found = await self.run_each(commands)
        for one in found:
            if isinstance(one, RedisAway):
                raise one
        return found

    async def run_each(self, commands: Sequence[Command]) -> list[Any]:
        """Like `run`, with a RedisAway in place of each refused command. Raises RedisAway without a reply: then the
        outcome is unknown."""
        if self.why and self._clock() < self._pause_until:
            raise RedisAway(self.why)
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            async with asyncio.timeout(TOTAL_S):
                found = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as failure:
            raise RedisAway(self._failed(failure)) from failure
        if self.why and not any(isinstance(one, _AWAY) for one in found):
            log.info("Redis is back")
            self.why = ""
        return [RedisAway(self._failed(one)) if isinstance(one, Exception) else one for one in found]

    def _failed(self, failure: Exception) -> str:
        self.failures += 1
        said = reason(failure)
        if not isinstance(failure, (*_AWAY, TimeoutError)):
            if said != self._refused:
                log.warning("Redis refused a command: %s", said)
                self._refused = said
            return said
        if not self.why:
            log.warning("Redis is away: %s", said)
        self.why = said
        self._pause_until = self._clock() + PAUSE_S
        return said

    async def aclose(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()


def number(row: bytes | None) -> float:
    """A count; 0 if the value is not a number, since anyone with write access to Redis can store anything."""
    try:
        found = float(row or 0)
    except ValueError:
        return 0.0
    return 0.0 if isnan(found) else max(-MAX_COUNT, min(MAX_COUNT, found))


def reason(failure: Exception) -> str:
    """The failure as part of a sentence, for the administrator."""
    said = (str(failure) or "it does not answer")[:MAX_REASON].rstrip(". ")
    match failure:
        case failures.AuthenticationError() | failures.AuthorizationError():
            said = "user and password are wrong or missing in the address, redis://USER:PASSWORD@HOST:6379/0"
        case failures.TimeoutError() if "connecting" in said:
            said = f"{said}; rediss:// is for one with TLS, redis:// for one without"
        case failures.BusyLoadingError():
            said = "it has just started and reads its file"
        case failures.NoPermissionError():
            said = "the user may not do this (ACL)"
        case failures.ReadOnlyError():
            said = "it is read-only: it is a replica, or a failover is under way"
        case failures.ResponseError() if "OOM" in said[:40]:
            said = "it is full (maxmemory)"
        case failures.ResponseError() if said.startswith("MISCONF"):
            said = "it takes no writes, because it cannot save its file"
        case failures.ResponseError():
            said = f"it refused a command ({said})"
    return f"Redis: {said}"
