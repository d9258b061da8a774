"""The page while a real client works: opencode runs a tool of its own, and its turn is seen to wait for it."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from browser.chromium import Opens
from browser.test_page import live_turns
from clients.test_acp_agents import OPENCODE
from clients.test_launch_opencode import run
from contract.test_running import only_one, serving

pytestmark = [
    pytest.mark.all,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not OPENCODE.exists(), reason="opencode is not installed; ./scripts/clients --quick does it"),
]
PROMPT = """Please follow these lines.
sim: call bash {"command": "until [ -e seen ]; do sleep 0.1; done; cat nonce.txt", "description": "wait"}
sim: say FINAL
sim: result
That is all.
"""


async def test_opencode_is_seen_to_wait_for_its_own_tool(opens: Opens, tmp_path: Path) -> None:
    with serving(tmp_path):
        page = await opens(only_one(tmp_path).url)
        await expect(page.locator(".banner.loud")).to_contain_text("Simulated answers.")
        words = ("caretway", "launch", "opencode", "--", "run")
        client = asyncio.ensure_future(asyncio.to_thread(run, tmp_path, *words, stdin=PROMPT))
        row = live_turns(page).filter(has_text="bash")
        try:
            await expect(row).to_contain_text("waiting for a tool", timeout=120_000)
            await expect(row).to_contain_text("opencode")
        finally:
            (tmp_path / "work" / "seen").touch()  # the tool ends when the page has shown it
        assert "FINAL\nNONCE-4711" in await client
        await expect(page.locator("main")).to_contain_text("Nothing is running.")
        await page.get_by_role("link", name="Conversations", exact=True).click()
        await page.locator("tr", has_text="opencode").locator("a").first.click()
        await expect(page.locator(".timeline > li.good")).to_contain_text("resumed")
