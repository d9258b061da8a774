"""Builds budgets and hooks from settings and named keys: whose budgets they are, where they are counted, by which
prices; who is told. What cannot be read is told with its place.
"""

import time
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import TYPE_CHECKING

from . import __version__
from .budgets.budget import BudgetScope, UsageBudget, parse_budgets
from .budgets.charges import Budgets, KeyBudgets, Price, Tell, nobody_listens
from .budgets.spent_file import FILE
from .budgets.spent_store import SpentStore
from .budgets.sqlite_store import SqliteSpent
from .config import ConfigError, Settings, process_environment
from .core.errors import ErrorKind, GatewayError
from .core.events import Tokens
from .cursor_transport.auto_transport import open_transport
from .keys.key_file import KeyBook
from .ledger.prices import PriceList, read_prices
from .transport_factory import dialler, transport_limits

if TYPE_CHECKING:
    from .hooks import Send, Teller, WebHook


def general_budgets(settings: Settings) -> tuple[UsageBudget, ...]:
    """Those of the settings, for everybody unless they say otherwise."""
    try:
        return parse_budgets(settings.budgets, BudgetScope.EVERYBODY)
    except ValueError as problem:
        raise ConfigError("budgets", settings.origin("budgets"), f"budgets: {problem}") from None


def build_hook(settings: Settings, stack: AsyncExitStack) -> "Teller | None":
    """Who is told when something needs the owner; None: nobody, and nothing of it is imported."""
    if settings.hook is None:
        return None
    from .hooks import CommandHook, Teller, read_hook, run_command

    try:
        hook = read_hook(settings.hook)
    except ValueError as problem:
        raise ConfigError("hook", settings.origin("hook"), f"hook: {problem}") from None
    if isinstance(hook, CommandHook):
        teller = Teller(run_command(hook, process_environment()))
    else:
        teller = Teller(_posting(hook, settings, stack))
    stack.push_async_callback(teller.aclose)
    return teller


def _posting(hook: "WebHook", settings: Settings, stack: AsyncExitStack) -> "Send":
    from .hooks import HookFailed

    transport = open_transport(hook.origin, dialler(settings), mode="http1", limits=transport_limits(settings))
    stack.push_async_callback(transport.aclose)

    async def send(event: str, told: bytes) -> None:
        headers = {"content-type": "application/json", "user-agent": f"caretway/{__version__}"}
        answer = await transport.call("POST", hook.path, headers, told)
        if answer.status >= 300:
            raise HookFailed(f"it answered with status {answer.status}")

    return send


def price_in_cents(settings: Settings) -> Price:
    """By the published prices, or the user's own."""
    prices = PriceList(read_prices(settings.prices or {}))

    def cents(variant: str, used: Tokens) -> float | None:
        price = prices.find(variant)
        if price is None:
            return None
        read, written = used.cache_read_tokens or 0, used.cache_write_tokens or 0
        dollars = used.fresh * price.input + read * price.cache_read + written * price.cache_write
        return (dollars + (used.output_tokens or 0) * price.output) / 10_000

    return cents


def build_budgets(
    settings: Settings, keys: KeyBook, tell: Tell = nobody_listens, shared: SpentStore | None = None
) -> Budgets:
    """`shared`: where several gateways count together."""

    def find_key(name: str) -> KeyBudgets:
        key = keys.named(name) if name else None
        if key is None:
            return KeyBudgets(name, name)
        try:
            return KeyBudgets(key.id, key.name, _of_key(key.budgets), counted=True)
        except ValueError as problem:
            raise GatewayError(
                ErrorKind.INTERNAL,
                f"A budget of the key {key.name} cannot be read: {problem}.",
                hint=f"Make the key again: caretway key revoke {key.name}",
            ) from None

    refuse = settings.cluster_budgets == "refuse"
    return Budgets(
        shared if shared is not None else SqliteSpent(settings.data_dir / FILE, refuse=refuse),
        general_budgets(settings),
        clock=time.time,
        find_key=find_key,
        price=price_in_cents(settings),
        tell=tell,
    )


@lru_cache(maxsize=1024)
def _of_key(texts: tuple[str, ...]) -> tuple[UsageBudget, ...]:
    return parse_budgets(texts, BudgetScope.KEY)
