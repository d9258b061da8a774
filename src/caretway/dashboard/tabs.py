"""The answer of each path of the dashboard's API, with usage figures and session reasons in sentences. The other
modules of this room provide the other figures.
"""

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from .. import __version__
from ..api import routes
from ..api.dashboard_access import Visitor, cookie_token, set_cookie
from ..api.routes import HttpCall
from ..cli.clients.values import Surroundings
from ..config import home_directory, process_environment
from ..core.errors import ErrorKind, GatewayError, bad_request
from ..processes.tasks import aside
from ..server.exchange import Header
from ..sessions.live import TurnView, held_by
from ..usage.budget import BudgetScope, Level, Measure, used, whose
from ..usage.prices import AS_OF, SOURCE, FindPrice, age_days
from ..usage.queries import By, LedgerQueries, Span, Totals, last_answer, last_seen, slots
from .api import PageApi, body, no_such, query
from .health import Finding, account_findings, health_view, live_account, local_findings

NOT_KEPT: Final[Header] = (b"cache-control", b"no-store")
MAX_ROWS: Final = 400
"""The maximum number of rows: enough for the days of a year; other groups are cut to the largest."""
MAX_EXPORTED: Final = 20_000
MIN_PACE_S: Final = 3600.0
"""The shortest time from which a pace is computed: a few minutes after midnight predict nothing about the day."""
MAX_LATEST: Final = 10
MAX_CLIENTS: Final = 5
"""The number of clients in today's cost."""
MAX_TOOLS: Final = 30
MAX_UNPRICED: Final = 5
"""The number of models without a price that are named."""
PERIODS: Final = ("hour", "today", "week", "month", "all")
CANCELLED: Final = GatewayError(
    ErrorKind.CANCELLED,
    "The turn was cancelled in the dashboard.",
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
        "key_required": page.access.key_required,
        "signed_in": visitor is not None,
        "csrf": page.access.csrf(visitor) if visitor is not None else None,
        "version": __version__,
    }


async def seen_session(page: PageApi, call: HttpCall) -> object:
    try:
        visitor = page.access.visitor(call.request.headers)
    except GatewayError:
        return _session(page, None)
    return _session(page, visitor)


async def sign_in(page: PageApi, call: HttpCall) -> object:
    visitor = page.access.sign_in(body(call, KeyGiven).key)
    if visitor.token:
        cookie = set_cookie(call.request.headers, call.request.scheme, visitor.token)
        call.headers.append((b"set-cookie", cookie))
    return _session(page, visitor)


async def sign_out(page: PageApi, call: HttpCall) -> object:
    page.access.sign_out(cookie_token(call.request.headers))
    call.headers.append((b"set-cookie", set_cookie(call.request.headers, call.request.scheme, "")))
    return _session(page, Visitor() if not page.access.key_required else None)


# ---- now


async def now(page: PageApi, call: HttpCall) -> object:
    return await page.now.fresh_snapshot()


