"""The dashboard's API: the parts that its handlers use, its paths below `/caretway/v1` and their descriptions for
`/openapi.json`. `api/dashboard_access.py` checks access before a handler runs; `tabs` makes the answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from ..accounts.catalogue import ModelCatalogue
from ..api.dashboard_access import DashboardAccess
from ..api.page_files import PageFiles
from ..api.routes import HttpCall, Route
from ..api.tenant import AccountUse, Tenant
from ..config import Settings
from ..core.errors import ErrorKind, GatewayError, bad_request
from ..dialects import Operation
from ..usage.charges import Budgets
from ..usage.key_file import KeyRegistry
from ..usage.ledger import Ledger
from ..usage.prices import PriceList, read_prices
from ..usage.writing import FILE_NAME
from .books import LedgerReader
from .content import KeptContent
from .feed import Feed, Marks
from .notes import PageNotes
from .now import GatewayFacts, Now
from .settings import RunningSettings

if TYPE_CHECKING:
    from ..mcp.bridge import McpBridge

BASE: Final = "/caretway/v1"
_encode: Final = msgspec.json.Encoder().encode


def routes(page: "PageApi | None") -> tuple[Route, ...]:
    """The routes. `page` None makes them for the description only."""
    return tuple(
        Route(
            path,
            {method: operation for method, (operation, _) in methods.items()},
            partial(_dispatch, page, {method: handler for method, (_, handler) in methods.items()}),
            prefixed=False,
            account=AccountUse.NONE,
            keyless=frozenset({*methods, "HEAD"}) if path in _KEYLESS else frozenset(),
            dialect="openai_chat" if path == TRY else "",
            page=True,
        )
        for path, methods in _ROWS.items()
    )


Handler = Callable[["PageApi", HttpCall], Awaitable[object]]
"""Returns the value to send as JSON, or None if it has sent the response itself."""


async def _dispatch(page: "PageApi | None", handlers: Mapping[str, str], call: HttpCall) -> None:
    from . import tabs  # imported when a dashboard is opened

    assert page is not None
    method = "GET" if call.request.method == "HEAD" else call.request.method
    handler: Handler = getattr(tabs, handlers[method])
    answer = await handler(page, call)
    if answer is not None:
        call.response.send(200, _encode(answer), [*call.headers, tabs.NOT_KEPT])


# ---- the table

TRY: Final = f"{BASE}/try"
_KEYLESS: Final = frozenset({"/page/{name}", f"{BASE}/session"})


_ROWS: Final[dict[str, dict[str, tuple[Operation, str]]]] = {
    "/page/{name}": {"GET": (Operation("pageFile", "A file of the dashboard", "The file", schema=""), "file")},
    f"{BASE}/session": {
        "GET": (
            Operation("pageSession", "Whether you have access to the dashboard", "The CSRF token"),
            "seen_session",
        ),
        "POST": (Operation("signIn", "Sign in to the dashboard with a key", "A cookie", body="PageKey"), "sign_in"),
        "DELETE": (Operation("signOut", "Sign out of the dashboard", "The cookie is gone"), "sign_out"),
    },
    f"{BASE}/now": {"GET": (Operation("now", "What the gateway does now", "Backend, account, live turns"), "now")},
    f"{BASE}/overview": {
        "GET": (Operation("overview", "The last hour, the newest answers, today's cost", "By minute"), "overview")
    },
    f"{BASE}/events": {
        "GET": (Operation("pageEvents", "Changes, as server-sent events", "The stream", schema=""), "events")
    },
    f"{BASE}/turns/{{id}}": {
        "DELETE": (Operation("cancelTurn", "Cancel a live turn, by its id or a call's", "It is cancelled"), "cancel")
    },
    f"{BASE}/conversations": {
        "GET": (
            Operation("conversations", "Conversations of the ledger", "The list, the newest first"),
            "conversations",
        )
    },
    f"{BASE}/conversations/{{id}}": {
        "GET": (Operation("conversation", "One conversation, step by step", "Its steps and runs"), "conversation"),
        "DELETE": (Operation("forgetConversation", "Forget a conversation", "How much was forgotten"), "forget"),
    },
    f"{BASE}/usage": {
        "GET": (Operation("usage", "What was used, and how much of the budgets", "Totals and budgets"), "usage")
    },
    f"{BASE}/usage/export": {"GET": (Operation("usageExport", "The same totals as CSV", "Lines", schema=""), "export")},
    f"{BASE}/clients": {"GET": (Operation("clients", "Known clients, and those seen lately", "Both lists"), "clients")},
    f"{BASE}/models": {"GET": (Operation("pageModels", "Models, aliases, what was asked for", "The list"), "models")},
    f"{BASE}/health": {"GET": (Operation("pageHealth", "What is found, refused, recovered", "Findings"), "health")},
    f"{BASE}/mcp/{{name}}/restart": {
        "POST": (Operation("restartServer", "Start an MCP server again", "It is being started"), "restart")
    },
    f"{BASE}/settings": {
        "GET": (Operation("settings", "Settings, and where they come from", "All of them"), "settings")
    },
    f"{BASE}/settings/{{name}}": {
        "PUT": (Operation("changeSetting", "Change aliases or budgets", "The setting", body="PageValue"), "change")
    },
    f"{BASE}/content": {
        "GET": (Operation("content", "Whether content is kept", "The switch"), "content"),
        "PUT": (Operation("keepContent", "Keep content, or not", "The switch", body="PageKeep"), "content"),
    },
    f"{BASE}/record": {
        "GET": (Operation("recordings", "Recorded conversations", "The list, and until when"), "record"),
        "PUT": (Operation("record", "Record for some seconds; 0: not", "The same", body="PageSeconds"), "record"),
    },
    f"{BASE}/record/{{id}}": {
        "GET": (Operation("script", "A recorded conversation as a simulator script", "Lines", schema=""), "script")
    },
    TRY: {
        "POST": (
            Operation("try", "Ask a model from the dashboard", "A chat completion", body="ChatRequest", turn=True),
            "playground",
        )
    },
}


# ---- what handlers use

STATIC: Final = Path(__file__).parent / "static"
MAX_BODY: Final = 64 * 1024
MAX_QUERY_FIELDS: Final = 20


class LastLook:
    """Caches the last answer for all requests until its mark changes."""

    def __init__(self) -> None:
        self._mark: object = None
        self._answer = b""
        self._making = asyncio.Lock()

    async def answer(self, mark: Callable[[], object], make: Callable[[], Awaitable[object]]) -> msgspec.Raw:
        """The answer as JSON, made again only if `mark` returns another value than at the last answer."""
        async with self._making:
            if (now := mark()) != self._mark:
                self._answer = msgspec.json.encode(await make())
                self._mark = now
            return msgspec.Raw(self._answer)

    def drop(self) -> None:
        self._mark = None


class PageApi:
    """The parts of a gateway with one account that the dashboard's handlers use."""

    def __init__(
        self,
        settings: Settings,
        facts: GatewayFacts,
        tenant: Tenant,
        models: ModelCatalogue,
        *,
        access: DashboardAccess,
        keys: KeyRegistry,
        budgets: Budgets,
        ledger: Ledger | None,
        notes: PageNotes,
        content: KeptContent,
        forget_stored: Callable[[str], Awaitable[int]],
        mcp: "McpBridge | None",
        cluster: Callable[[], object],
    ) -> None:
        """`forget_stored` deletes a conversation from its store and returns the number of deleted items. `cluster`
        returns the gateways of a cluster, or None without a cluster."""
        self.settings = settings
        self.tenant = tenant
        self.models = models
        self.files = PageFiles(STATIC)
        self.access = access
        self.budgets = budgets
        self.notes = notes
        self.content = content
        self.forget_stored = forget_stored
        self.mcp = mcp
        self.now = Now(facts, tenant, notes, content, cluster)
        self.feed = Feed(self.now.renewed, self.marks, access.admits, self._access_mark)
        path = settings.data_dir / FILE_NAME if settings.ledger_max_age else None
        self.books = LedgerReader(path, PriceList(read_prices(settings.prices or {})).find, ledger)
        self.running = RunningSettings(settings, models, budgets)
        self._keys = keys
        self._ledger = ledger
        self.overview = LastLook()

    def switch(self, facts: GatewayFacts, tenant: Tenant, models: ModelCatalogue) -> None:
        """Shows the account of a new sign-in."""
        self.tenant = tenant
        self.models = self.running.models = models
        self.now.switch(facts, tenant)

    def named_keys(self) -> list[str]:
        return [key.name for key in (self._keys.current() or {}).values()]

    def marks(self) -> Marks:
        ended = self.notes.responses
        written = 0 if self._ledger is None else self._ledger.written  # written after the response has ended
        read = ended, self.notes.refusals_noted, written
        rows = dict.fromkeys(("overview", "usage", "clients", "health"), read)
        return rows | {"conversations": (ended, written), "models": ended}

    def _access_mark(self) -> object:
        return self.access.changes, id(self._keys.current())


def query(call: HttpCall) -> dict[str, str]:
    try:
        return dict(parse_qsl(call.request.query, max_num_fields=MAX_QUERY_FIELDS))
    except ValueError:
        raise bad_request("The query has too many fields.") from None


def body(call: HttpCall, kind: type[Any]) -> Any:
    data = call.request.take_body()
    if len(data) > MAX_BODY:
        raise GatewayError(ErrorKind.TOO_LARGE, f"The dashboard's API takes {MAX_BODY} bytes.")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise bad_request(f"The body does not fit: {wrong}.") from None


def no_such(what: str) -> GatewayError:
    return GatewayError(ErrorKind.NOT_FOUND, f"There is no such {what}.", hint="It may be over; look again.")
