"""The dashboard in a real browser, in front of a gateway and a simulated Cursor: its tabs, live turns, the playground,
restarts, keys. What is hostile is in test_hostile.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from playwright.async_api import Locator, Page, expect

from browser.chromium import Opens
from browser.judging import outside, violations
from caretway.config import Settings
from caretway.gateway import Gateway
from contract.gateways import Client, gateway, gateway_to, result, simulated, tool

pytestmark = pytest.mark.asyncio(loop_scope="session")

TABS = {
    "overview": "Overview",
    "conversations": "Conversations",
    "usage": "Usage",
    "models": "Models",
    "clients": "Clients",
    "playground": "Playground",
    "settings": "Settings",
    "settings/health": "Health",
    "settings/record": "Record",
}
IN_THE_BAR = [name for name in TABS if "/" not in name]
LOOK_UP = 'sim: call lookup {"key": "1"}\nsim: say done'
KEY = "cw-a-key-of-the-gateway-0123456789"


async def some_use(client: Client) -> None:
    """A tool loop, a conversation that goes on, one that is replayed, a failure and two mistakes."""
    lookup = tool("lookup", "key")
    first: dict[str, Any] = {"role": "user", "content": LOOK_UP}
    called = await client.chat([first], tools=[lookup])
    await client.chat([first, called.message, result(called.calls[0], "found")], tools=[lookup])
    hello = {"role": "user", "content": "sim: think hm\nsim: say one"}
    said = await client.chat([hello])
    await client.chat([hello, said.message, {"role": "user", "content": "sim: say two"}])
    other = {"role": "assistant", "content": "something else"}
    await client.chat([hello, other, {"role": "user", "content": "sim: say three"}])
    await client.chat("sim: fail internal")
    await client.http.post("/v1/chat/completion", json={})
    await client.http.post("/v1/embeddings", json={"model": "x", "input": "y"})


async def go(page: Page, name: str, title: str = "") -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/{name}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(title or TABS[name])
    await expect(page.locator("[aria-busy=true]")).to_have_count(0)


def live_turns(page: Page) -> Locator:
    return page.get_by_role("table", name="Turns that are running").locator("tbody tr")


async def all_tabs(page: Page) -> AsyncIterator[str]:
    for name in TABS:
        await go(page, name)
        yield name
    await go(page, "conversations")
    await page.locator("table a").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Conversation")
    await expect(page.locator(".timeline > li").first).to_be_visible()
    yield "one conversation"


async def test_each_tab_has_what_the_gateway_knows(opens: Opens) -> None:
    """The one test of the page that runs without `--all`, where a chromium is installed."""
    async with gateway() as client:
        await some_use(client)
        page = await opens(client.gateway.base_url)
        main = page.locator("main")
        await go(page, "overview")
        await expect(main).to_contain_text(client.gateway.base_url)
        await expect(main).to_contain_text("Last error")
        await expect(page.get_by_role("table", name="The answers that ended last").locator("tbody tr")).to_have_count(6)
        hour = page.get_by_role("slider", name="The last 60 minutes")
        await hour.focus()
        await page.keyboard.press("End")
        await expect(main.locator(".readout")).to_contain_text("errors")
        await page.get_by_role("link", name="Open its conversation").click()
        await expect(page.locator(".timeline > li.bad")).to_have_count(1)
        await go(page, "conversations")
        await expect(page.locator("tbody tr")).not_to_have_count(0)
        await page.get_by_label("Failed only").check()
        await expect(page.locator("tbody tr")).to_have_count(1)
        assert page.url.endswith("#/conversations?failed=1")
        await page.reload()
        await expect(page.get_by_label("Failed only")).to_be_checked()
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.get_by_label("Failed only").uncheck()
        await page.get_by_label("Search").fill("no such thing")
        await expect(main).to_contain_text("Nothing fits these filters.")
        await page.get_by_label("Search").fill("tool results for a parked turn")
        row = page.locator("tbody tr")
        await expect(row).to_have_count(1)
        box = await row.bounding_box()
        assert box is not None
        await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 4)  # all of it is a link
        steps = page.locator(".timeline > li")
        await expect(steps).to_have_count(2)
        await expect(steps.first).to_contain_text("lookup")
        await expect(main).to_contain_text("What was said is not kept.")
        await go(page, "usage")
        await expect(main.get_by_role("img").first).to_be_visible()
        await expect(main).to_contain_text("By client")
        await expect(page.get_by_role("table", name="Tools that models called")).to_contain_text("lookup")
        async with page.expect_download() as saved:
            await page.get_by_role("link", name="by model").click()
        assert "sim-auto," in (await (await saved.value).path()).read_text()
        await go(page, "clients")
        await expect(main).to_contain_text("POST /v1/chat/completion")
        await page.get_by_text("OpenCode", exact=True).click()
        await expect(main).to_contain_text("caretway launch opencode")
        await go(page, "models")
        await expect(main).to_contain_text("sim-think")
        await go(page, "settings/health")
        await expect(main).to_contain_text("/v1/embeddings")
        await go(page, "settings")
        await expect(main).to_contain_text("agent_url")
        await go(page, "settings/record")
        await expect(main).to_contain_text("Nothing is recorded.")


@pytest.mark.all
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (900, "light"), (1440, "dark"), (1920, "light")])
async def test_no_tab_leaves_the_screen_or_shuts_anybody_out(opens: Opens, width: int, scheme: str) -> None:
    async with gateway() as client:
        await some_use(client)
        page = await opens(client.gateway.base_url, viewport={"width": width, "height": 800}, color_scheme=scheme)
        back = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (max(map(int, back[4:-1].split(", "))) < 60) == (scheme == "dark")
        async for name in all_tabs(page):
            await page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true })")
            assert await outside(page) == [], name
            if width < 1440:  # in both schemes; it takes time
                assert await violations(page) == [], name


@pytest.mark.all
async def test_tables_fit_at_each_width(opens: Opens) -> None:
    """With cells as wide as a long conversation and a waiting turn make them."""
    async with gateway() as client:
        await some_use(client)
        long: dict[str, Any] = {"role": "user", "content": f"sim: say ready\n{'word ' * 60_000}"}
        said = await client.chat([long], model="composer-2.5")
        await client.chat([long, said.message, {"role": "user", "content": "sim: say go"}], model="composer-2.5")
        await client.chat([{"role": "user", "content": LOOK_UP}], model="composer-2.5", tools=[tool("lookup", "key")])
        page = await opens(client.gateway.base_url)
        for name in ("overview", "conversations", "usage", "models"):
            await go(page, name)
            await page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true })")
            for width in (360, 600, 768, 900, 1000, 1200):
                await page.set_viewport_size({"width": width, "height": 800})
                assert await outside(page) == [], (name, width)


@pytest.mark.all
async def test_a_tool_loop_of_the_openai_sdk_is_seen_live(opens: Opens) -> None:
    async with gateway() as client, AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="local") as openai:
        page = await opens(client.gateway.base_url)
        turns = live_turns(page)
        await expect(page.locator("main")).to_contain_text("Nothing is running.")
        messages: list[Any] = [{"role": "user", "content": 'sim: call lookup {"key": "1"}\n' * 3 + "sim: hang"}]
        tools: list[Any] = [tool("lookup", "key")]
        for step in range(3):
            answer = await openai.chat.completions.create(model="sim-auto", messages=messages, tools=tools)
            message = answer.choices[0].message
            assert message.tool_calls
            await expect(turns).to_have_count(1)
            await expect(turns).to_contain_text("waiting for a tool")
            await expect(turns.locator("code")).to_have_text("lookup")
            await expect(turns).to_contain_text("fresh" if step == 0 else "resumed")
            messages += [
                message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": f"result {step}"},
            ]
        last = asyncio.ensure_future(openai.chat.completions.create(model="sim-auto", messages=messages, tools=tools))
        await expect(turns).to_contain_text("running")
        await turns.get_by_role("button", name="Cancel").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel the turn").click()
        await expect(page.locator("main")).to_contain_text("Nothing is running.")
        last.cancel()
        await asyncio.wait([last])


@pytest.mark.all
async def test_live_turns_are_shown_where_the_ledger_cannot_be_read(opens: Opens, tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").mkdir()
    async with gateway(data_dir=tmp_path) as client:
        await client.chat(LOOK_UP, tools=[tool("lookup", "key")])
        page = await opens(client.gateway.base_url)
        await expect(page.locator("main")).to_contain_text("The ledger cannot be read")
        await expect(live_turns(page)).to_contain_text("lookup")


@pytest.mark.all
async def test_the_playground_streams_thinks_calls_and_counts(opens: Opens) -> None:
    async with gateway() as client:
        page = await opens(f"{client.gateway.base_url}/#/playground")
        answer = page.locator(".said.model").last
        await page.get_by_label("Model").select_option("sim-think")
        await page.get_by_label("Message").fill("sim: think let me see\nsim: say it begins\nsim: hang")
        await page.keyboard.press("Control+Enter")
        await expect(answer).to_contain_text("it begins")  # long before its end, which never comes
        await expect(answer.locator("details")).to_contain_text("let me see")
        await page.get_by_role("button", name="Stop").click()
        await expect(answer).to_contain_text("Stopped.")

        await page.get_by_role("button", name="New conversation").click()
        await page.get_by_text("Tools", exact=True).click()
        await page.get_by_label("Offer these tools").check()
        await page.get_by_label("Message").fill('sim: call get_weather {"city": "Bonn"}\nsim: result')
        await page.get_by_role("button", name="Send").click()
        await expect(answer).to_contain_text('{"city":"Bonn"}')
        await page.get_by_label("Result of get_weather").fill("rain & <b>wind</b>")
        await page.get_by_role("button", name="Send the result").click()
        await expect(page.locator(".said.model").last).to_contain_text("rain & <b>wind</b>")
        foot = page.locator(".said.model").last.locator(".foot")
        await expect(foot).to_contain_text("resumed")
        await expect(foot).to_contain_text(" in")
        await expect(foot).to_contain_text("first token after")

        await page.get_by_label("Message").fill("it's me")
        code = page.locator("pre").last
        await expect(code).to_contain_text(f"curl -N {client.gateway.base_url}/v1/chat/completions")
        await expect(code).to_contain_text("it'\\''s me")
        await page.get_by_role("button", name="Python").click()
        await expect(code).to_contain_text("from openai import OpenAI")
        compile(await code.inner_text(), "the page", "exec")
        await page.get_by_role("button", name="TypeScript").click()
        await expect(code).to_contain_text('import OpenAI from "openai"')

        await page.get_by_label("Message").fill("sim: fail usage_limit")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_be_visible()


@pytest.mark.all
async def test_the_page_comes_back_after_a_restart(opens: Opens) -> None:
    port = free_port()
    async with simulated() as (simulator, upstream):
        async with gateway_to(simulator, upstream, port=port) as client:
            page = await opens(client.gateway.base_url)
            await expect(page.locator("#state")).to_contain_text("live")
        await expect(page.locator("#banners")).to_contain_text("The gateway does not answer.")
        await expect(page.locator("#state")).to_contain_text("no connection")
        assert await violations(page) == []
        async with gateway_to(simulator, upstream, port=port) as client:
            await expect(page.locator("#banners")).not_to_contain_text("The gateway does not answer.")
            await expect(page.locator("#state")).to_contain_text("live")
            called = await client.chat(LOOK_UP, tools=[tool("lookup", "key")])
            assert called.calls
            await expect(live_turns(page)).to_contain_text("waiting for a tool")
            await page.get_by_role("button", name="Cancel the turn").click()  # with the token of the new process
            await page.get_by_role("dialog").get_by_role("button", name="Cancel the turn").click()
            await expect(page.locator("main")).to_contain_text("Nothing is running.")


@pytest.mark.all
async def test_a_key_is_typed_once_and_signs_out(opens: Opens) -> None:
    async with gateway(gateway_key=KEY) as client:
        url = client.gateway.base_url
        page = await opens(url)
        form = page.locator("form")
        await expect(form).to_contain_text("This gateway asks for a key")
        assert await violations(page) == []
        await page.get_by_label("Key").fill("cw-wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert").locator(".error")).to_be_visible()
        await page.get_by_label("Key").fill(KEY)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")

        (cookie,) = await page.context.cookies()
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and KEY not in cookie["value"]
        assert await page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
        in_page = "async (path) => (await fetch(path)).status"
        assert await page.evaluate(in_page, "/caretway/v1/now") == 200
        assert await page.evaluate(in_page, "/v1/models") == 401, "it opens the page and nothing else"
        forged = "async () => (await fetch('/caretway/v1/turns/x', {method: 'DELETE'})).status"
        assert await page.evaluate(forged) == 403, "a change needs the token, too"

        await page.reload()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        asked: list[str] = []
        page.on("response", lambda answer: asked.append(answer.url) if answer.status >= 400 else None)
        for wrong in ("a%2fb", "..", "%zz"):
            await page.goto(f"{url}/#/conversations/{wrong}")
            await expect(page.locator("main")).to_contain_text("No such conversation.")
        assert asked == [], "an id that cannot be one is not asked for"
        await page.goto(f"{url}/#/conversations/0123456789ab")
        await expect(page.locator(".content .error")).to_contain_text("no such conversation")
        await page.evaluate("new Promise((done) => setTimeout(done, 300))")
        assert len(asked) == 1, "a wrong id is asked for once"
        other = await page.context.new_page()
        await other.goto(f"{url}/#/usage")
        await expect(other.get_by_role("heading", level=1)).to_have_text("Usage")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Key")).to_be_focused()
        await expect(other.get_by_label("Key")).to_be_visible()
        stolen = {"cookie": f"{cookie['name']}={cookie['value']}"}
        assert (await client.http.get("/caretway/v1/now", headers=stolen)).status_code == 401


@pytest.mark.all
async def test_another_key_asks_to_sign_in_again(opens: Opens, tmp_path: Path) -> None:
    port = free_port()
    async with simulated() as (simulator, upstream):
        async with gateway_to(simulator, upstream, port=port, gateway_key=KEY, data_dir=tmp_path) as client:
            page = await opens(client.gateway.base_url)
            await sign_in(page, KEY)
        async with gateway_to(simulator, upstream, port=port, gateway_key=KEY, data_dir=tmp_path):
            await expect(page.locator("#state")).to_contain_text("live")  # the same key: still signed in
            await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        async with gateway_to(simulator, upstream, port=port, gateway_key=KEY + "-new", data_dir=tmp_path):
            await expect(page.locator("form")).to_contain_text("You were signed out.")
            await sign_in(page, KEY + "-new")


@pytest.mark.all
async def test_by_keyboard_alone(opens: Opens) -> None:
    async with gateway() as client:
        await some_use(client)
        page = await opens(client.gateway.base_url)
        await expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(len(IN_THE_BAR))
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("Skip to the content")).to_be_focused()
        for _ in range(2):
            await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Conversations", exact=True)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Conversations")
        await expect(page.locator("main")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.type("lookup no")
        await expect(page.get_by_label("Search")).to_have_value("lookup no")
        await page.get_by_label("Search").fill("")
        await page.locator("table a").first.focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Forget").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("button", name="Forget")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Conversations")


@pytest.mark.all
async def test_aliases_content_and_recordings_are_switched_here(opens: Opens, tmp_path: Path) -> None:
    config = tmp_path / "caretway.toml"
    config.write_text("")
    async with gateway(config=config) as client:
        page = await opens(f"{client.gateway.base_url}/#/settings?q=model_aliases")
        main = page.locator("main")
        await page.get_by_text("Change", exact=True).click()
        await page.get_by_label("New value of model_aliases").fill("mine")
        await page.get_by_role("button", name="Save").click()
        await expect(main.get_by_role("alert").locator(".error")).to_be_visible()
        await page.get_by_label("New value of model_aliases").fill("mine=sim-fast")
        await page.get_by_role("button", name="Save").click()
        await expect(main.locator(".value")).to_contain_text("mine=sim-fast")
        assert "sim-fast" in config.read_text()

        await go(page, "settings/record")
        await page.get_by_role("button", name="Keep content").click()
        await expect(page.get_by_role("button", name="Do not keep content")).to_be_visible()
        await page.get_by_role("button", name="Record for 5 min").click()
        await expect(page.locator("#banners")).to_contain_text("Recording")
        answer = await client.chat("sim: say <i>kept</i>", model="mine")
        assert answer.headers["x-caretway-model"].startswith("sim-fast")
        await main.get_by_role("button", name="Show the script").click()
        await expect(main.locator("pre")).to_contain_text("sim: say <i>kept</i>")
        async with page.expect_download() as saved:
            await main.get_by_role("link", name="Save the script").click()
        assert "sim: say" in (await (await saved.value).path()).read_text()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#banners")).not_to_contain_text("Recording")
        await go(page, "conversations")
        await page.locator("table a").first.click()
        await expect(page.locator(".said")).to_contain_text("<i>kept</i>")


@pytest.mark.all
async def test_simulated_answers_are_said_loudly(opens: Opens, tmp_path: Path) -> None:
    async with Gateway(Settings(port=0, backend="simulator", data_dir=tmp_path)) as running:
        page = await opens(running.base_url)
        for name in TABS:
            await go(page, name)
            await expect(page.locator(".banner.loud")).to_contain_text("Simulated answers.")


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key").fill(key)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
