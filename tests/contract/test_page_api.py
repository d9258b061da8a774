"""The page's API on real sockets: who may ask, what a tool loop looks like while it runs and afterwards, what the event
stream tells, and that hostile words stay what they are.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from caretway.dashboard import feed
from caretway.dashboard.feed import MAX_READERS
from caretway.usage.key_file import KeyFile, added, revoked
from contract.gateways import CHAT, Client, gateway, result, streamed, tool

BASE = "/caretway/v1"
KEY = "cw-the-key-of-this-test"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("read", "bash")
]


async def token(client: Client) -> dict[str, str]:
    return {"x-caretway-csrf": (await client.http.get(f"{BASE}/session")).json()["csrf"]}


async def get(client: Client, path: str, **query: Any) -> Any:
    answer = await client.http.get(BASE + path, params=query or None)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


class Events:
    """An event stream as a browser reads it."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, Any]:
        name, data = "", ""
        async for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            elif not line and name:
                return name, json.loads(data)
        return "end", None

    async def until(self, name: str, is_it: Any = lambda data: True) -> Any:
        while True:
            found, data = await self.next()
            assert found != "end", f"no {name} came"
            if found == name and is_it(data):
                return data


@asynccontextmanager
async def events(client: Client, **headers: str) -> AsyncIterator[Events]:
    async with client.http.stream("GET", f"{BASE}/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Events(response)


# ---- access


async def test_without_a_key_everything_is_open_and_changes_need_the_token() -> None:
    async with gateway() as client:
        session = await get(client, "/session")
        assert session["key_required"] is False
        assert session["signed_in"] is True
        gone = f"{BASE}/turns/nobody"
        assert (await client.http.delete(gone)).json()["error"]["code"] == "csrf_wrong"
        assert (await client.http.delete(gone, headers={"x-caretway-csrf": "wrong"})).status_code == 403
        assert (await client.http.delete(gone, headers=await token(client))).status_code == 404


async def test_the_cookie_opens_the_pages_api_and_nothing_else() -> None:
    async with gateway(gateway_key=KEY) as client:
        http = client.http
        assert (await http.get(f"{BASE}/now")).status_code == 401
        assert (await http.get(f"{BASE}/session")).json() | {"version": ""} == {
            "key_required": True,
            "signed_in": False,
            "csrf": None,
            "version": "",
        }
        assert (await http.post(f"{BASE}/session", json={"key": "cw-wrong-wrong-wrong"})).status_code == 401
        signed_in = await http.post(f"{BASE}/session", json={"key": KEY})
        cookie = signed_in.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/caretway/"))
        assert KEY not in cookie
        assert (await get(client, "/now"))["backend"]["name"] == "agent"
        for unknown in ("/conversations/a", "/conversations/a%2fb", "/nothing"):
            assert (await http.get(BASE + unknown)).status_code == 404, "a 401 would sign the page out"
            assert (await http.get(BASE + unknown, headers={"cookie": ""})).status_code == 401
        assert (await http.get("/v1/models")).status_code == 401  # the cookie is no key
        everywhere = {"cookie": cookie.partition(";")[0]}
        assert (await http.get("/v1/models", headers=everywhere)).status_code == 401
        csrf = {"x-caretway-csrf": signed_in.json()["csrf"]}
        assert (await http.delete(f"{BASE}/turns/x")).status_code == 403
        assert (await http.delete(f"{BASE}/turns/x", headers=csrf)).status_code == 404
        by_key = {"authorization": f"Bearer {KEY}"}
        assert (await http.delete(f"{BASE}/turns/x", headers=by_key)).status_code == 404  # no page can send that
        assert (await http.delete(f"{BASE}/session")).json()["signed_in"] is False
        assert (await http.get(f"{BASE}/now", headers=everywhere)).status_code == 401  # also where it was kept


FOREIGN = [
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "http://trusted.example"}, 403),  # may use models, may not see the page
    ({"host": "evil.example"}, 403),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
    ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),  # typed by the user
    ({"sec-fetch-site": "same-origin"}, 200),
]


@pytest.mark.parametrize(("headers", "status"), FOREIGN, ids=[" ".join(row[0].values()) for row in FOREIGN])
async def test_other_pages_see_nothing(headers: dict[str, str], status: int) -> None:
    async with gateway(allowed_origins=("http://trusted.example",)) as client:
        for path in ("/now", "/session", "/conversations"):
            assert (await client.http.get(BASE + path, headers=headers)).status_code == status


