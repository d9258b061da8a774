"""What each path of the page's API answers: the figures come from the modules beside this one."""

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from .. import __version__
from ..budgets.budget import BudgetScope
from ..clients.values import Surroundings
from ..config import process_environment, process_home
from ..core.errors import ErrorKind, GatewayError, bad_request
from ..ledger.queries import last_answer, last_seen
from ..tasks import aside
from ..web import endpoints
from ..web.exchange import Header
from ..web.page_door import Visitor, cookie_token, set_cookie
from ..web.route_table import HttpCall
from .health import account_findings, health_told
from .local_checks import Finding, local_findings
from .parts import PageApi, body, no_such, query
from .reasons import explained
from .usage import NOTHING, by_of, prices, span_of, told_level, totals

NOT_KEPT: Final[Header] = (b"cache-control", b"no-store")
CANCELLED: Final = GatewayError(
    ErrorKind.CANCELLED,
    "The turn was cancelled by whoever runs the gateway.",
    hint="Ask again if you still want an answer.",
    code="cancelled_by_owner",
    repeatable=False,
)


class KeyGiven(Struct):
    key: str


class ValueGiven(Struct):
    value: str | None


class KeepGiven(Struct):
    keep: bool


class SecondsGiven(Struct):
    seconds: float


# ---- the page, signing in and out


async def file(page: PageApi, call: HttpCall) -> None:
    page.files.send(call.matched.params["name"], call)


def _session(page: PageApi, visitor: Visitor | None) -> dict[str, object]:
    return {
        "key_required": page.door.key_required,
        "signed_in": visitor is not None,
        "csrf": page.door.csrf(visitor) if visitor is not None else None,
        "version": __version__,
    }


async def seen_session(page: PageApi, call: HttpCall) -> object:
    try:
        visitor = page.door.visitor(call.request.headers)
    except GatewayError:
        return _session(page, None)
    return _session(page, visitor)


async def sign_in(page: PageApi, call: HttpCall) -> object:
    visitor = page.door.sign_in(body(call, KeyGiven).key)
    if visitor.token:
        cookie = set_cookie(call.request.headers, call.request.scheme, visitor.token)
        call.headers.append((b"set-cookie", cookie))
    return _session(page, visitor)


async def sign_out(page: PageApi, call: HttpCall) -> object:
    page.door.sign_out(cookie_token(call.request.headers))
    call.headers.append((b"set-cookie", set_cookie(call.request.headers, call.request.scheme, "")))
    return _session(page, Visitor() if not page.door.key_required else None)


# ---- now


async def now(page: PageApi, call: HttpCall) -> object:
    return await page.now.told()


async def events(page: PageApi, call: HttpCall) -> None:
    if call.request.method == "HEAD":  # a head, and no reader
        call.response.send(200, b"", [*call.headers, NOT_KEPT], content_type=b"text/event-stream; charset=utf-8")
        return
    page.now.look()
    await page.feed.serve(call)


async def cancel(page: PageApi, call: HttpCall) -> object:
    if not page.tenant.sessions.cancel(call.matched.params["id"], CANCELLED):
        raise no_such("turn")
    return {"cancelled": True}


# ---- conversations


def _live(page: PageApi) -> dict[str, str]:
    """Conversation -> the state of its turn; a running one counts more than one that waits."""
    views = page.tenant.sessions.turns()
    return {turn.conversation: turn.state for turn in sorted(views, key=lambda turn: turn.state == "running")}


async def conversations(page: PageApi, call: HttpCall) -> object:
    asked = query(call)
    try:
        before = float(asked["before"]) if "before" in asked else None
        limit = int(asked.get("limit", "50"))
    except ValueError:
        raise bad_request("`before` is a time in unix seconds, `limit` a number.") from None
    found = await page.books.conversations(asked.get("q", ""), before, limit)
    if found is None:
        return {"data": [], "more": False, "ledger": False}
    live = _live(page)
    data = [msgspec.to_builtins(one) | {"live": live.get(one.id), "kept": one.id in page.content} for one in found.data]
    return {"data": data, "more": found.more, "ledger": True}


