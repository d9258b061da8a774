"""Charges runs to budgets: selects the budgets of a run, reserves before it and settles after each response, and
reports once when a budget is low or used up.

A run counts when a backend is asked to open it, also for a replay or a retry; results for a waiting run and a run
resumed from its checkpoint do not count. Tokens and cents are reserved by an estimate and settled when a response has
ended, so they exceed a budget at most by the runs that were open when it was used up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import tzinfo
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.account_usage import AccountUsage
from ..core.errors import GatewayError
from ..core.events import (
    Event,
    ReasoningDelta,
    RunUsage,
    StopReason,
    TextDelta,
    Tokens,
    ToolCallDelta,
    ToolCallStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ..core.records import RunRecord
from ..core.request import TurnRequest
from ..core.tally import prompt_chars, tokens
from ..core.turn import Abilities, Backend, BackendStatus, ModelInfo, Snapshot, Stage, Turn
from ..processes.tasks import aside, spawn
from .budget import (
    NOTHING_SPENT,
    BillingCycle,
    BudgetScope,
    Level,
    Measure,
    Period,
    Spent,
    UsageBudget,
    day_of,
    lowest,
    notice,
    refusal,
    refused_by,
    resets,
    used,
    whose,
    window,
)
from .spent_store import CONVERSATION_PREFIX, Claim, ClaimOutcome, Limit, SpentStore

log = logging.getLogger(__name__)

EVERYBODY: Final = "everybody"
KEY_PREFIX: Final = "key:"
MAX_TOLD: Final = 10_000
CYCLE_LOOK_S: Final = 6 * 3600.0

Price = Callable[[str, Tokens], float | None]
"""(model with its parameters, usage) -> cents; None if unknown."""
Tell = Callable[[str, str], None]
"""Reports (event, sentence) to the owner."""


class KeyBudgets(Struct, frozen=True):
    """A key's identity and budgets for counting."""

    id: str
    name: str
    budgets: tuple[UsageBudget, ...] = ()
    counted: bool = False
    """The key is counted even without a budget."""


FindKey = Callable[[str], KeyBudgets]
"""Finds the budgets of a caller's key by its name."""


def unnamed_key(name: str) -> KeyBudgets:
    return KeyBudgets(name, name)


def no_price(_model: str, _usage: Tokens) -> float | None:
    return None


def nobody_listens(_event: str, _sentence: str) -> None:
    pass