async def test_a_link_from_elsewhere_opens_the_page() -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "accept": "text/html"}
    async with gateway() as client:
        assert "<html" in (await client.http.get("/", headers=headers)).text


@pytest.mark.parametrize("key", ["", "wrong", KEY[:-1]])
async def test_a_wrong_key_says_which_one_is_wanted(key: str) -> None:
    async with gateway(gateway_key=KEY) as client:
        answer = await client.http.post(f"{BASE}/session", json={"key": key})
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
        said = answer.json()["error"]["message"]
        assert "Sign in with the value of CARETWAY_API_KEY" in said and "Give the client" not in said


async def test_forged_and_odd_cookies() -> None:
    async with gateway(gateway_key=KEY) as client:
        signed_in = await client.http.post(f"{BASE}/session", json={"key": KEY})
        name, _, value = signed_in.headers["set-cookie"].partition(";")[0].partition("=")
        who, expires, nonce, mac = value.split(".")
        client.http.cookies.clear()
        odd = [
            "",
            "x",
            "...",
            f"{who}.{int(expires) + 9}.{nonce}.{mac}",
            f"{who}.{expires}.{nonce}.{mac[:-1]}{'1' if mac.endswith('0') else '0'}",
            "é" * 9,
        ]
        for forged in odd:
            cookie = f"{name}={forged}".encode()
            answer = await client.http.get(f"{BASE}/now", headers=[(b"cookie", cookie)])
            assert answer.status_code == 401, forged


async def test_an_open_stream_ends_with_the_sign_out() -> None:
    async with gateway(gateway_key=KEY) as client:
        await client.http.post(f"{BASE}/session", json={"key": KEY})
        async with events(client) as stream:
            await stream.until("now")
            await client.http.delete(f"{BASE}/session")
            assert await stream.until("signed_out") == {}
            assert (await stream.next())[0] == "end"


# ---- the files


async def test_programs_get_json_at_the_root_and_files_have_strict_headers() -> None:
    async with gateway(gateway_key=KEY) as client:
        assert (await client.http.get("/", headers={"accept": "application/json"})).status_code == 401
        known = {"authorization": f"Bearer {KEY}"}
        assert (await client.http.get("/", headers=known)).json()["name"] == "caretway"
        assert (await client.http.get("/page/nothing.js")).status_code == 404
        for path in ("/page/..%2fapi.py", "/page/../api.py", "/page/static/index.html"):
            assert (await client.http.get(path)).status_code in (401, 404)


async def test_a_browser_gets_the_page_and_nothing_may_be_put_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><title>page</title>")
    (tmp_path / "app.js").write_text("export {}")
    (tmp_path / "notes.txt").write_text("not of the page")
    monkeypatch.setattr("caretway.dashboard.api.STATIC", tmp_path)
    async with gateway(gateway_key=KEY) as client:
        html = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        page = await client.http.get("/", headers=html)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "page</title>" in page.text
        script = await client.http.get("/page/app.js")
        for answer in (page, script):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
        same = await client.http.get("/page/app.js", headers={"if-none-match": script.headers["etag"]})
        assert (same.status_code, same.content, "content-length" in same.headers) == (304, b"", False)
        assert (await client.http.get("/page/app.js", headers={"if-none-match": '"other"'})).status_code == 200
        assert (await client.http.get("/page/notes.txt")).status_code == 404
        evil = {"host": "evil.example"}
        assert (await client.http.get("/", headers=html | evil)).status_code == 403


async def test_which_named_keys_open_the_page(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    now = time.time()
    plain, seeing = "cw-" + "a" * 40, "cw-" + "b" * 40
    file.change(lambda keys: added(keys, plain, "plain", now))
    file.change(lambda keys: added(keys, seeing, "seeing", now, page=True))
    async with gateway(data_dir=tmp_path) as client:
        refused = await client.http.post(f"{BASE}/session", json={"key": plain})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "page_not_allowed")
        by_header = await client.http.get(f"{BASE}/now", headers={"x-api-key": plain})
        assert by_header.json()["error"]["code"] == "page_not_allowed"
        assert (await client.http.get("/v1/models", headers={"x-api-key": plain})).status_code == 200
        assert (await client.http.post(f"{BASE}/session", json={"key": seeing})).status_code == 200
        async with events(client) as stream:
            await stream.until("now")
            file.change(lambda keys: revoked(keys, "seeing"))  # the cookie ends with its key
            await stream.until("signed_out")
        assert (await client.http.get(f"{BASE}/now")).status_code == 401


