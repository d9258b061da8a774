"""A real browser: the chromium that is installed here, driven by Playwright. One for all tests, a context for each."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from browser.chromium import AXE, CHROMIUM, Opens, sandbox

HARMLESS = ("Failed to load resource", "net::ERR_")
"""What a browser says of a refused request or of a gateway that is away. Tests look at what the page makes of it."""

expect.set_options(timeout=20_000)  # only a page that is broken takes that long


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox())
        yield running
        await running.close()


@pytest_asyncio.fixture(loop_scope="session")
async def opens(browser: Browser) -> AsyncIterator[Opens]:
    """Whatever the browser complains of fails the test: errors of scripts, what the policy refused."""
    said: list[str] = []
    contexts = []

    async def opened(url: str, refuses: bool = False, **context: Any) -> Page:
        one = await browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | context)
        contexts.append(one)
        await one.add_init_script(AXE)
        page = await one.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        if not refuses:
            page.on("console", lambda line: said.append(line.text) if line.type in ("error", "warning") else None)
        await page.goto(url)
        return page

    yield opened
    for one in contexts:
        await one.close()
    assert [line for line in said if not any(words in line for words in HARMLESS)] == []