class Budgets:
    def __init__(
        self,
        store: SpentStore,
        general: Sequence[UsageBudget],
        *,
        clock: Callable[[], float],
        find_key: FindKey = unnamed_key,
        price: Price = no_price,
        tell: Tell = nobody_listens,
        zone: tzinfo | None = None,
    ) -> None:
        self.store = store
        self.price = price
        self.clock = clock
        self.zone = zone
        self.cycle: BillingCycle | None = None
        self._general = tuple(general)
        self._find_key = find_key
        self._tell = tell
        self._reported: set[str] = set()
        self._ready = False
        self._account: Callable[[], Awaitable[AccountUsage]] | None = None
        self._asking = False
        self._ask_at = 0.0

    async def ready(self) -> None:
        """Loads the stored billing cycle."""
        if not self._ready:
            kept = await self.store.cycle()
            self.cycle = self.cycle or kept  # a cycle reported meanwhile is newer
            self._ready = True

    async def aclose(self) -> None:
        await self.store.aclose()

    def learn_cycle(self, account: Callable[[], Awaitable[AccountUsage]]) -> None:
        """Sets the source of the billing cycle. A monthly budget asks it in the background, and no run waits for the
        answer."""
        self._account = account

    def _look_at_cycle(self) -> None:
        now = self.clock()
        if self._account is None or self._asking or now < self._ask_at:
            return
        self._asking, self._ask_at = True, now + CYCLE_LOOK_S
        spawn(self._ask_cycle(self._account), "ask-for-the-billing-cycle")

    async def _ask_cycle(self, account: Callable[[], Awaitable[AccountUsage]]) -> None:
        try:
            period = (await account()).period
        except GatewayError as failure:
            log.debug("the billing cycle is not known: %s", failure)
        else:
            self.billed(period.starts_at, period.ends_at)
        finally:
            self._asking = False

    def billed(self, starts_at: float | None, ends_at: float | None) -> None:
        """Stores the billing cycle that Cursor reports."""
        if starts_at is None or ends_at is None or ends_at <= starts_at:
            return
        cycle = BillingCycle(starts_at, ends_at)
        if cycle != self.cycle:
            self.cycle = cycle
            self.store.keep_cycle(cycle)

    def correct(self, run: RunRecord) -> None:
        """Count the billed cost of a run instead of its estimate."""
        charge = self.charge(run.origin.caller.key, run.conversation)
        if charge is not None and run.usage is not None and run.usage.cents is not None:
            estimate = self.price(run.variant, run.usage) or 0.0
            charge.correct(run.usage.cents - estimate, run.ended_at)

    def change(self, general: Sequence[UsageBudget]) -> None:
        """Replaces the general budgets; spent amounts stay counted."""
        self._general = tuple(general)

    async def levels(self, keys: Sequence[str]) -> list[Level]:
        """The levels of the general budgets and of these keys' budgets. Budgets that are counted per conversation or
        run appear as unused."""
        await self.ready()
        everybody = [(budget, EVERYBODY, "") for budget in self._general if budget.scope is not BudgetScope.KEY]
        of_keys = [
            (budget, f"{KEY_PREFIX}{found.id}", found.name)
            for found in map(self._find_key, keys)
            for budget in (*self._general, *found.budgets)
            if budget.scope is BudgetScope.KEY or budget in found.budgets
        ]
        now, levels = self.clock(), list[Level]()
        for budget, scope, name in (*everybody, *of_keys):
            span = window(budget.period, now, self.cycle, self.zone)
            counted = budget.scope in (BudgetScope.KEY, BudgetScope.EVERYBODY)
            spent = (await self.store.spent(scope, span.since)).of(budget.measure) if counted else 0.0
            levels.append(Level(budget, spent, span.resets_at, name))
        return levels

    def charge(self, key: str, conversation: str) -> "TurnCharge | None":
        if not key and not self._general:
            return None
        whose = self._find_key(key)
        budgets = (*self._general, *whose.budgets)
        if any(budget.period is Period.MONTH for budget in budgets):
            self._look_at_cycle()
        if not budgets and not whose.counted:
            return None
        return TurnCharge(self, whose, conversation, budgets)

    def once(self, event: str, mark: str, sentence: str) -> None:
        """Reports the sentence unless a gateway with this store has reported the mark before, also before a restart."""
        if mark in self._reported:
            return
        if len(self._reported) >= MAX_TOLD:
            self._reported.clear()
        self._reported.add(mark)
        spawn(self._once(event, mark, sentence), "tell-of-a-budget")

    async def _once(self, event: str, mark: str, sentence: str) -> None:
        if await self.store.first(mark, self.clock()):
            log.warning("%s", sentence)
            self._tell(event, sentence)


class _Bound(Struct, frozen=True):
    """A budget and the scope in which it is counted."""

    budget: UsageBudget
    scope: str
    name: str = ""