# ---- a tool loop, while it runs and afterwards


async def test_a_tool_loop_as_the_page_sees_it() -> None:
    asked = "sim: call read {}\nsim: call bash {}\nsim: say done"
    async with gateway() as client, events(client) as stream:
        first = await stream.until("now")
        assert (first["running"], first["parked"], first["turns"]) == (0, 0, [])
        history: list[dict[str, Any]] = [{"role": "user", "content": asked}]
        agent = {"user-agent": "opencode/1.0"}
        answer = await client.chat(history, tools=TOOLS, headers=agent)
        parked = await stream.until("now", lambda now: now["parked"])
        (turn,) = parked["turns"]
        assert (turn["state"], turn["waiting_for"], turn["client"]) == ("parked", ["read"], "opencode")
        conversation = turn["conversation"]
        while answer.calls:
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in answer.calls]
            history += [answer.message, *results]
            answer = await client.chat(history, tools=TOOLS, headers=agent)
        assert answer.text == "done"
        await stream.until("now", lambda now: not now["turns"])
        await stream.until("changed", lambda told: "conversations" in told["what"])
        while not (listed := await get(client, "/conversations"))["data"] or listed["data"][0]["responses"] < 3:
            await asyncio.sleep(0.1)
        (one,) = listed["data"]
        assert (one["id"], one["calls"], one["client"]) == (conversation, 2, "opencode")
        assert one["sessions"] == {"fresh": 1, "resumed": 2}
        assert one["saved"] > 0
        assert (one["outcome"], one["error"], one["errors"], one["opening"]) == ("end", "", {}, "")
        for query, found in (
            ("?client=opencode&model=sim-auto&period=hour", 1),
            ("?client=codex", 0),
            ("?failed=1", 0),
        ):
            assert len((await get(client, f"/conversations{query}"))["data"]) == found, query
        assert listed["choices"]["client"] == ["opencode"]
        told = await get(client, f"/conversations/{conversation}")
        assert [step["tools"] for step in told["steps"]] == [["read"], ["bash"], []]
        assert [step["session"] for step in told["steps"]] == ["fresh", "resumed", "resumed"]
        assert all(step["says"].endswith(".") for step in told["steps"])
        assert (told["client"], told["key"], told["content"]) == ("opencode", "", None)
        assert told["total"]["output"] == one["output"] > 0
        for word in ("opencode", "sim-auto", conversation[:6], "RESUMED"):
            assert len((await get(client, "/conversations", q=word))["data"]) == 1, word
        for word in ("nothing like this", "%", "_____", "' OR 1=1 --"):
            assert (await get(client, "/conversations", q=word))["data"] == [], word
        assert (await get(client, "/conversations", before=one["first_at"]))["data"] == []
        forgotten = await client.http.delete(f"{BASE}/conversations/{conversation}", headers=await token(client))
        assert forgotten.json()["forgotten"]["responses"] == 3
        assert (await get(client, "/conversations"))["data"] == []
        assert (await client.http.get(f"{BASE}/conversations/{conversation}")).status_code == 404