async def overview(page: PageApi, call: HttpCall) -> object:
    return await page.overview.answer(
        lambda: (page.marks()["overview"], int(time.time() // 60)), partial(_overview, page)
    )


async def _overview(page: PageApi) -> object:
    from ..usage.queries import LastHour, last_hour, latest

    now = time.time()

    def look(db: sqlite3.Connection) -> tuple[LastHour, list[dict[str, Any]], dict[str, Any]]:
        return last_hour(db, now), latest(db, MAX_LATEST), _today(db, page.books.price, now)

    found = await page.books.ask(look)
    hour, answers, today = found or (LastHour([], []), [], _NO_DAY)
    for one in answers:
        one |= _why_failed(page, one)
    newest = {error.code: error.message for error in page.notes.errors.values()}
    return {
        "at": now,
        "minutes": hour.minutes,
        "errors": [
            {"code": one.code, "count": one.count, "says": newest.get(one.code) or _meaning(one.code, one.kind)}
            for one in hour.failures
        ],
        "answers": answers,
        "today": today,
        "ledger": page.books.kept,
    }


_NO_DAY: Final[dict[str, Any]] = {"total": None, "clients": []}


def _today(db: sqlite3.Connection, price: FindPrice, now: float) -> dict[str, Any]:
    queries, span = LedgerQueries(db, price), _span_of("today", now)
    total = next(queries.totals(span, "all"), Totals())
    clients = sorted(queries.totals(span, "client", MAX_ROWS), key=lambda row: row.cents or 0.0, reverse=True)
    return {"total": _figures(total), "clients": [_figures(row) for row in clients[:MAX_CLIENTS]]}


def _why_failed(page: PageApi, row: dict[str, Any]) -> dict[str, str]:
    """The message that the client received, while it is remembered; later, a description of the error code."""
    if not row["error"]:
        return {"message": "", "hint": ""}
    error = page.notes.errors.get(row["request_id"])
    if error is None:
        return {"message": _meaning(row["error"], row["outcome"]), "hint": ""}
    return {"message": error.message, "hint": error.hint}


def _meaning(code: str, kind: str) -> str:
    return _FAILED.get(code) or _FAILED.get(kind, "")


_FAILED: Final = {
    "access_denied": "The gateway's key was missing or wrong.",
    "bad_request": "The request was malformed.",
    "cancelled_by_owner": "The turn was cancelled in the dashboard or in `caretway top`.",
    "context_too_long": "The conversation did not fit the model's context window.",
    "forbidden": "Cursor refused: plan, region, team rule or blocked model.",
    "insufficient_quota": "A budget of the gateway was used up.",
    "internal": "The gateway or Cursor failed; the gateway's log has more.",
    "model_unknown": "Cursor has no such model.",
    "overloaded": "The gateway's own limits were reached.",
    "quota": "The plan's usage was used up.",
    "rate_limited": "Cursor asked to slow down.",
    "refused": "Cursor refused and gave no reason.",
    "signed_out": "Cursor did not accept the credentials.",
    "timeout": "The answer did not come in time.",
    "tool_loop": "The model repeated one call without progress.",
    "turn_gone": "The turn was gone, and the client had forbidden to send the history again.",
    "upstream_down": "Cursor could not be reached, or the connection broke and could not be recovered.",
    "upstream_error": "Cursor reported an error.",
    "upstream_protocol": "Cursor sent something that breaks the protocol.",
}


async def events(page: PageApi, call: HttpCall) -> None:
    if call.request.method == "HEAD":  # HEAD has no reader
        call.response.send(200, b"", [*call.headers, NOT_KEPT], content_type=b"text/event-stream; charset=utf-8")
        return
    page.now.look()
    await page.feed.serve(call)


async def cancel(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["id"]
    held = held_by(name)  # a client knows the ids of its calls, not the id of its turn
    if not page.tenant.sessions.cancel(held.sid if held is not None else name, CANCELLED):
        raise no_such("turn")
    return {"cancelled": True}


# ---- conversations


def _live(page: PageApi) -> dict[str, TurnView]:
    """Maps each conversation to its turn. A running turn wins over a waiting one."""
    views = page.tenant.sessions.turns()
    return {turn.conversation: turn for turn in sorted(views, key=lambda turn: turn.state == "running")}


async def conversations(page: PageApi, call: HttpCall) -> object:
    from ..usage.conversations import Wanted

    parameters = query(call)
    try:
        before = float(parameters["before"]) if "before" in parameters else None
        limit = int(parameters.get("limit", "50"))
    except ValueError:
        raise bad_request("`before` is a time in unix seconds, `limit` a number.") from None
    wanted = Wanted(
        parameters.get("q", ""),
        parameters.get("client", ""),
        parameters.get("model", ""),
        parameters.get("key", ""),
        failed=parameters.get("failed", "") not in ("", "0"),
        since=_span_of(parameters["period"], time.time()).since if "period" in parameters else None,
        before=before,
    )
    found = await page.books.conversations(wanted, limit)
    if found is None:
        return {"data": [], "more": False, "ledger": False, "choices": {}}
    listed, choices = found
    live = _live(page)
    data = [
        msgspec.to_builtins(one)
        | {
            "live": live[one.id].state if one.id in live else None,
            "kept": one.id in page.content,
            "opening": page.content.opening(one.id),
        }
        for one in listed.data
    ]
    return {"data": data, "more": listed.more, "ledger": True, "choices": choices}


async def conversation(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["id"]
    found = await page.books.timeline(name)
    if found is None:
        raise no_such("conversation in the ledger")
    for step in found.steps:
        step["says"] = _explained(step["session"], step["reason"])
        step |= _why_failed(page, step)
    timeline = msgspec.to_builtins(found)
    kept = page.content.steps(name)
    client, key = (found.steps[-1]["client"], found.steps[-1]["key"]) if found.steps else ("", "")
    return {
        "id": name,
        "client": client,
        "key": key,
        "turn": _live(page).get(name),
        **timeline,
        "content": kept and await aside(_encoded, kept),
    }


def _encoded(steps: list[dict[str, object]]) -> list[msgspec.Raw]:
    """Encodes each step separately: encoding many megabytes at once would hold the interpreter."""
    return [msgspec.Raw(msgspec.json.encode(step)) for step in steps]


async def forget(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["id"]
    turns = page.tenant.sessions.forget(name, CANCELLED)
    kept = page.content.forget(name)
    stored = await page.forget_stored(name)
    responses, runs = await page.books.forget(name)
    page.overview.drop()
    forgotten = {"responses": responses, "runs": runs, "turns": turns, "stored": stored, "kept": kept}
    return {"forgotten": forgotten}


# ---- why a session was fresh, continued, resumed, replayed or refused

_SAYS: Final = {
    "first message": "A new conversation.",
    "fresh was asked for": "The request or the settings ask for `fresh`: the whole history was sent. "
    "Leave out `x-caretway-session: fresh`, or set session to auto.",
    "tool results for a parked turn": "The run waited for these results and went on.",
    "tool results for a parked turn; new tools wait": "The run went on; tools that were added meanwhile are offered to "
    "the next one.",
    "the transcript is known": "Only the new message was sent; Cursor had the rest.",
    "the same request was answered before": "The client repeated a request and got the same answer. If that happens "
    "often, raise the client's timeout.",
    "this backend cannot park a turn": "Every tool result starts a new run with the whole history. "
    "The backends agent and sdk keep the run waiting.",
    "this backend keeps no conversations": "Every message is sent with the whole history. "
    "The backend agent continues conversations.",
    "unknown or expired ticket": "The results came for a run that is gone: it waited too long, or the gateway was "
    "started again. Raise parked_timeout if tools take long.",
    "its replica is gone": "The gateway that held the run has died or was stopped; another one went on from its "
    "history. "
    "Stop gateways with SIGTERM, and give them time (cluster_drain).",
    "its replica is gone, and Redis is away": "The gateway that held the run is gone, and Redis could not be asked who "
    "goes on with it. Look after Redis.",
    "its replica has another version": "The gateway that held the run cannot be talked to: it has another version. "
    "This ends with the upgrade.",
    "its turn is on another replica": "The results came over a WebSocket, and another gateway held the run. "
    "It happens once after a WebSocket was opened anew.",
    "tickets of several turns": "One request had results of several runs. Answer each of them in its own conversation.",
    "several results for one ticket": "One call was answered twice with different results. Send one result for a call.",
    "the model changed": "The model was changed while a run waited. Finish the tool call first.",
    "the tools changed": "A tool was changed or removed while the run waited. Keep the list of tools while calls are "
    "open.",
    "the history changed": "The client changed the history. Some clients trim old tool results; "
    "switch that off where the cache matters.",
    "an image beside tool results": "An image came with the results, and a waiting run cannot take it. "
    "Let the tool return it.",
    "these results were given before": "These results were answered already, in another conversation. "
    "Branching a conversation replays it once.",
    "these results were given before, beside other words": "The client sent the same results again with other words: "
    "the history was replayed for a new answer.",
    "an earlier request with these results was given up": "The client hung up on its first try and asked again. "
    "Raise the client's timeout.",
    "no new message": "The history ends with the assistant. Send a user message after it.",
    "no known conversation begins like this": "The history is not one that the gateway has kept: edited, from another "
    "model or account, too old, or from before a restart without its store.",
    "the parked turn was lost": "The waiting run was lost at Cursor, and the history was replayed. "
    "If it happens often, run `caretway doctor`.",
    "compacted": "The client summarised its history, so all of it is new to Cursor.",
}
_BEGINS: Final = (
    (
        "a tool was loaded: ",
        "The client loaded a tool that the waiting run could not call. Offer it from the beginning to keep the run.",
    ),
)
_REFUSED: Final = "The request was refused before a model was asked; its error says why."


def _explained(session: str, reason: str) -> str:
    """Explains a session reason and what to change. Reasons are those of `x-caretway-session-reason`; a reason without
    a row is shown verbatim."""
    if session == "refused":
        return _REFUSED
    if (known := _SAYS.get(reason)) is not None:
        return known
    for beginning, sentence in _BEGINS:
        if reason.startswith(beginning):
            return sentence
    sentence = reason[:1].upper() + reason[1:]
    if session == "replayed":
        return f"{sentence}: the whole history was sent to a new run. `caretway usage` counts how often."
    return f"{sentence}." if sentence else ""


# ---- usage, clients, models


def _span_of(period: str, now: float) -> Span:
    """Counts days in the machine's time zone. Raises GatewayError for an unknown period."""
    midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    starts = {
        "hour": datetime.fromtimestamp(now - 3600),
        "today": midnight,
        "week": midnight - timedelta(days=6),
        "month": midnight.replace(day=1),
        "all": datetime.fromtimestamp(0),
    }
    if period not in starts:
        raise bad_request(f"`period` is one of {', '.join(PERIODS)}.", param="period")
    return Span(starts[period].timestamp(), now + 1)


def _by_of(word: str) -> By:
    if word not in get_args(By):
        raise bad_request(f"`by` is one of {', '.join((*get_args(By), 'tool'))}.", param="by")
    found: By = word  # type: ignore[assignment]  # `word` was checked above
    return found


def _figures(row: Totals) -> dict[str, Any]:
    shares = {"cached_share": row.cached_share, "saved_share": row.saved_share}
    return asdict(row) | {"tokens": row.tokens, "read": row.read, "cents": row.cents} | shares


def _totals(db: sqlite3.Connection, price: FindPrice, span: Span, by: By) -> dict[str, Any]:
    book = LedgerQueries(db, price)
    rows = list(book.totals(span, by, MAX_ROWS + 1))
    total = next(book.totals(span, "all"), Totals())
    return {
        "rows": [_figures(row) for row in rows[:MAX_ROWS]],
        "rows_left_off": len(rows) > MAX_ROWS,
        "total": _figures(total),
        "replays": [asdict(one) for one in book.replays(span)],
        "unpriced": book.unpriced(span, MAX_UNPRICED),
    }


def _pace(rows: Sequence[Totals], everybody: Totals, level: Level) -> float:
    """The amount used today in the budget's measure."""
    budget = level.budget
    if budget.scope is BudgetScope.EVERYBODY:
        day = everybody
    else:
        day = next((row for row in rows if row.group == level.name), Totals())
    match budget.measure:
        case Measure.RUNS:
            return day.runs
        case Measure.TOKENS:
            return day.tokens
        case Measure.UNCACHED:
            return day.tokens - day.cache_read
        case Measure.CENTS:
            return day.cents or 0.0


def runs_out_at(level: Level, today: float, midnight: float, now: float) -> float | None:
    """The time when the budget is used up at today's pace. None if it lasts until its reset, or if nothing was used
    today."""
    left = level.budget.limit - level.spent
    if left <= 0 or today <= 0:
        return None
    at = now + left / (today / max(MIN_PACE_S, now - midnight))
    return at if level.resets_at is None or at < level.resets_at else None


def _level_row(level: Level, *, counted: bool, runs_out: float | None = None) -> dict[str, object]:
    """A budget for the dashboard. `counted`: the budget has one count; budgets of a conversation or a run have a count
    for each conversation or run."""
    budget = level.budget
    return {
        "text": str(budget),
        "scope": budget.scope.value,
        "key": level.name,
        "measure": budget.measure.value,
        "limit": budget.limit,
        "period": budget.period.value,
        "spent": level.spent if counted else None,
        "share": level.share if counted else None,
        "low": level.low and counted,
        "resets_at": level.resets_at,
        "runs_out_at": runs_out,
        "says": f"{whose(level)}: {used(level)}" if counted else f"{whose(level)}, each",
    }


_NO_USAGE: Final[dict[str, Any]] = {
    "rows": [],
    "rows_left_off": False,
    "total": _figures(Totals()),
    "replays": [],
    "unpriced": [],
}


async def usage(page: PageApi, call: HttpCall) -> object:
    parameters = query(call)
    now = time.time()
    span = _span_of(parameters.get("period", "week"), now)
    view: dict[str, Any] = {"since": span.since, "until": span.until, "by": parameters.get("by", "day")}
    if view["by"] == "tool":
        found = await page.books.ask(lambda db: LedgerQueries(db, page.books.price).tools(span, MAX_TOOLS))
        return view | {"rows": found or [], "ledger": page.books.kept}
    by = _by_of(view["by"])
    totals = await page.books.ask(lambda db: _totals(db, page.books.price, span, by))
    return {
        **view,
        **(totals or _NO_USAGE),
        "slots": slots(span, by, MAX_ROWS),
        "prices": {"source": SOURCE, "as_of": AS_OF.isoformat(), "age_days": age_days(now)},
        "budgets": await _budgets(page, now),
        "ledger": page.books.kept,
    }


async def _budgets(page: PageApi, now: float) -> list[dict[str, object]]:
    levels = await page.budgets.levels(page.named_keys())
    if not levels:
        return []
    today = _span_of("today", now)

    def used_today(db: sqlite3.Connection) -> tuple[list[Totals], Totals]:
        queries = LedgerQueries(db, page.books.price)
        everybody = next(queries.totals(today, "all"), Totals())
        return list(queries.totals(today, "key", MAX_ROWS)), everybody

    keys, everybody = await page.books.ask(used_today) or ([], Totals())
    rows = list[dict[str, object]]()
    for level in levels:
        counted = level.budget.scope in (BudgetScope.KEY, BudgetScope.EVERYBODY)
        at = runs_out_at(level, _pace(keys, everybody, level), today.since, now) if counted else None
        rows.append(_level_row(level, counted=counted, runs_out=at))
    return rows


async def export(page: PageApi, call: HttpCall) -> None:
    from ..usage.queries import as_csv

    parameters = query(call)
    span, by = _span_of(parameters.get("period", "week"), time.time()), _by_of(parameters.get("by", "day"))

    def lines(db: sqlite3.Connection) -> str:
        return "".join(as_csv(by, LedgerQueries(db, page.books.price).totals(span, by, MAX_EXPORTED)))

    text = await page.books.ask(lines) or "".join(as_csv(by, ()))
    disposition = f'attachment; filename="caretway-usage-{parameters.get("period", "week")}-by-{by}.csv"'
    headers = [*call.headers, NOT_KEPT, (b"content-disposition", disposition.encode())]
    call.response.send(200, text.encode(), headers, content_type=b"text/csv; charset=utf-8")


async def clients(page: PageApi, call: HttpCall) -> object:
    from .clients import SEEN_S, all_clients, seen_clients, target, with_mistakes

    models, now = await page.models.models(), time.time()
    around = Surroundings(home_directory(), process_environment(), Path.exists)
    where = target(page.now.address, models, keyed=page.access.key_required)
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
        "asked": page.notes.requested,
    }


# ---- health, settings


async def health(page: PageApi, call: HttpCall) -> object:
    from ..prove.receipt import newest_receipt  # imports the cases

    status = await page.tenant.health.status()
    listed = [model for model in await page.models.models() if not model.stands_for]
    found: list[Finding] = account_findings(page.now.facts, status, len(listed))
    local = await asyncio.to_thread(local_findings, page.settings)
    receipt = await asyncio.to_thread(newest_receipt, page.settings.data_dir)

    try:
        live = live_account(await page.books.ask(last_answer), receipt)
    except GatewayError as unreadable:
        live = live_account(None, receipt) | {"says": unreadable.message}
    return health_view([*found, *local], page.mcp, page.notes, live)


async def restart(page: PageApi, call: HttpCall) -> object:
    if page.mcp is None or not await page.mcp.restart(call.matched.params["name"]):
        raise no_such("MCP server")
    return {"restarting": True}


async def settings(page: PageApi, call: HttpCall) -> object:
    return {"file": str(page.running.file()), "settings": page.running.rows()}


async def change(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["name"]
    if not page.access.may_change(call.request.caller.key):
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
    call.request.caller = replace(call.request.caller, client="playground")
    await routes.turn(call)
