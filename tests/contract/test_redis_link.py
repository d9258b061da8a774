"""What is said of a Redis that does not let a gateway in, or is not there: by real servers."""

import asyncio
import time

import pytest

from caretway.cluster.link import LinkOptions, RedisAway, RedisLink
from redis_server import free_port, redis_server


def why(url: str) -> str:
    async def ask() -> str:
        link = RedisLink(LinkOptions(url), time.monotonic)
        try:
            with pytest.raises(RedisAway) as caught:
                await link.run([("GET", "x")])
        finally:
            await link.aclose()
        assert link.away and link.why == str(caught.value)
        return str(caught.value)

    return asyncio.run(ask())


def test_passwords() -> None:
    with redis_server("--requirepass", "of-redis") as server:
        missing = why(server.url)
        wrong = why(server.url.replace("redis://", "redis://:other@"))
    told = "Redis: user and password are wrong or missing in the address, redis://USER:PASSWORD@HOST:6379/0"
    assert (missing, wrong) == (told, told)


def test_nobody_there() -> None:
    said = why(f"redis://127.0.0.1:{free_port()}/0")
    assert said.startswith("Redis: Error 111") and not said.endswith(".")


def test_tls_to_a_server_without() -> None:
    with redis_server() as server:
        assert "redis:// for one without" in why(server.url.replace("redis://", "rediss://"))
