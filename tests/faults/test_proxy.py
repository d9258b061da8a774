"""The proxy does what a fault says, at the byte that it says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from faults.plan import Direction, Fault, Kind, Weather, by_seed
from faults.proxy import Proxy

HELLO, ANSWER = b"hello, server, how are you?", b"thank you, and how is everybody at home?"


@asynccontextmanager
async def proxied(fault: Fault | None) -> AsyncIterator[tuple[Proxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client of a server that answers once it has got all of HELLO, or says in the end how much it got."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    proxy = Proxy(server.sockets[0].getsockname()[1], lambda _, survived: None if survived else fault)
    reader, writer = await asyncio.open_connection("127.0.0.1", await proxy.listen())
    try:
        yield proxy, reader, writer
    finally:
        writer.close()
        await proxy.aclose()
        server.close()
        await server.wait_closed()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    got = b""
    try:
        while len(got) < len(HELLO) and (data := await reader.read(1000)):
            got += data
        writer.write(ANSWER if got == HELLO else b"%d" % len(got))
        await writer.drain()
        await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def heard(reader: asyncio.StreamReader, patience: float = 5.0) -> tuple[bytes, str]:
    """All that came, and how it ended."""
    got = b""
    try:
        async with asyncio.timeout(patience):
            while data := await reader.read(1000):
                got += data
                if got == ANSWER:
                    return got, "complete"
        return got, "closed"
    except ConnectionError:
        return got, "reset"
    except TimeoutError:
        return got, "silence"


CASES = [
    (None, ANSWER, "complete"),
    (Fault(Kind.TRUNCATE, Direction.DOWN, 9), ANSWER[:9], "closed"),
    (Fault(Kind.TRUNCATE, Direction.DOWN, 0), b"", "closed or reset"),  # what nobody read makes a reset of it
    (Fault(Kind.HALF_CLOSE, Direction.DOWN, 9), ANSWER[:9], "closed"),
    (Fault(Kind.HALF_CLOSE, Direction.UP, 9), b"9", "closed"),
    (Fault(Kind.STALL, Direction.DOWN, 9, 0.1), ANSWER, "complete"),
    (Fault(Kind.STALL, Direction.UP, 9, 0.1), ANSWER, "complete"),
    (Fault(Kind.TRICKLE, Direction.DOWN, 1, 60), ANSWER, "complete"),
    (Fault(Kind.TRICKLE, Direction.UP, 0, 60), ANSWER, "complete"),
    (Fault(Kind.RESET, Direction.UP, 9), b"", "reset"),
    (Fault(Kind.BLACK_HOLE, Direction.DOWN, 9), ANSWER[:9], "silence"),
    (Fault(Kind.BLACK_HOLE, Direction.UP, 9), b"", "silence"),
    (Fault(Kind.ONE_WAY, Direction.DOWN, 9), ANSWER[:9], "silence"),
    (Fault(Kind.ONE_WAY, Direction.UP, 9), b"", "silence"),
    (Fault(Kind.RESET, Direction.DOWN, len(ANSWER) + 1), ANSWER, "complete"),
]


@pytest.mark.parametrize(("fault", "text", "end"), CASES)
async def test_fault(fault: Fault | None, text: bytes, end: str) -> None:
    async with proxied(fault) as (proxy, reader, writer):
        writer.write(HELLO)
        got, how = await heard(reader, 0.3 if end == "silence" else 5.0)
        assert got == text and how in end
        reached = fault is not None and fault.at <= len(ANSWER)
        assert [fired.fault for fired in proxy.fired] == ([fault] if reached else [])


async def test_a_reset_comes_after_what_passed_before_it() -> None:
    async with proxied(Fault(Kind.RESET, Direction.DOWN, 9)) as (_, reader, writer):
        writer.write(HELLO)
        got, how = await heard(reader)
        assert ANSWER[:9].startswith(got) and how == "reset"


async def test_who_survives_is_hit_again() -> None:
    fault = Fault(Kind.STALL, Direction.DOWN, 4, 0.01)
    async with proxied(fault) as (proxy, reader, writer):
        proxy.plan = lambda _, survived: fault if survived < 3 else None
        writer.write(HELLO)
        assert await heard(reader) == (ANSWER, "complete")
        assert len(proxy.fired) == 1, "the rest was held, and passed at once"


def test_the_same_seed_gives_the_same_faults() -> None:
    weather = Weather(up=1000, down=3000)
    plans = [by_seed(seed, weather) for seed in ("a", "a", "b")]
    first, same, other = ([plan(number, 0) for number in range(200)] for plan in plans)
    assert first == same != other
    assert {fault.kind for fault in first if fault} == set(Kind)
