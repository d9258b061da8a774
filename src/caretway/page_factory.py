"""Builds the page from settings: its files, door, snapshots, event stream and API; changes settings of the running
gateway, and its file. Where every client brings an account of its own there is no page: it would show one of them what
others do.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from . import page
from .budgets.budget import BudgetScope, parse_budgets
from .budgets.charges import Budgets
from .clients.values import Surroundings
from .config import SETTINGS, ConfigError, Settings, process_environment, process_home, settings_file
from .config.settings import BY_NAME
from .core.errors import ErrorKind, GatewayError, bad_request
from .keys.key_file import KeyBook
from .ledger.ledger import Ledger
from .ledger.ledger_file import FILE_NAME
from .ledger.prices import PriceList, read_prices
from .models.catalogue import ModelCatalogue
from .page.books import LedgerBooks
from .page.content import KeptContent
from .page.feed import Feed
from .page.notes import PageNotes
from .page.now import GatewayFacts, Now
from .page.parts import PageApi, PageModels
from .page.settings import Change, check_changeable
from .storage.private_file import write_file
from .web.access import Access
from .web.page_door import PageDoor
from .web.page_files import PageFiles
from .web.tenant import Tenant

if TYPE_CHECKING:
    from .local_checks import Finding
    from .page.health import McpServers

STATIC: Final = Path(page.__file__).parent / "static"
NOW: Final = "now"
RESTART: Final = "restart"


class PageParts(Struct, frozen=True):
    """What the page looks at, of a gateway with one account."""

    access: Access
    keys: KeyBook
    tenant: Tenant
    catalogue: ModelCatalogue
    budgets: Budgets
    mcp: "McpServers | None"
    facts: GatewayFacts
    notes: PageNotes
    content: KeptContent
    forget_stored: Callable[[str], Awaitable[int]]
    ledger: Ledger | None
    cluster: Callable[[], object]
    """What the page shows of it; None: there is none."""


def build_page(settings: Settings, parts: PageParts) -> PageApi:
    door, notes, content, keys = PageDoor(parts.access, parts.keys), parts.notes, parts.content, parts.keys

    def recording() -> object:
        until = content.until
        return None if until is None else {"until": until, "conversations": len(content.recorded())}

    now = Now(parts.facts, parts.tenant, notes, recording, parts.cluster)

    def allowed(headers: Mapping[str, str]) -> bool:
        try:
            door.visitor(headers)
        except GatewayError:
            return False
        return True

    def look() -> dict[str, Any]:
        now.look()
        return now.snapshot()

    def marks() -> dict[str, object]:
        ended = notes.responses
        written = 0 if parts.ledger is None else parts.ledger.written  # later than the answers ended
        read = ended, notes.refusals_told, written
        return {"conversations": (ended, written), "usage": read, "models": ended, "clients": read, "health": read}

    def named_keys() -> list[str]:
        return [key.name for key in (keys.current() or {}).values()]

    def local_findings() -> "list[Finding]":
        from .local_checks import check_data_dir, check_ledger, check_space

        return [check_data_dir(settings.data_dir), *check_space(settings.data_dir), check_ledger(settings)]

    ledger = settings.data_dir / FILE_NAME if settings.ledger_max_age else None
    changes: dict[str, Change] = {
        "model_aliases": AliasChange(lambda: api.models),
        "budgets": BudgetChange(parts.budgets),
    }
    api = PageApi(
        tenant=parts.tenant,
        files=PageFiles(STATIC),
        door=door,
        now=now,
        feed=Feed(look, marks, allowed, lambda: (door.changes, id(keys.current()))),
        books=LedgerBooks(ledger, PriceList(read_prices(settings.prices or {})).find, parts.ledger),
        notes=notes,
        content=content,
        forget_stored=parts.forget_stored,
        budgets=parts.budgets,
        named_keys=named_keys,
        desk=RunningSettings(settings, changes),
        models=parts.catalogue,
        mcp=parts.mcp,
        local_findings=local_findings,
        receipt=lambda: newest_receipt(settings.data_dir),
        around=Surroundings(process_home(), process_environment(), Path.exists),
    )
    return api


def newest_receipt(data_dir: Path) -> dict[str, Any] | None:
    """When `caretway prove` ran last, and on what."""
    from .prove.receipt import LAST_RECEIPT, MAX_BYTES

    path = data_dir / LAST_RECEIPT
    try:
        with path.open("rb") as file:
            about = json.loads(file.read(MAX_BYTES))["about"]
            told = {name: str(about.get(name, "")) for name in ("backend", "caretway", "service")}
        return {"at": path.stat().st_mtime, **told}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):  # none, or not ours
        return None


class AliasChange(Struct, frozen=True):
    models: Callable[[], PageModels]

    def check(self, value: Any) -> None:
        return

    async def use(self, value: Any) -> None:
        await self.models().change_aliases(value)


class BudgetChange(Struct, frozen=True):
    budgets: Budgets

    def check(self, value: Any) -> None:
        parse_budgets(value, BudgetScope.EVERYBODY)

    async def use(self, value: Any) -> None:
        self.budgets.change(parse_budgets(value, BudgetScope.EVERYBODY))


class RunningSettings:
    """The settings of the running gateway, of which a few can be changed."""

    def __init__(self, settings: Settings, changes: Mapping[str, Change], find_file: Callable[[], Path] | None = None):
        self._settings = settings
        self._changes = changes
        self._find_file = find_file or (lambda: settings.config or settings_file({}))
        self._changed: dict[str, tuple[object, str]] = {}
        """What was changed here: value and origin."""
        self._writing = asyncio.Lock()

    def file(self) -> str | None:
        return str(self._find_file())

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for one in SETTINGS:
            value, origin = getattr(self._settings, one.name), self._settings.origin(one.name)
            value, origin = self._changed.get(one.name, (value, origin))
            changeable = one.name in self._changes and origin.partition(" ")[0] not in ("flag", "environment")
            rows.append(
                {
                    "name": one.name,
                    "group": one.group,
                    "value": one.show(value),
                    "default": one.shown_default(),
                    "origin": origin,
                    "help": one.help,
                    "secret": one.secret,
                    "advanced": one.advanced,
                    "counts": NOW if one.name in self._changes else RESTART,
                    "changeable": changeable,
                }
            )
        return rows

    async def change(self, name: str, text: str | None) -> None:
        from .config.editing import NotEditable, file_value, with_setting

        setting = BY_NAME.get(name)
        if setting is None:
            raise GatewayError(
                ErrorKind.NOT_FOUND, f"There is no setting {name[:80]!r}.", hint="See `caretway config`."
            )
        check_changeable(name, self._settings.origin(name), self._changes)
        try:
            value = setting.default if text is None else setting.read(text, "the page")
            self._changes[name].check(value)
            given = None if text is None else file_value(setting, text, Path.cwd())
        except (ConfigError, ValueError) as wrong:
            raise bad_request(str(wrong).rstrip(".") + ".", param="value") from wrong
        file = self._find_file()
        try:
            async with self._writing:
                before = file.read_text(encoding="utf-8") if file.exists() else ""
                written = with_setting(before, setting, given)
                if written != before:
                    await asyncio.to_thread(write_file, file, written, keep=True)
        except NotEditable as failure:
            raise _not_written(file, "it is written in a way that a program cannot change") from failure
        except OSError as failure:
            raise _not_written(file, failure.strerror or str(failure)) from failure
        except UnicodeError as failure:
            raise _not_written(file, "it is not UTF-8") from failure
        except ValueError as broken:
            raise _not_written(file, f"it is not TOML ({broken})") from broken
        await self._changes[name].use(value)
        self._changed[name] = value, "default" if text is None else f"file {file}"


def _not_written(file: Path, why: str) -> GatewayError:
    return GatewayError(
        ErrorKind.IN_PROGRESS,
        f"{file} cannot be changed: {why}.",
        hint="Type: caretway config edit",
        code="file_not_changed",
        repeatable=False,
    )
