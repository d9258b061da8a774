"""What a model, a client or a stranger says stays text: no script runs, nothing is loaded, no name looks like
another.
"""

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
