"""Responses in the background, asked for with the official SDK: poll, cancel, take up a stream again, and a restart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from caretway.web.background import MAX_PER_KEY
from contract.gateways import Client, gateway

KEY = "cw-key-of-anna-0123456789"
STAYS = "sim: say hello\nsim: hang"
SLOW = "sim: stream 100000 10 5"


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Client, openai.AsyncOpenAI]]:
    async with gateway(gateway_key=KEY, disconnect_grace=0.0) as client:
        sdk = openai.AsyncOpenAI(api_key=KEY, base_url=f"{client.gateway.base_url}/v1", max_retries=0)
        async with sdk:
            yield client, sdk


async def over(sdk: openai.AsyncOpenAI, name: str) -> openai.types.responses.Response:
    async with asyncio.timeout(30):
        while (found := await sdk.responses.retrieve(name)).status == "in_progress":
            await asyncio.sleep(0.02)
    return found


async def test_it_is_polled_until_it_is_there() -> None:
    async with opened() as (client, sdk):
        asked = await sdk.responses.create(model="sim-auto", input="sim: stream 20 10 10", background=True)
        assert (asked.background, asked.output) == (True, [])
        found = await over(sdk, asked.id)
        assert (found.status, len(found.output_text)) == ("completed", 200)
        assert client.stats()["runs_opened"] == 1
        more = await sdk.responses.create(model="sim-auto", input="sim: recall", previous_response_id=asked.id)
        assert "1 earlier user turn" in more.output_text


async def test_a_stream_is_taken_up_where_it_broke() -> None:
    async with opened() as (client, sdk):
        whole = []
        async with await sdk.responses.create(
            model="sim-auto", input="sim: stream 40 10 10", background=True, stream=True
        ) as stream:
            async for event in stream:
                whole.append(event)
                if event.type == "response.output_text.delta":
                    break  # the client is gone
        name = whole[0].response.id  # type: ignore[union-attr]
        last = whole[-1].sequence_number
        for after in (last, 0):
            rest = []
            async with await sdk.responses.retrieve(name, stream=True, starting_after=after) as stream:
                rest = [event async for event in stream]
            assert [event.sequence_number for event in rest] == list(range(after + 1, after + 1 + len(rest)))
            assert rest[-1].type == "response.completed"
            assert len(rest[-1].response.output_text) == 400
        assert client.stats()["runs_opened"] == 1


async def test_it_is_cancelled() -> None:
    async with opened() as (client, sdk):
        asked = await sdk.responses.create(model="sim-auto", input=SLOW, background=True)
        assert asked.status == "in_progress"
        assert (await sdk.responses.cancel(asked.id)).status == "cancelled"
        assert (await sdk.responses.retrieve(asked.id)).status == "cancelled"
        async with asyncio.timeout(20):
            while client.gateway.tenants.live:
                await asyncio.sleep(0.01)
        await sdk.responses.delete(asked.id)
        with pytest.raises(openai.NotFoundError):
            await sdk.responses.retrieve(asked.id)


async def test_whoever_follows_a_cancelled_response_is_told() -> None:
    """Also when several cancel it at once, and again later."""
    async with opened() as (_, sdk):
        asked = await sdk.responses.create(model="sim-auto", input=SLOW, background=True)
        seen: list[Any] = []
        async with await sdk.responses.retrieve(asked.id, stream=True) as stream:
            async for event in stream:
                if not seen:
                    both = await asyncio.gather(*(sdk.responses.cancel(asked.id) for _ in range(2)))
                    assert [one.status for one in both] == ["cancelled", "cancelled"]
                seen.append(event)
        assert (seen[-1].type, seen[-1].response.status) == ("response.incomplete", "cancelled")
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
        assert (await sdk.responses.cancel(asked.id)).status == "cancelled"
        async with await sdk.responses.retrieve(asked.id, stream=True, starting_after=len(seen) - 2) as stream:
            assert [event.type async for event in stream] == ["response.incomplete"]


@pytest.mark.parametrize(
    ("after", "status"),
    [("--5", 400), ("x", 400), ("9" * 10, 400), ("-1", 200), ("-7", 200), ("999999", 200)],
)
async def test_where_a_stream_is_taken_up(after: str, status: int) -> None:
    async with opened() as (client, sdk):
        asked = await sdk.responses.create(model="sim-auto", input="sim: say hello", background=True)
        await over(sdk, asked.id)
        sent = {"Authorization": f"Bearer {KEY}"}
        path = f"/v1/responses/{asked.id}?stream=true&starting_after={after}"
        answer = await client.http.get(path, headers=sent)
        assert answer.status_code == status, answer.text
        assert status == 400 or ("response.completed" in answer.text) == after.startswith("-")


async def test_one_key_does_not_take_all_places(tmp_path: Path) -> None:
    other = "cw-key-of-bert-0123456789"
    (tmp_path / "keys").write_text(f"{KEY}\n{other}\n")
    async with gateway(api_key_file=tmp_path / "keys") as client:
        anna, bert = (
            openai.AsyncOpenAI(api_key=key, base_url=f"{client.gateway.base_url}/v1", max_retries=0)
            for key in (KEY, other)
        )
        async with anna, bert:
            for _ in range(MAX_PER_KEY):
                await anna.responses.create(model="sim-auto", input=STAYS, background=True)
            with pytest.raises(openai.RateLimitError, match=f"{MAX_PER_KEY} responses"):
                await anna.responses.create(model="sim-auto", input=STAYS, background=True)
            assert (await bert.responses.create(model="sim-auto", input="sim: say x", background=True)).background


@pytest.mark.parametrize("stream", [False, True])
async def test_it_takes_a_place_of_its_key_until_it_is_over(stream: bool, tmp_path: Path) -> None:
    """Another one of the key is refused meanwhile, in either manner; asking for it and cancelling it are not."""
    other = "cw-key-of-bert-0123456789"
    (tmp_path / "keys").write_text(f"{KEY}\n{other}\n")
    async with gateway(api_key_file=tmp_path / "keys", max_concurrent_per_key=1, disconnect_grace=0.0) as client:
        url = f"{client.gateway.base_url}/v1"
        anna, bert = (openai.AsyncOpenAI(api_key=key, base_url=url, max_retries=0) for key in (KEY, other))
        async with anna, bert:
            asked: Any = await anna.responses.create(model="sim-auto", input=SLOW, background=True, stream=stream)
            name = (await anext(aiter(asked))).response.id if stream else asked.id
            for background in (True, False):
                with pytest.raises(openai.RateLimitError, match="1 of them in the background") as refused:
                    await anna.responses.create(model="sim-auto", input="sim: say x", background=background)
                assert refused.value.code == "too_many_concurrent_requests"
            assert (await bert.responses.create(model="sim-auto", input="sim: say x")).output_text == "x"
            assert (await anna.responses.retrieve(name)).status == "in_progress"
            assert (await anna.responses.cancel(name)).status == "cancelled"
            if stream:
                await asked.close()
            assert (await anna.responses.create(model="sim-auto", input="sim: say x")).output_text == "x"
            later = await anna.responses.create(model="sim-auto", input="sim: say x", background=True)
            await over(anna, later.id)
            assert (await anna.responses.create(model="sim-auto", input="sim: say y")).output_text == "y"


async def test_it_takes_a_place_of_the_gateway_until_it_is_over() -> None:
    async with gateway(max_concurrent=1, disconnect_grace=0.0) as client:
        sdk = openai.AsyncOpenAI(api_key="none", base_url=f"{client.gateway.base_url}/v1", max_retries=0)
        async with sdk:
            asked = await sdk.responses.create(model="sim-auto", input=SLOW, background=True)
            with pytest.raises(openai.APIStatusError, match="1 responses are being made already") as refused:
                await sdk.responses.create(model="sim-auto", input="sim: say x")
            assert refused.value.status_code == 429
            await sdk.responses.cancel(asked.id)
            assert (await sdk.responses.create(model="sim-auto", input="sim: say x")).output_text == "x"


async def test_what_nobody_can_find_is_not_made() -> None:
    """Its client hung up before it was told a name."""
    async with opened() as (client, sdk):
        slow = "sim: ponder 60000\nsim: say x"
        asking = asyncio.create_task(sdk.responses.create(model="sim-auto", input=slow, background=True))
        async with asyncio.timeout(20):
            while not client.gateway.tenants.live:
                await asyncio.sleep(0.01)
            asking.cancel()
            while client.gateway.tenants.live:
                await asyncio.sleep(0.01)


async def test_what_does_not_begin_is_told_at_once() -> None:
    async with opened() as (_, sdk):
        with pytest.raises(openai.BadRequestError):
            await sdk.responses.create(model="sim-auto", input="x", background=True, store=False)
        with pytest.raises(openai.APIStatusError) as spent:
            await sdk.responses.create(model="sim-auto", input="sim: fail usage_limit", background=True)
        assert spent.value.status_code == 402
        done = await sdk.responses.create(model="sim-auto", input="sim: say hello")
        with pytest.raises(openai.BadRequestError):
            await sdk.responses.cancel(done.id)