class TurnCharge:
    """Counts the runs of one turn."""

    def __init__(self, books: Budgets, key: KeyBudgets, conversation: str, budgets: Sequence[UsageBudget]) -> None:
        self._books = books
        scopes = {
            BudgetScope.KEY: (f"{KEY_PREFIX}{key.id}", key.name),
            BudgetScope.EVERYBODY: (EVERYBODY, ""),
            BudgetScope.CONVERSATION: (f"{CONVERSATION_PREFIX}{conversation}", ""),
        }
        self._bounds = [_Bound(one, *scopes[one.scope]) for one in budgets if one.scope in scopes]
        counted = [scopes[BudgetScope.KEY][0]] if key.counted else []
        self._scopes = tuple(dict.fromkeys([*counted, *(bound.scope for bound in self._bounds)]))
        self._run_limits = tuple(one for one in budgets if one.scope is BudgetScope.RUN)
        self._estimates = any(one.measure is not Measure.RUNS for one in budgets)
        self._day = ""
        self._levels: tuple[Level, ...] = ()
        self._marks: tuple[str, ...] = ()
        self._charged = NOTHING_SPENT
        """The amount counted for this turn."""
        self._last = NOTHING_SPENT
        """The amount counted for the newest run."""
        self._runs_ended = NOTHING_SPENT
        """The totals that Cursor reported for the turn's runs."""
        self._open = NOTHING_SPENT
        """The usage of the open run's responses."""
        self._context = 0
        """The tokens read by the newest response of the open run."""

    @property
    def notice(self) -> str:
        low = lowest(self._levels)
        return notice(low) if low is not None else ""

    # ---- before a run

    async def open_run(self, request: TurnRequest) -> None:
        await self._books.ready()
        amount = await self._estimate(request)
        now, zone = self._books.clock(), self._books.zone
        self._day = day_of(now, zone)
        if self._bounds:
            await self._reserve(amount, now)
        else:
            self._books.store.settle(self._scopes, self._day, amount, now)
        self._last = amount
        self._charged += amount

    async def _estimate(self, request: TurnRequest) -> Spent:
        if not self._estimates:
            return Spent(1)
        chars = await aside(prompt_chars, request) if request.large else prompt_chars(request)
        read = tokens(chars)
        cents = self._books.price(request.choice.exactly or request.model, Tokens(read, 0)) or 0.0
        return Spent(1, read, read, cents)

    async def _reserve(self, amount: Spent, now: float) -> None:
        books = self._books
        windows = [window(bound.budget.period, now, books.cycle, books.zone) for bound in self._bounds]
        limits = tuple(
            Limit(bound.scope, bound.budget.measure, bound.budget.limit, span.since)
            for bound, span in zip(self._bounds, windows, strict=True)
        )
        claim = Claim(self._scopes, self._day, amount, limits, now)
        reserving = spawn(_claimed(books.store, claim), "reserve-a-run")
        try:
            outcome = await asyncio.shield(reserving)
        except asyncio.CancelledError:
            reserving.add_done_callback(lambda done: _give_back(books.store, claim, done))
            raise
        if isinstance(outcome, GatewayError):
            raise outcome
        self._levels = tuple(
            Level(bound.budget, spent, span.resets_at, bound.name)
            for bound, span, spent in zip(self._bounds, windows, outcome.spent, strict=True)
        )
        self._marks = tuple(
            f"{bound.scope} {bound.budget} {span.since}" for bound, span in zip(self._bounds, windows, strict=True)
        )
        if not outcome.allowed:
            raise self._refused()
        self._warn()

    def _refused(self) -> GatewayError:
        level = refused_by(self._levels)
        assert level is not None
        error = refusal(level, self._books.zone)
        mark = self._marks[self._levels.index(level)]
        self._books.once("budget_spent", f"spent {mark}", f"{error.message} Requests are refused.")
        return error

    def _warn(self) -> None:
        for level, mark in zip(self._levels, self._marks, strict=True):
            if level.low:
                sentence = (
                    f"The gateway's budget {whose(level)} is low: {used(level)}.{resets(level, self._books.zone)}"
                )
                self._books.once("budget_low", f"low {mark}", sentence)

    def run_failed(self) -> None:
        self._settle(self._charged - self._last)
        self._last = NOTHING_SPENT

    # ---- after a response

    def response_ended(self, variant: str, usage: Usage | None) -> None:
        if usage is None:
            return  # the response was cut: the estimate stays
        run = usage.run
        self._context = usage.input_tokens or 0
        if run is None or (run.input_tokens is None and run.output_tokens is None):
            self._open += self._spent(variant, usage)
        else:
            self._runs_ended += self._spent(variant, run)
            self._open = NOTHING_SPENT
        total = self._runs_ended + self._open
        self._settle(replace(total, runs=self._charged.runs))
        self._warn()

    def _spent(self, variant: str, used: Tokens) -> Spent:
        read, written = used.input_tokens or 0, used.output_tokens or 0
        cents = used.cents if isinstance(used, RunUsage) else None
        if cents is None:
            cents = self._books.price(variant, used)
        return Spent(0, read + written, max(0, read - (used.cache_read_tokens or 0)) + written, cents or 0.0)

    def _settle(self, total: Spent) -> None:
        delta = total - self._charged
        if delta == NOTHING_SPENT:
            return
        self._charged = total
        self._books.store.settle(self._scopes, self._day, delta, self._books.clock())
        self._levels = tuple(
            replace(level, spent=level.spent + delta.of(level.budget.measure)) for level in self._levels
        )

    def correct(self, cents: float, ended_at: float) -> None:
        """Add to what is spent on the day on which a run ended."""
        day = day_of(ended_at, self._books.zone)
        self._books.store.settle(self._scopes, day, Spent(cents=cents), self._books.clock())

    # ---- during a run

    def stage(self, request: TurnRequest) -> Stage | None:
        if not self._run_limits:
            return None
        before, model, known = self._open, request.choice.exactly or request.model, self._context

        def passed(read: int, written: int) -> bool:
            """Whether the run has passed a limit once this response has read and written so many tokens. Tokens that
            the previous response read count as cached."""
            total = before + self._spent(model, Tokens(read or known or self._last.tokens, written, known or None))
            for limit in self._run_limits:
                level = Level(limit, total.of(limit.measure))
                if level.used_up:
                    log.warning("A run was ended, its budget is used up: %s.", used(level))
                    return True
            return False

        return RunLimitStage(passed)


