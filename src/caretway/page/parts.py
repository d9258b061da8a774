"""What the page's API is made of, and what its handlers share: queries, bodies, an object that is not there."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from ..budgets.charges import Budgets
from ..clients.values import Surroundings
from ..core.errors import ErrorKind, GatewayError, bad_request
from ..models.catalogue import ModelCatalogue
from ..web.page_door import PageDoor
from ..web.page_files import PageFiles
from ..web.route_table import HttpCall
from ..web.tenant import Tenant
from .books import LedgerBooks
from .content import KeptContent
from .feed import Feed
from .notes import PageNotes
from .now import Now
from .settings import SettingsDesk

if TYPE_CHECKING:
    from .health import LocalFindings, McpServers

MAX_BODY: Final = 64 * 1024
MAX_QUERY_FIELDS: Final = 20


class PageApi(Struct):
    """All that the page can ask."""

    tenant: Tenant
    files: PageFiles
    door: PageDoor
    now: Now
    feed: Feed
    books: LedgerBooks
    notes: PageNotes
    content: KeptContent
    forget_stored: Callable[[str], Awaitable[int]]
    """Lets the store of conversations forget one; how much it had."""
    budgets: Budgets
    named_keys: Callable[[], Sequence[str]]
    desk: SettingsDesk
    models: ModelCatalogue
    mcp: "McpServers | None"
    local_findings: "LocalFindings"
    receipt: Callable[[], dict[str, Any] | None]
    """Of the newest `caretway prove`. Blocking."""
    around: Surroundings


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
