"""Screenshots of every tab, after the scripted day of `contract/test_ledger_day.py`, spread over a week with the times
of real answers, and with turns that wait for tools. `./scripts/screenshots` calls it.
"""

import argparse
import asyncio
import itertools
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Page, async_playwright, expect

from browser.chromium import AXE, CHROMIUM, sandbox
from browser.judging import outside, violations
from caretway_sim.manners import LIVE_AT_ONCE
from contract.gateways import simulated
from contract.test_ledger_day import KEYS, Day, Talk, command, play, served

ROOT = Path(__file__).parents[2]
RESPONSES = 260
WIDTH = 1200
SHOWN = ("overview", "conversation", "usage")
"""In docs/dashboard.md."""
STORY = 1001
"""The number of a conversation that is shown."""
TOOLS = ["read", "bash", "edit"]
DAYS = 7
TABS = (
    *("overview", "conversations", "conversation", "usage", "models", "clients", "playground", "settings", "health"),
    "record",
)
ANSWER = r"""sim: think The words come one by one.
sim: say The page shows an answer as text:\n\n- lists\n- **bold** words and `code`\n\n```python\nprint("fenced")\n```"""
AT_HOME = """(folder) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "/home/you");
}"""
"""The folder of the script has another name each time."""
SETTINGS = """\
budgets = "runs=RUNS/day, key.tokens=TOKENS/month"
model_aliases = { fast = "composer-2.5|sim-fast", mine = "sim-think@high" }
"""


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "dashboard")
    parser.add_argument("--width", type=int, nargs="+", default=[WIDTH])
    parser.add_argument("--scheme", nargs="+", default=["light"], choices=["light", "dark"])
    parser.add_argument("--tab", nargs="+", default=SHOWN, choices=TABS)
    parser.add_argument("--responses", type=int, default=RESPONSES)
    parser.add_argument("--whole", action="store_true", help="the whole page, however long")
    asked = parser.parse_args()
    if CHROMIUM is None:
        print("no chromium is installed: apt-get install chromium", file=sys.stderr)
        return 1
    asked.to.mkdir(parents=True, exist_ok=True)
    poor = 0
    async with a_week(asked.responses) as (day, key), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox())
        for width, scheme in itertools.product(asked.width, asked.scheme):
            context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            await context.add_init_script(AXE)
            page = await context.new_page()
            await page.goto(day.url)
            await page.get_by_label("Key").fill(key)
            await page.keyboard.press("Enter")
            await page.get_by_role("heading", name="Overview").wait_for()
            for name in asked.tab:
                await shown(page, name)
                await page.evaluate(AT_HOME, str(day.places))
                found = [*await outside(page), *await violations(page)]
                poor += len(found)
                for line in found:
                    print(f"{name} at {width}: {line}", file=sys.stderr)
                plain = asked.width == [WIDTH] and asked.scheme == ["light"]
                file = asked.to / (f"{name}.png" if plain else f"{name}-{width}-{scheme}.png")
                await page.screenshot(path=file, full_page=asked.whole)
            await context.close()
        await browser.close()
    return 1 if poor else 0


async def shown(page: Page, name: str) -> None:
    """The tab, as somebody would look at it."""
    place = {"conversation": "conversations", "health": "settings/health", "record": "settings/record"}.get(name, name)
    await page.goto(f"{page.url.partition('#')[0]}#/{place}")
    await page.locator("main h1").wait_for()
    await page.locator("[aria-busy=true]").wait_for(state="detached")
    if name == "conversation":
        await page.get_by_label("Search").fill(f"talk-{STORY}-")
        await expect(page.locator("tr.linked")).to_have_count(1)
        await page.locator("tr.linked").locator("a").first.click()
        await page.locator(".timeline > li").first.wait_for()
    if name == "overview":
        await expect(page.locator("main")).not_to_contain_text("Not asked yet.")
    if name == "clients":
        await page.get_by_text("OpenCode", exact=True).click()
    if name == "playground" and await page.locator(".said").count() == 0:
        await page.get_by_label("Model").select_option("sim-think")
        await page.get_by_label("Message").fill(ANSWER)
        await page.get_by_role("button", name="Send").click()
        await page.get_by_text("done in").wait_for()
    await page.mouse.move(0, 0)
    await page.evaluate("scrollTo(0, 0)")