async def _claimed(store: SpentStore, claim: Claim) -> ClaimOutcome | GatewayError:
    """Reserves the claim. Returns the error of an unavailable store instead of raising it."""
    try:
        return await store.reserve(claim)
    except GatewayError as away:
        return away


def _give_back(store: SpentStore, claim: Claim, reserving: "asyncio.Future[ClaimOutcome | GatewayError]") -> None:
    """The client disconnected during the reservation, so the run is not opened: give its claim back."""
    if reserving.cancelled() or reserving.exception() is not None:
        return
    outcome = reserving.result()
    if isinstance(outcome, ClaimOutcome) and outcome.allowed:
        store.settle(claim.scopes, claim.day, NOTHING_SPENT - claim.amount, claim.at)


# ---- the budget of a single run

CHECK_CHARS: Final = 64
"""The number of characters between two checks."""


def run_limit(request: TurnRequest) -> Stage | None:
    """The stage that ends a run above its own budget; None if this request's runs have no such budget."""
    return request.charge.stage(request) if request.charge is not None else None


Passed = Callable[[int, int], bool]
"""(tokens read, tokens written by this response) -> whether its run has passed a limit."""


class RunLimitStage:
    """Ends a response whose run passes its own budget, with the text so far and the reason `length`; never within a
    tool call, and not if the client has calls to answer. Written tokens are estimated as they arrive."""

    spent = False

    def __init__(self, passed: Passed) -> None:
        self._passed = passed
        self._read = 0
        self._chars = 0
        self._next_look = 0
        self._calls = False

    def feed(self, event: Event) -> list[Event]:
        match event:
            case TurnStarted(context_tokens=context):
                self._read = context or 0
            case TextDelta(text=text) | ReasoningDelta(text=text):
                self._chars += len(text)
                if self._chars >= self._next_look and not self._calls:
                    self._next_look = self._chars + CHECK_CHARS
                    if self._passed(self._read, tokens(self._chars)):
                        return [event, TurnEnded(StopReason.LENGTH)]
            case ToolCallStarted():
                self._calls = True
            case ToolCallDelta(arguments=arguments):
                self._chars += len(arguments)
            case _:
                pass
        return [event]


# ---- the backend whose runs are counted

# Wraps a backend and charges every run before it is opened, also runs that the text protocol and the MCP bridge
# open themselves. Knows no budget.


class CountedBackend:
    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name = inner.name
        self.standing = inner.standing

        self.abilities: Abilities = inner.abilities

    async def models(self) -> Sequence[ModelInfo]:
        return await self.inner.models()

    async def status(self) -> BackendStatus:
        return await self.inner.status()

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        charge = request.charge
        if charge is None:
            return await self.inner.start(request, snapshot)
        await charge.open_run(request)
        try:
            return await self.inner.start(request, snapshot)
        except BaseException:  # also after a disconnect: no run was opened
            charge.run_failed()
            raise

    async def aclose(self) -> None:
        await self.inner.aclose()
