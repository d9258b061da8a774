"""The page of one gateway of three: who the others are, what waits there, who is leaving, and Redis that goes away."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from playwright.async_api import expect

from browser.chromium import Opens
from browser.judging import outside, violations
from contract.gateways import gateway, gateway_to, simulated, tool
from redis_server import redis_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = 'sim: call shell {"command": "ls"}\nsim: say done'


@pytest.mark.all
async def test_the_gateways_of_a_cluster(opens: Opens) -> None:
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(redis_server())
        given: dict[str, Any] = {
            "cluster": redis.url,
            "cluster_key": "cw-of-a-cluster-0123456789",
            "cluster_drain": 0.0,
        }
        simulator, port = await stack.enter_async_context(simulated())
        here, busy, leaving = [await stack.enter_async_context(gateway_to(simulator, port, **given)) for _ in range(3)]
        await busy.chat(CALL, tools=[tool("shell", "command")])
        assert leaving.gateway._services.cluster is not None
        await leaving.gateway._services.cluster.directory.drain()

        page = await opens(here.gateway.base_url, viewport={"width": 360, "height": 800}, color_scheme="dark")
        rows = page.get_by_role("table", name="Gateways of the cluster").locator("tbody tr")
        await expect(rows).to_have_count(3)
        for client, told in ((here, ("this one", "ready")), (busy, ("ready",)), (leaving, ("draining",))):
            row = rows.filter(has_text=client.gateway.base_url)
            for word in told:
                await expect(row).to_contain_text(word)
        parked = page.locator('td[data-title="Waiting for a tool"]')
        await expect(rows.filter(has_text=busy.gateway.base_url).locator(parked)).to_have_text("1")
        await expect(rows.filter(has_text=here.gateway.base_url).locator(parked)).to_have_text("0")
        assert await outside(page) == [] and await violations(page) == []
        await page.set_viewport_size({"width": 1200, "height": 800})
        await page.emulate_media(color_scheme="light")
        assert await outside(page) == [] and await violations(page) == []

        redis.stop()
        await expect(page.locator("main")).to_contain_text("Redis does not answer")
        await expect(rows).to_have_count(3)
        redis.start()
        await expect(page.locator("main")).not_to_contain_text("Redis does not answer")


@pytest.mark.all
async def test_a_gateway_that_is_alone_shows_none(opens: Opens) -> None:
    async with gateway() as client:
        page = await opens(client.gateway.base_url)
        await expect(page.get_by_role("heading", name="Account")).to_be_visible()
        await expect(page.get_by_role("heading", name="Cluster")).to_have_count(0)