@asynccontextmanager
async def a_week(responses: int) -> AsyncIterator[tuple[Day, str]]:
    """A gateway that has a week behind it, and the key that opens its page."""
    with tempfile.TemporaryDirectory() as folder:
        day = Day(Path(folder))
        settings = day.places / ".config" / "caretway" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS.replace("RUNS", str(responses * 3 // 2)).replace("TOKENS", str(responses * 3000)))
        for name in KEYS:
            day.keys[name] = (await command(day, "key", "new", "--name", name)).split()[-1]
        key = (await command(day, "key", "new", "--name", "owner", "--page")).split()[-1]
        async with simulated(LIVE_AT_ONCE) as (_, port):
            async with served(day, port) as process:
                async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
                    await story(day, http)
                await play(day, itertools.count(), responses)
                process.send_signal(signal.SIGTERM)
                await process.wait()
            spread(day.places / "data" / "ledger.sqlite")
            async with served(day, port) as process:
                async with httpx.AsyncClient(timeout=600, trust_env=False) as http:
                    runs = await lively(day, http)
                    yield day, key
                    runs.cancel()
                process.send_signal(signal.SIGTERM)
                await process.wait()


async def story(day: Day, http: httpx.AsyncClient) -> None:
    """Work with three tools, another question, and a client that changes what was said before."""
    talk = Talk(STORY)
    calls = "\n".join(f"sim: call {tool} {{}}" for tool in TOOLS)
    body = talk.speaker.body(f"{calls}\nsim: say All tests pass.", TOOLS, stream=True) | {"model": talk.model}
    heard = await day.ask(http, talk, body)
    while heard is not None and heard.calls:
        body = talk.speaker.follow_up(body, heard, {one.id: "a line of the result\n" * 300 for one in heard.calls})
        heard = await day.ask(http, talk, body)
    body = talk.goes_on(body, heard.text if heard is not None else "", "sim: say One more thing.")
    heard = await day.ask(http, talk, body)
    await day.ask(http, talk, talk.goes_on(body, "An edited answer.", "sim: say It is done."))


def spread(ledger: Path) -> None:
    """Conversations on the days of a week, most of them today and some in the last hour; their steps take as long as
    real ones."""
    chance = random.Random(7)
    now = time.time()
    midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    with closing(sqlite3.connect(ledger)) as db, db:
        known = [row[0] for row in db.execute("SELECT DISTINCT conversation FROM responses ORDER BY conversation")]
        for number, conversation in enumerate(known):
            steps = db.execute(
                "SELECT id, run, outcome FROM responses WHERE conversation = ? ORDER BY id", (conversation,)
            ).fetchall()
            at = now - chance.uniform(0, 3500)
            if number % 3:
                at = chance.uniform(midnight, now) - (0 if number % 2 else 86_400 * (number % DAYS))
            begun: dict[str, float] = {}
            for row, run, outcome in steps:
                begun.setdefault(run, at)
                took = chance.uniform(0.6, 14.0)
                db.execute(
                    "UPDATE responses SET at = ?, first_ms = ?, total_ms = ? WHERE id = ?",
                    (min(at + took, now), took * chance.uniform(80, 600), took * 1000, row),
                )
                db.execute(
                    "UPDATE runs SET started_at = ?, at = ? WHERE run = ?", (begun[run], min(at + took, now), run)
                )
                at += took + (chance.uniform(0.2, 9.0) if outcome == "paused" else chance.uniform(5.0, 90.0))


async def lively(day: Day, http: httpx.AsyncClient) -> "asyncio.Future[Any]":
    """Turns that wait, mistakes, and one turn that runs."""
    for number in (0, 1, 2):
        talk = Talk(number)
        await day.ask(http, talk, talk.body('sim: call lookup {"key": "1"}\nsim: say done', tools=True))
    talk = Talk(6)
    await day.ask(http, talk, talk.body("sim: fail usage_limit"))
    wrong = {"authorization": f"Bearer {day.keys['anna']}", "user-agent": "curl/8.5.0"}
    await http.post(f"{day.url}/v1/chat/completion", headers=wrong, json={})
    await http.post(f"{day.url}/v1/chat/completions", headers=wrong | {"authorization": "Bearer cw-old"}, json={})
    talk = Talk(3)
    return asyncio.ensure_future(day.ask(http, talk, talk.body("sim: stream 20000 60 30")))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
