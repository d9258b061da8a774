"""The page's API: its paths below `/caretway/v1`, what each answers, and who signs in and out. The figures come from
the modules beside it; who may ask is decided in `web/page_door.py` before a handler is called.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from .. import __version__
from ..core.errors import ErrorKind, GatewayError, bad_request
from ..dialects.routes import Operation
from ..web.exchange import Header
from ..web.page_door import PageDoor, Visitor, cookie_token, set_cookie
from ..web.page_files import PageFiles
from ..web.route_table import HttpCall, Route
from ..web.tenant import AccountUse, Tenant
from .books import LedgerBooks
from .feed import Feed
from .now import Now
from .reasons import explained

BASE: Final = "/caretway/v1"
MAX_BODY: Final = 64 * 1024
MAX_QUERY_FIELDS: Final = 20
NOT_KEPT: Final[Header] = (b"cache-control", b"no-store")
CANCELLED: Final = GatewayError(
    ErrorKind.CANCELLED,
    "The turn was cancelled by whoever runs the gateway.",
    hint="Ask again if you still want an answer.",
    code="cancelled_by_owner",
    repeatable=False,
)
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class PageApi:
    """All that the page can ask."""

    tenant: Tenant
    files: PageFiles
    door: PageDoor
    now: Now
    feed: Feed
    books: LedgerBooks


class KeyGiven(Struct):
    key: str


def routes(page: PageApi | None) -> tuple[Route, ...]:
    """The rows. None: only for the description."""
    return tuple(
        Route(
            path,
            {method: operation for method, (operation, _) in methods.items()},
            partial(_dispatch, page, {method: handler for method, (_, handler) in methods.items()}),
            prefixed=False,
            account=AccountUse.NONE,
            keyless=frozenset({*methods, "HEAD"}) if path in _KEYLESS else frozenset(),
            page=True,
        )
        for path, methods in _ROWS.items()
    )


Handler = Callable[[PageApi, HttpCall], Awaitable[object]]
"""Returns what is told as JSON; None: it has answered itself."""


async def _dispatch(page: PageApi | None, handlers: Mapping[str, Handler], call: HttpCall) -> None:
    assert page is not None
    method = "GET" if call.request.method == "HEAD" else call.request.method
    told = await handlers[method](page, call)
    if told is not None:
        call.response.send(200, _encode(told), [*call.headers, NOT_KEPT])


def query(call: HttpCall) -> dict[str, str]:
    try:
        return dict(parse_qsl(call.request.query, max_num_fields=MAX_QUERY_FIELDS))
    except ValueError:
        raise bad_request("The query has too many fields.") from None


def body(call: HttpCall, kind: type[Any]) -> Any:
    data = call.request.take_body()
    if len(data) > MAX_BODY:
        raise GatewayError(ErrorKind.TOO_LARGE, f"The page's API takes {MAX_BODY} bytes.")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise bad_request(f"The body does not fit: {wrong}.") from None


def no_such(what: str) -> GatewayError:
    return GatewayError(ErrorKind.NOT_FOUND, f"There is no such {what}.", hint="It may be over; look again.")


# ---- the page, signing in and out


async def _file(page: PageApi, call: HttpCall) -> None:
    page.files.send(call.matched.params["name"], call)


def _session(page: PageApi, visitor: Visitor | None) -> dict[str, object]:
    return {
        "key_required": page.door.key_required,
        "signed_in": visitor is not None,
        "csrf": page.door.csrf(visitor) if visitor is not None else None,
        "version": __version__,
    }


async def _seen_session(page: PageApi, call: HttpCall) -> object:
    try:
        visitor = page.door.visitor(call.request.headers)
    except GatewayError:
        return _session(page, None)
    return _session(page, visitor)


async def _sign_in(page: PageApi, call: HttpCall) -> object:
    visitor = page.door.sign_in(body(call, KeyGiven).key)
    if visitor.token:
        cookie = set_cookie(call.request.headers, call.request.scheme, visitor.token)
        call.headers.append((b"set-cookie", cookie))
    return _session(page, visitor)


async def _sign_out(page: PageApi, call: HttpCall) -> object:
    page.door.sign_out(cookie_token(call.request.headers))
    call.headers.append((b"set-cookie", set_cookie(call.request.headers, call.request.scheme, "")))
    return _session(page, Visitor() if not page.door.key_required else None)


# ---- now


async def _now(page: PageApi, call: HttpCall) -> object:
    return await page.now.told()


async def _events(page: PageApi, call: HttpCall) -> None:
    page.now.look()
    await page.feed.serve(call)


async def _cancel(page: PageApi, call: HttpCall) -> object:
    if not page.tenant.sessions.cancel(call.matched.params["id"], CANCELLED):
        raise no_such("turn")
    return {"cancelled": True}


# ---- conversations


def _live(page: PageApi) -> dict[str, str]:
    """Conversation -> the state of its turn; a running one counts more than one that waits."""
    views = page.tenant.sessions.turns()
    return {turn.conversation: turn.state for turn in sorted(views, key=lambda turn: turn.state == "running")}


async def _conversations(page: PageApi, call: HttpCall) -> object:
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
    data = [msgspec.to_builtins(one) | {"live": live.get(one.id), "kept": False} for one in found.data]
    return {"data": data, "more": found.more, "ledger": True}


async def _conversation(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["id"]
    found = await page.books.timeline(name)
    if found is None:
        raise no_such("conversation in the ledger")
    for step in found.steps:
        step["says"] = explained(step["session"], step["reason"])
    told = msgspec.to_builtins(found)
    return {"id": name, "live": _live(page).get(name), **told, "content": None}


async def _forget(page: PageApi, call: HttpCall) -> object:
    name = call.matched.params["id"]
    turns = [turn.id for turn in page.tenant.sessions.turns() if turn.conversation == name]
    for turn in turns:
        page.tenant.sessions.cancel(turn, CANCELLED)
    responses, runs = await page.books.forget(name)
    return {"forgotten": {"responses": responses, "runs": runs, "turns": len(turns)}}


# ---- the table

_KEYLESS: Final = frozenset({"/page/{name}", f"{BASE}/session"})


def _get(name: str, summary: str, answers: str) -> Operation:
    return Operation(name, summary, answers)


_ROWS: Final[dict[str, dict[str, tuple[Operation, Handler]]]] = {
    "/page/{name}": {"GET": (Operation("pageFile", "A file of the page", "The file", schema=""), _file)},
    f"{BASE}/session": {
        "GET": (Operation("pageSession", "Whether the page is open to you", "The CSRF token, if it is"), _seen_session),
        "POST": (Operation("signIn", "Sign in to the page with a key", "A cookie", body="PageKey"), _sign_in),
        "DELETE": (Operation("signOut", "Sign out of the page", "The cookie is gone"), _sign_out),
    },
    f"{BASE}/now": {"GET": (_get("now", "What the gateway does now", "Backend, account, live turns"), _now)},
    f"{BASE}/events": {
        "GET": (Operation("pageEvents", "Changes, as server-sent events", "The stream", schema=""), _events)
    },
    f"{BASE}/turns/{{id}}": {"DELETE": (_get("cancelTurn", "Cancel a live turn", "It is cancelled"), _cancel)},
    f"{BASE}/conversations": {
        "GET": (_get("conversations", "Conversations of the ledger", "The list, the newest first"), _conversations)
    },
    f"{BASE}/conversations/{{id}}": {
        "GET": (_get("conversation", "One conversation, step by step", "Its steps and runs"), _conversation),
        "DELETE": (_get("forgetConversation", "Forget a conversation", "How much was forgotten"), _forget),
    },
}
