"""Builds the page from settings: its files, door, notes, snapshots, event stream and API.

Where every client brings an account of its own there is no page: it would show one of them what others do.
"""

from collections.abc import Mapping
from pathlib import Path

from . import page
from .config import Settings
from .core.errors import GatewayError
from .keys.key_book import KeyBook
from .ledger.ledger_file import FILE_NAME
from .ledger.prices import PriceList, read_prices
from .page.api import PageApi
from .page.books import LedgerBooks
from .page.feed import Feed
from .page.notes import PageNotes
from .page.now import GatewayFacts, Now
from .web.access import Access
from .web.page_door import PageDoor
from .web.page_files import PageFiles
from .web.tenant import Tenant


def build_page(
    settings: Settings, access: Access, keys: KeyBook, tenant: Tenant, facts: GatewayFacts, notes: PageNotes
) -> PageApi:
    """Of a gateway with one account."""
    door = PageDoor(access, keys)
    now = Now(facts, tenant, notes)

    def allowed(headers: Mapping[str, str]) -> bool:
        try:
            door.visitor(headers)
        except GatewayError:
            return False
        return True

    def look() -> dict[str, object]:
        now.look()
        return now.snapshot()

    def marks() -> dict[str, object]:
        ended, refused = notes.responses, notes.refusals_told
        return {"conversations": ended, "usage": ended, "models": ended, "clients": (ended, refused), "health": refused}

    ledger = settings.data_dir / FILE_NAME if settings.ledger_max_age else None
    return PageApi(
        tenant=tenant,
        files=PageFiles(Path(page.__file__).parent / "static"),
        door=door,
        now=now,
        feed=Feed(look, marks, allowed, lambda: (door.changes, id(keys.current()))),
        books=LedgerBooks(ledger, PriceList(read_prices(settings.prices or {})).find),
    )