@pytest.mark.parametrize(("tab", "rows"), [("conversations", "data"), ("usage", "rows"), ("clients", "seen")])
async def test_a_tab_is_stale_once_more_when_its_rows_are_written(
    monkeypatch: pytest.MonkeyPatch, tab: str, rows: str
) -> None:
    """Whoever looks between an answer's end and its row sees nothing, and is told to look again."""
    monkeypatch.setattr(feed, "TICK_S", 0.01)
    async with gateway() as client, events(client) as stream:
        await client.chat("hello")
        while not (await get(client, f"/{tab}"))[rows]:
            await stream.until("changed", lambda told: tab in told["what"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_running_turn_is_cancelled_and_its_client_is_told(stream: bool) -> None:
    async with gateway() as client, events(client) as seen:
        asking = asyncio.create_task(client.chat("sim: say hello\nsim: hang", stream=stream))
        now = await seen.until("now", lambda now: now["running"])
        (turn,) = now["turns"]
        cancelled = await client.http.delete(f"{BASE}/turns/{turn['id']}", headers=await token(client))
        assert cancelled.json() == {"cancelled": True}
        answer = await asking
        assert answer.error is not None
        assert answer.error["code"] == "cancelled_by_owner"
        assert answer.error["should_retry"] is False
        await seen.until("now", lambda now: not now["turns"])


async def test_a_live_conversation_that_is_forgotten_leaves_nothing() -> None:
    """Neither the step that ended a moment ago nor the one that is cut off comes back when it is written."""
    async with gateway() as client:
        csrf = await token(client)
        await client.http.put(f"{BASE}/content", json={"keep": True}, headers=csrf)
        history: list[dict[str, Any]] = [{"role": "user", "content": "sim: call read {}\nsim: hang"}]
        answer = await client.chat(history, tools=TOOLS)
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in answer.calls]
        asking = asyncio.create_task(client.chat([*history, answer.message, *results], tools=TOOLS, stream=True))
        while not (now := await get(client, "/now"))["running"]:
            await asyncio.sleep(0.01)
        (turn,) = now["turns"]
        path = f"{BASE}/conversations/{turn['conversation']}"
        forgotten = (await client.http.delete(path, headers=csrf)).json()["forgotten"]
        assert (forgotten["turns"], forgotten["responses"], forgotten["kept"]) == (1, 1, 1)
        cut = await asking
        assert cut.error is not None and cut.error["code"] == "cancelled_by_owner"
        await client.chat("sim: say the last row of the ledger")
        while not (listed := (await get(client, "/conversations"))["data"]):
            await asyncio.sleep(0.05)
        assert turn["conversation"] not in [one["id"] for one in listed]
        assert (await client.http.get(path)).status_code == 404
        page = client.gateway._page
        assert page is not None and turn["conversation"] not in page.content and "" not in page.content


async def test_the_last_error_says_what_to_do() -> None:
    async with gateway() as client:
        await client.chat("sim: fail usage_limit")
        error = (await get(client, "/now"))["last_error"]
        assert error["status"] == 402
        assert error["message"] and error["hint"] and error["conversation"]
        while not (overview := await get(client, "/overview"))["answers"]:
            await asyncio.sleep(0.05)
        (answer,) = overview["answers"]
        assert (answer["error"], answer["message"]) == (error["code"], error["message"])
        assert overview["errors"] == [{"code": error["code"], "count": 1, "says": error["message"]}]
        step = (await get(client, f"/conversations/{error['conversation']}"))["steps"][0]
        assert (step["message"], step["hint"]) == (error["message"], error["hint"])


async def test_an_error_fades_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway() as client:
        await client.chat("sim: fail usage_limit")
        assert (await get(client, "/now"))["last_error"]
        monkeypatch.setattr("caretway.dashboard.now.ERROR_S", 0.0)
        assert (await get(client, "/now"))["last_error"] is None


async def test_a_client_lets_a_turn_go_by_the_id_of_a_call() -> None:
    async with gateway() as client:
        answer = await client.chat("sim: call read {}\nsim: say done", tools=TOOLS)
        assert (await get(client, "/now"))["parked"] == 1
        path = f"{BASE}/turns/{answer.calls[0]['id']}"
        assert (await client.http.delete(path, headers=await token(client))).json() == {"cancelled": True}
        assert (await get(client, "/now"))["turns"] == []
        assert (await client.http.delete(path, headers=await token(client))).status_code == 404


async def test_the_overview_is_made_once_for_all_who_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway() as client:
        await client.chat("sim: say hello")
        while (await get(client, "/overview"))["today"]["total"] is None or not (
            first := await get(client, "/overview")
        )["answers"]:
            await asyncio.sleep(0.05)
        page = client.gateway._page
        assert page is not None
        monkeypatch.setattr(page.books, "ask", None)  # nobody asks the ledger again
        monkeypatch.setattr("caretway.dashboard.tabs.time.time", lambda: first["at"])
        assert await get(client, "/overview") == first
        minutes = first["minutes"]
        recent = minutes[-2:]  # a minute may end meanwhile
        counted = [sum(minute[name] for minute in recent) for name in ("answers", "failed")]
        assert (len(minutes), counted) == (60, [1, 0])


async def test_tokens_a_second_while_a_model_speaks() -> None:
    async with gateway() as client, events(client) as seen:
        asking = asyncio.create_task(client.chat("sim: stream 400 20 10", stream=True))
        await seen.until("now", lambda now: now["tokens_per_second"] > 0)
        await asking
        await seen.until("now", lambda now: now["tokens_per_second"] == 0)


HOSTILE = "<script>alert(1)</script>\u2028data: x\u202e\r\nevent: now"


async def test_hostile_words_stay_text() -> None:
    async with gateway() as client, events(client) as seen:
        await seen.until("now")
        await client.http.post(CHAT, json={"model": HOSTILE, "messages": [{"role": "user", "content": "hi"}]})
        await client.http.get("/v1/<script>alert(1)</script>")
        await client.chat("hi", headers={"user-agent": "<script>/1.0"})
        told = await seen.until("changed")
        assert "conversations" in told["what"]
        raw = await client.http.get(f"{BASE}/now")
        assert raw.headers["content-type"] == "application/json"
        raw.json()


async def test_readers_are_bounded_and_cost_nothing_when_they_are_gone() -> None:
    async with gateway() as client:
        page = client.gateway._page
        assert page is not None
        async with httpx.AsyncClient(
            base_url=client.gateway.base_url, limits=httpx.Limits(max_connections=200)
        ) as http:
            open_ = [http.stream("GET", f"{BASE}/events") for _ in range(MAX_READERS)]
            for one in open_:
                assert (await one.__aenter__()).status_code == 200
            full = await http.get(f"{BASE}/events")
            assert full.json()["error"]["code"] == "too_many_readers"
            assert page.feed.readers == MAX_READERS
            for one in open_:
                await one.__aexit__(None, None, None)
        while page.feed.readers:
            await asyncio.sleep(0.01)
        assert page.feed._timer is None


async def test_a_head_of_the_stream_is_no_reader() -> None:
    async with gateway() as client:
        request = f"HEAD {BASE}/events HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
        url = httpx.URL(client.gateway.base_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(request.encode())
        async with asyncio.timeout(30):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert b"text/event-stream" in head
        assert body == b""


async def test_a_reader_that_takes_nothing_is_owed_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "TICK_S", 0.001)
    looks, changes = 0, True

    def look() -> dict[str, Any]:
        nonlocal looks
        looks += changes
        return {"at": 1.0, "look": looks, "much": "x" * 500_000}

    async with gateway() as client:
        page = client.gateway._page
        assert page is not None
        page.feed._look = look
        url = httpx.URL(client.gateway.base_url)
        slow, writer = await asyncio.open_connection(url.host, url.port, limit=1)
        writer.write(f"GET {BASE}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        while not page.feed.readers:
            await asyncio.sleep(0.001)
        (reader,) = page.feed._readers
        while reader._late is None:
            await asyncio.sleep(0.001)
        before = looks
        connection: Any = reader._writer._transport
        unsent = connection._transport.get_write_buffer_size()
        while looks < before + 50:
            await asyncio.sleep(0.001)
        changes = False
        assert connection._transport.get_write_buffer_size() <= unsent, "nothing more waits for it"
        told = b""
        async with asyncio.timeout(60):
            while f'"look":{looks},'.encode() not in told:
                told += await slow.read(1 << 20)
        seen = [int(number) for number in re.findall(rb'"look":(\d+),', told)]
        assert seen == sorted(seen) and len(seen) <= looks - 49
        writer.close()


async def test_an_open_page_does_not_hold_up_the_end() -> None:
    async with gateway(shutdown_grace=60.0) as client:
        stream = client.http.stream("GET", f"{BASE}/events")
        await stream.__aenter__()
        async with asyncio.timeout(30):
            await client.gateway.__aexit__(None, None, None)


# ---- the other tabs


async def test_usage_by_kind_adds_up() -> None:
    """A conversation, its title, its sub-agent in two steps, and a summary."""
    call: dict[str, Any] = {"model": "sim-auto", "tools": [tool("look", "key")]}
    async with gateway() as client:
        await client.chat(
            [{"role": "system", "content": "You are a title generator."}, {"role": "user", "content": "x"}]
        )
        await client.chat("sim: say hello")
        parent = {"x-parent-session-id": "ses_1"}
        said = [{"role": "user", "content": 'sim: call look {"key": "a"}\nsim: say done'}]
        asked = await client.chat(said, headers=parent, **call)
        said += [asked.message, result(asked.calls[0], "seen")]
        assert (await client.chat(said, headers=parent, **call)).text == "done"
        trigger = [{"role": "user", "content": "sim: say hello"}, {"type": "compaction_trigger"}]
        await client.http.post("/v1/responses", json={"model": "sim-auto", "input": trigger})
        while (told := await get(client, "/usage", by="kind"))["total"]["responses"] < 5:
            await asyncio.sleep(0.1)
        counted = {row["group"]: (row["responses"], row["runs"]) for row in told["rows"]}
        assert counted == {"title": (1, 1), "turn": (1, 1), "subagent": (2, 1), "compaction": (1, 1)}
        for name in ("runs", "input", "cache_read", "output"):
            assert sum(row[name] for row in told["rows"]) == told["total"][name]


async def test_usage_by_every_group_and_the_budgets() -> None:
    async with gateway(budgets=("runs=10/day", "conversation.tokens=2M")) as client:
        for _ in range(3):
            await client.chat("sim: say hello", headers={"user-agent": "opencode/1.0"})
        while (await get(client, "/usage", by="client"))["total"]["responses"] < 3:
            await asyncio.sleep(0.1)
        for by, group in {
            "model": "sim-auto",
            "client": "opencode",
            "key": "",
            "reason": "fresh: first message",
            "kind": "turn",
        }.items():
            (row,) = (await get(client, "/usage", by=by, period="today"))["rows"]
            assert (row["group"], row["responses"], row["runs"]) == (group, 3, 3), by
        told = await get(client, "/usage")
        assert told["by"] == "day" and len(told["rows"]) == 1
        runs, conversation = told["budgets"]
        assert (runs["spent"], runs["limit"], runs["share"]) == (3, 10, 0.3)
        assert "3 of 10 runs today" in runs["says"]
        assert conversation["spent"] is None
        today = await get(client, "/usage", by="hour", period="today")
        assert today["rows"][0]["group"] == today["slots"][-1] and sum(row["runs"] for row in today["rows"]) == 3
        week = await get(client, "/usage", by="day")
        assert len(week["slots"]) == 7 and week["slots"][-1] == week["rows"][-1]["group"]
        assert (await get(client, "/usage", by="tool"))["rows"] == []
        lines = (await client.http.get(f"{BASE}/usage/export", params={"by": "client"})).text.splitlines()
        assert lines[0].startswith("client,responses,") and lines[1].startswith("opencode,3,")
        for query in ({"by": "colour"}, {"period": "tomorrow"}):
            assert (await client.http.get(f"{BASE}/usage", params=query)).status_code == 400


async def test_clients_what_to_paste_and_their_mistakes() -> None:
    async with gateway(gateway_key=KEY) as client:
        known = {"authorization": f"Bearer {KEY}", "user-agent": "opencode/1.0"}
        client.http.headers["authorization"] = f"Bearer {KEY}"
        await client.http.get("/v1/chat/completion", headers=known)
        await client.http.get("/v1/models", headers=known | {"authorization": "Bearer cw-wrong-wrong-wrong"})
        told = await get(client, "/clients")
        assert KEY not in json.dumps(told)
        rows = {row["name"]: row for row in told["clients"]}
        assert rows["opencode"]["launch"] == "caretway launch opencode"
        assert all(row["paste"] and all(part["text"] for part in row["paste"]) for row in rows.values())
        assert client.gateway.base_url in rows["opencode"]["paste"][0]["text"]
        assert "$CARETWAY_API_KEY" in rows["qwen"]["paste"][0]["text"]
        (seen,) = [row for row in told["seen"] if row["client"] == "opencode"]
        assert {mistake["status"] for mistake in seen["mistakes"]} == {401, 404}
        assert all(mistake["says"] for mistake in seen["mistakes"])


async def test_models_and_what_was_asked_for() -> None:
    async with gateway(model_aliases={"quick": "sim-fast"}) as client:
        await client.chat("sim: say hello", model="quick")
        told = await get(client, "/models")
        assert told["aliases"] == {"quick": "sim-fast"}
        assert {"sim-auto", "sim-fast"} <= {model["id"] for model in told["data"]}
        (asked,) = told["asked"]
        assert (asked["asked"], asked["taken"], asked["count"]) == ("quick", "sim-fast", 1)


async def test_health_names_what_was_refused_and_whether_an_account_answered() -> None:
    async with gateway() as client:
        for _ in range(3):
            await client.http.post("/v1/embeddings", json={})
        told = await get(client, "/health")
        (refused,) = told["refused"]
        assert (refused["status"], refused["count"]) == (404, 3)
        assert {"data directory", "ledger", "backend", "account"} <= {found["name"] for found in told["findings"]}
        assert told["mcp"] == {"enabled": False, "servers": []}
        assert told["live"]["answered"] is False
        nobody = await client.http.post(f"{BASE}/mcp/nobody/restart", headers=await token(client))
        assert nobody.status_code == 404


async def test_health_is_told_where_the_ledger_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").mkdir()
    async with gateway(data_dir=tmp_path) as client:
        told = await get(client, "/health")
        (ledger,) = [found for found in told["findings"] if found["name"] == "ledger"]
        assert not ledger["ok"] and "not a regular file" in ledger["detail"], ledger
        assert told["live"]["answered"] is False and "cannot be read" in told["live"]["says"]
        assert (await client.http.get(f"{BASE}/overview")).status_code == 500
        assert (await get(client, "/now"))["turns"] == []


async def test_aliases_and_budgets_change_at_once_and_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\nport = 0\n")
    async with gateway(config=file, origins={"port": f"file {file}"}) as client:
        http, csrf = client.http, await token(client)
        assert (await client.chat("sim: say hello", model="quick")).status == 400
        changed = await http.put(f"{BASE}/settings/model_aliases", json={"value": "quick=sim-fast"}, headers=csrf)
        assert (changed.status_code, changed.json()["origin"]) == (200, f"file {file}"), changed.text
        assert (await client.chat("sim: say hello", model="quick")).headers["x-caretway-model"] == "sim-fast"
        changed = await http.put(f"{BASE}/settings/budgets", json={"value": "runs=0/day"}, headers=csrf)
        assert changed.json()["counts"] == "now"
        assert (await client.chat("sim: say hello")).status == 402
        text = file.read_text()
        assert text.startswith("# mine\nport = 0\n") and 'budgets = ["runs=0/day"]' in text
        back = await http.put(f"{BASE}/settings/budgets", json={"value": None}, headers=csrf)
        assert (back.status_code, back.json()["origin"]) == (200, "default")
        assert (await client.chat("sim: say hello")).text == "hello"
        assert "budgets" not in file.read_text()
        rows = {row["name"]: row for row in (await get(client, "/settings"))["settings"]}
        assert rows["port"]["counts"] == "restart"
        assert {name for name, row in rows.items() if row["changeable"]} == {"model_aliases", "budgets"}


REFUSED_CHANGES = [
    ("budgets", {"value": "bananas=3"}, 400),
    ("budgets", {"value": 3}, 400),
    ("budgets", {}, 400),
    ("model_aliases", {"value": "no equals sign"}, 400),
    ("port", {"value": "1"}, 400),
    ("gateway_key", {"value": "cw-mine-mine-mine-mine"}, 400),
    ("nothing", {"value": "1"}, 404),
]


async def test_changes_that_are_refused_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    async with gateway(config=file) as client:
        csrf = await token(client)
        for name, body, status in REFUSED_CHANGES:
            answer = await client.http.put(f"{BASE}/settings/{name}", json=body, headers=csrf)
            assert answer.status_code == status, (name, answer.text)
            assert answer.json()["error"]["message"]
        assert not file.exists()
    async with gateway(config=file, origins={"budgets": "flag --budgets"}) as client:
        answer = await client.http.put(
            f"{BASE}/settings/budgets", json={"value": "runs=1"}, headers=await token(client)
        )
        assert answer.json()["error"]["code"] == "set_elsewhere"


@pytest.mark.parametrize(
    "content", [b"[budgets]\n# mine\n", b"# mine\nport = = 1\n", b"# \xff\n"], ids=["table", "broken", "not UTF-8"]
)
async def test_a_file_that_cannot_be_changed_is_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    async with gateway(config=file) as client:
        answer = await client.http.put(
            f"{BASE}/settings/budgets", json={"value": "runs=5"}, headers=await token(client)
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (409, "file_not_changed"), answer.text
        assert str(file) in error["message"] and "caretway config edit" in error["message"]
        assert file.read_bytes() == content


async def test_secrets_are_in_no_answer() -> None:
    async with gateway(gateway_key=KEY) as client:
        client.http.headers["authorization"] = f"Bearer {KEY}"
        for path in ("/now", "/settings", "/clients", "/health", "/models", "/usage", "/conversations"):
            assert KEY not in (await client.http.get(BASE + path)).text, path


# ---- content, recording, the playground


async def test_content_is_kept_only_while_that_is_switched_on() -> None:
    async with gateway() as client:
        csrf = await token(client)

        async def kept() -> list[Any]:
            listed = (await get(client, "/conversations"))["data"]
            told = [await get(client, f"/conversations/{one['id']}") for one in listed]
            return [one["content"] for one in told if one["content"] is not None]

        await client.chat("sim: say a secret")
        assert await get(client, "/content") == {"keep": False}
        await client.http.put(f"{BASE}/content", json={"keep": True}, headers=csrf)
        await client.chat("sim: say kept")
        while not (found := await kept()):
            await asyncio.sleep(0.1)
        assert [(step["said"], step["answered"]) for step in found[0]] == [("sim: say kept", "kept")]
        await client.http.put(f"{BASE}/content", json={"keep": False}, headers=csrf)
        assert await kept() == []


async def test_a_recorded_loop_plays_again_in_the_simulator() -> None:
    asked = 'please read it\nsim: think hm\nsim: say I look\\nfirst\nsim: call read {"path": "a b"}\nsim: say done'

    async def play(client: Client, text: str) -> list[Any]:
        history: list[dict[str, Any]] = [{"role": "user", "content": text}]
        seen: list[Any] = []
        while True:
            answer = await client.chat(history, tools=TOOLS)
            seen.append(
                (answer.text, [(call["function"]["name"], call["function"]["arguments"]) for call in answer.calls])
            )
            if not answer.calls:
                return seen
            history += [answer.message] + [
                {"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in answer.calls
            ]

    async with gateway() as client:
        csrf = await token(client)
        await client.chat("sim: say before")
        started = (await client.http.put(f"{BASE}/record", json={"seconds": 99999}, headers=csrf)).json()
        assert started["conversations"] == [] and started["until"] is not None
        first = await play(client, asked)
        (recorded,) = (await get(client, "/record"))["conversations"]
        assert recorded["steps"] == 2
        await client.http.put(f"{BASE}/record", json={"seconds": 0}, headers=csrf)
        await client.chat("sim: say after")
        assert len((await get(client, "/record"))["conversations"]) == 1
        script = await client.http.get(f"{BASE}/record/{recorded['id']}")
        assert script.headers["content-type"] == "text/plain; charset=utf-8"
        lines = [line for line in script.text.splitlines() if line.startswith("sim: ")]
        assert await play(client, "\n".join(lines)) == first
        forgotten = await client.http.delete(f"{BASE}/conversations/{recorded['id']}", headers=csrf)
        assert forgotten.json()["forgotten"]["kept"] == 2
        assert (await client.http.get(f"{BASE}/record/{recorded['id']}")).status_code == 404


async def test_the_playground_streams_with_the_cookie_and_the_token() -> None:
    body = {
        "model": "sim-auto",
        "stream": True,
        "messages": [{"role": "user", "content": "sim: think a\nsim: say hello"}],
    }
    async with gateway(gateway_key=KEY) as client:
        signed_in = (await client.http.post(f"{BASE}/session", json={"key": KEY})).json()
        assert (await client.http.post(f"{BASE}/try", json=body)).status_code == 403
        csrf = {"x-caretway-csrf": signed_in["csrf"]}
        async with client.http.stream("POST", f"{BASE}/try", json=body, headers=csrf) as response:
            answer = streamed(response.status_code, response.headers, await response.aread())
        assert (answer.text, answer.reasoning, answer.done) == ("hello", "a", True)
        while not (listed := await get(client, "/conversations"))["data"]:
            await asyncio.sleep(0.05)
        assert listed["data"][0]["client"] == "playground"
        assert (await client.http.post(f"{BASE}/try", json={"model": "x"}, headers=csrf)).status_code == 400
