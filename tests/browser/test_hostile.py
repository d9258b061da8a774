"""What a model, a client or a stranger says stays text: no script runs, nothing is loaded, no name looks like
another.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from browser.chromium import Opens
from browser.test_page import all_tabs, live_turns
from contract.gateways import gateway, result, tool

pytestmark = [pytest.mark.all, pytest.mark.asyncio(loop_scope="session")]

EVIL = (
    "<script>window.pwned = 1</script></style></textarea><img src=x onerror=window.pwned=1> \u202egnp.exe\u202c "
    "\u2066x event: now data: {} [DONE]"
)
LINES = ("event: signed_out", "data: {}", "", "data: [DONE]", "</pre><svg onload=window.pwned=1>")


WATCH = "window.refused = []; addEventListener('securitypolicyviolation', (it) => refused.push(it.effectiveDirective))"
REFUSED = """(all) => new Promise((done) => {
  const look = () => (all.every((one) => refused.includes(one)) ? done(true) : setTimeout(look, 20));
  look();
})"""


async def nothing_ran(page: Page) -> None:
    assert await page.evaluate("window.pwned") is None
    assert await page.locator("img[src='x'], main script, main svg[onload], main style").count() == 0


async def test_an_answer_stays_text(opens: Opens) -> None:
    async with gateway() as client:
        page = await opens(f"{client.gateway.base_url}/#/playground")
        await expect(page.get_by_label("Model")).not_to_have_value("")
        said = "\\n".join([EVIL, *LINES])
        await page.get_by_label("Message").fill(f"sim: think {EVIL}\nsim: say {said}")
        await page.get_by_role("button", name="Send").click()
        answer = page.locator(".said.model")
        await expect(answer.locator(".foot")).to_contain_text("done in")
        blocks = await answer.locator("> .words > *").evaluate_all("(all) => all.map((one) => one.textContent)")
        assert blocks == [f"{EVIL}\n{LINES[0]}\n{LINES[1]}\n", f"{LINES[3]}\n{LINES[4]}"]
        assert await answer.locator("details .words").evaluate("(one) => one.textContent") == EVIL
        box = await answer.locator("> .words > p").first.evaluate("(one) => getComputedStyle(one).unicodeBidi")
        assert box == "isolate", "marks of direction end with the answer"
        await expect(page.get_by_role("button", name="Send")).to_be_enabled()
        await nothing_ran(page)
        code = await page.locator("pre").last.inner_text()
        assert "\u202e" not in code and "\\u202e" in code


async def test_names_of_clients_models_and_tools_stay_text(opens: Opens) -> None:
    async with gateway() as client:
        named = {"user-agent": "<img/src=x>/1.0"}
        evil_model = "<img src=x onerror=window.pwned=1>\u202egpt"
        await client.chat("sim: say x", model=evil_model, headers=named)
        await client.http.post("/v1/<script>window.pwned=1</script>", headers=named, json={})
        lookup = tool("lookup", "key")
        first: dict[str, Any] = {"role": "user", "content": f'sim: call lookup {{"key": "{EVIL}"}}\nsim: result'}
        called = await client.chat([first], tools=[lookup], headers=named)
        page = await opens(client.gateway.base_url)
        await expect(live_turns(page)).to_contain_text("lookup")
        await client.chat([first, called.message, result(called.calls[0], EVIL)], tools=[lookup], headers=named)
        async for _ in all_tabs(page):
            await nothing_ran(page)
            assert "\u202e" not in await page.locator("body").inner_text(), "marks are written out in names"


async def test_the_policy_stops_an_inline_script(opens: Opens) -> None:
    async with gateway() as client:
        page = await opens(client.gateway.base_url, refuses=True)
        await page.add_init_script(WATCH)

        async def with_script(route: Route) -> None:
            response = await route.fetch()
            body = (await response.text()).replace(
                "</body>", "<script>window.pwned = 1</script><p style='color: red'>x</p></body>"
            )
            await route.fulfill(response=response, body=body)

        await page.route(client.gateway.base_url + "/", with_script)
        await page.reload()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        await nothing_ran(page)
        assert await page.evaluate(REFUSED, ["script-src-elem", "style-src-attr"])
        as_html = "() => { try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name } }"
        assert await page.evaluate(as_html) == "TypeError"
        outside = "async () => fetch('http://127.0.0.2:1/').then(() => 'sent', () => 'refused')"
        assert await page.evaluate(outside) == "refused" and await page.evaluate(REFUSED, ["connect-src"])


MEGABYTE = 2**20
FLOODS = {
    "items": "- x\n" * (MEGABYTE // 4),
    "one line": "word `code` **bold** " * (MEGABYTE // 21),
    "a word": "x" * MEGABYTE,
    "quotes": "> " * 20_000 + "deep\n" + "".join("  " * depth + "- deeper\n" for depth in range(1000)),
    "fences": "```\n" * (MEGABYTE // 8) + "~~~ a\n" * 1000,
    "marks": "`" * 200_000 + "*" * 200_000 + "#" * 200_000 + "[" * 200_000 + "\n",
    "bidi": "\u202e\u2066" * 50_000 + "<b>\n" * 1000,
}
WATCH_GAPS = """() => {
  window.gaps = [];
  let last = performance.now();
  const tick = () => {
    gaps.push(performance.now() - last);
    last = performance.now();
    window.timer = setTimeout(tick);
  };
  tick();
}"""


def as_stream(text: str) -> str:
    """A chat completion, forty kilobytes to a chunk."""
    pieces = [text[at : at + 40_000] for at in range(0, len(text), 40_000)]
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def answers(body: str) -> Callable[[Route], Awaitable[None]]:
    async def answer(route: Route) -> None:
        await route.fulfill(body=body, content_type="text/event-stream")

    return answer


async def test_a_flood_of_markdown_is_shown_as_text_and_freezes_nothing(opens: Opens) -> None:
    """Neither the number of blocks nor the size of one grows with the answer, and other work gets its turns."""
    async with gateway() as client:
        page = await opens(f"{client.gateway.base_url}/#/playground")
        await expect(page.get_by_label("Model")).not_to_have_value("")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/try") else None)
        for name, flood in FLOODS.items():
            await page.route("**/try", answers(as_stream(flood)))
            await page.evaluate(WATCH_GAPS)
            await page.get_by_label("Message").fill("flood")
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".said.model .foot")).to_contain_text("done in", timeout=60_000)
            turns, longest = await page.evaluate("() => (clearTimeout(timer), [gaps.length, Math.max(...gaps)])")
            print(f"{name}: {turns} turns of the page's timers, the longest pause {longest:.0f} ms")
            shown = await page.locator(".said.model > .words").evaluate("(one) => one.textContent")
            blocks = await page.locator(".said.model > .words > *").count()
            assert blocks <= 1001 + 2 * len(flood) // 10_000, name
            kept = {"items": "x", "one line": "word", "a word": "x", "quotes": "deep", "marks": "[", "bidi": "<b>"}
            letters = kept.get(name, "a")
            assert shown.count(letters) == flood.count(letters) or name == "fences", name
            sizes = await page.locator(".said.model > .words > *").evaluate_all(
                "(all) => all.map((one) => one.textContent.length)"
            )
            assert max(sizes) <= 20_100 and turns > 3, name
            await page.get_by_role("button", name="New conversation").click()
            await page.unroute("**/try")
        assert len(asked) == len(FLOODS), "each is asked for once"
        await nothing_ran(page)


async def test_a_closed_tab_lets_its_turn_go(opens: Opens) -> None:
    async with gateway() as client:
        page = await opens(f"{client.gateway.base_url}/#/playground")
        await expect(page.get_by_label("Model")).not_to_have_value("")
        await page.get_by_text("Tools", exact=True).click()
        await page.get_by_label("Offer these tools").check()
        await page.get_by_label("Message").fill('sim: call get_weather {"city": "Bonn"}\nsim: result')
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_label("Result of get_weather")).to_be_visible()
        assert client.gateway.tenants.live == 1
        await page.close(run_before_unload=True)
        async with asyncio.timeout(30):
            while client.gateway.tenants.live:
                await asyncio.sleep(0.05)