async def conversation(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["id"]
    found = await page.books.timeline(name)
    if found is None:
        raise no_such("conversation in the ledger")
    for step in found.steps:
        step["says"] = explained(step["session"], step["reason"])
    told = msgspec.to_builtins(found)
    kept = page.content.told(name)
    client, key = (found.steps[-1]["client"], found.steps[-1]["key"]) if found.steps else ("", "")
    return {
        "id": name,
        "client": client,
        "key": key,
        "live": _live(page).get(name),
        **told,
        "content": kept and await aside(_encoded, kept),
    }


def _encoded(steps: list[dict[str, object]]) -> list[msgspec.Raw]:
    """Step by step: many megabytes at once would hold the interpreter."""
    return [msgspec.Raw(msgspec.json.encode(step)) for step in steps]


async def forget(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["id"]
    turns = page.tenant.sessions.forget(name, CANCELLED)
    kept = page.content.forget(name)
    stored = await page.forget_stored(name)
    responses, runs = await page.books.forget(name)
    told = {"responses": responses, "runs": runs, "turns": turns, "stored": stored, "kept": kept}
    return {"forgotten": told}


# ---- usage, clients, models


async def usage(page: PageApi, call: HttpCall) -> object:
    asked = query(call)
    now = time.time()
    span, by = span_of(asked.get("period", "week"), now), by_of(asked.get("by", "day"))
    found = await page.books.ask(lambda db: totals(db, page.books.price, span, by))
    levels = await page.budgets.levels(page.named_keys())
    counted = (BudgetScope.KEY, BudgetScope.EVERYBODY)
    return {
        "since": span.since,
        "until": span.until,
        "by": by,
        **(found or NOTHING),
        "prices": prices(),
        "budgets": [told_level(level, counted=level.budget.scope in counted) for level in levels],
        "ledger": page.books.kept,
    }


async def clients(page: PageApi, call: HttpCall) -> object:
    from .clients import SEEN_S, all_clients, seen_clients, target, with_mistakes

    models, now = await page.models.models(), time.time()
    around = Surroundings(process_home(), process_environment(), Path.exists)
    where = target(page.now.address, models, keyed=page.door.key_required)
    seen = await page.books.ask(lambda db: seen_clients(db, now)) or []
    last = await page.books.ask(lambda db: last_seen(db, now - SEEN_S)) or {}
    return {
        "url": where.url,
        "key_required": where.keyed,
        "model": where.model,
        "models": [model.id for model in where.models],
        "clients": await asyncio.to_thread(all_clients, where, around, last),
        "seen": with_mistakes(seen, page.notes.refused),
    }


async def models(page: PageApi, call: HttpCall) -> object:
    return {
        "data": [
            {
                "id": model.id,
                "name": model.name or model.id,
                "context": model.context_window,
                "max_context": model.max_window,
                "images": model.images,
                "reasoning": model.reasoning,
                "parameters": [{"name": name, "values": values} for name, values in model.parameters],
                "aliases": model.aliases,
                "stands_for": model.stands_for,
            }
            for model in await page.models.models()
        ],
        "aliases": page.models.aliases,
        "strict": page.models.strict,
        "asked": page.notes.asked,
    }


# ---- health, settings


async def health(page: PageApi, call: HttpCall) -> object:
    from ..prove.receipt import newest_receipt  # brings the cases

    status = await page.tenant.health.status()
    listed = [model for model in await page.models.models() if not model.stands_for]
    found: list[Finding] = account_findings(page.now.facts, status, len(listed))
    local = await asyncio.to_thread(local_findings, page.settings)
    receipt = await asyncio.to_thread(newest_receipt, page.settings.data_dir)

    async def answered() -> tuple[str, str, float] | None:
        return await page.books.ask(last_answer)

    return await health_told([*found, *local], page.mcp, page.notes, answered, receipt)


async def restart(page: PageApi, call: HttpCall) -> object:
    if page.mcp is None or not await page.mcp.restart(call.matched.params["name"]):
        raise no_such("MCP server")
    return {"restarting": True}


async def settings(page: PageApi, call: HttpCall) -> object:
    return {"file": str(page.running.file()), "settings": page.running.rows()}


async def change(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["name"]
    if not page.door.may_change(call.request.caller.key):
        raise GatewayError(
            ErrorKind.FORBIDDEN,
            f"The key {call.request.caller.key} has limits of its own and may not change settings.",
            hint="Use a key without limits, or type: caretway config edit",
            code="settings_not_allowed",
        )
    await page.running.change(name, body(call, ValueGiven).value)
    page.feed.mark("settings")
    return next(row for row in page.running.rows() if row["name"] == name)


# ---- content, recording, the playground


async def content(page: PageApi, call: HttpCall) -> object:
    if call.request.method == "PUT":
        page.content.keep = body(call, KeepGiven).keep
        page.feed.mark("settings")
    return {"keep": page.content.keep}


async def record(page: PageApi, call: HttpCall) -> object:
    if call.request.method == "PUT":
        page.content.record(body(call, SecondsGiven).seconds)
        page.feed.mark("record")
    return {"until": page.content.until, "conversations": page.content.recorded()}


async def script(page: PageApi, call: HttpCall) -> None:
    write = page.content.script(call.matched.params["id"])
    if write is None:
        raise no_such("recorded conversation")
    script = await aside(write)
    headers = [*call.headers, NOT_KEPT, (b"x-content-type-options", b"nosniff")]
    call.response.send(200, script.encode(), headers, content_type=b"text/plain; charset=utf-8")


async def playground(page: PageApi, call: HttpCall) -> None:
    await endpoints.turn(call)
