"""The parts of the dashboard's API and the helpers of its handlers: queries, bodies, missing objects."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from ..accounts.catalogue import ModelCatalogue
from ..api.dashboard_access import DashboardAccess
from ..api.page_files import PageFiles
from ..api.routes import HttpCall
from ..api.tenant import Tenant
from ..config import Settings
from ..core.errors import ErrorKind, GatewayError, bad_request
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
        """`mark` differs if the answer may have changed."""
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
