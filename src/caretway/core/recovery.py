"""Everything that is tried again, as one table: what happened and what is known about it, what is done, why, and at
whose cost. Pure. `python -m caretway.core.recovery` prints it for docs/reliability.md.

The first row that fits decides. Backends, sessions and connections carry the remedy out; if it fails, they ask again
with what they learned. Every remedy for which `opens_run` is true counts against one budget of the request, whatever
the reason; progress renews it.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar

from msgspec import Struct

from .events import Event, Recovered

T = TypeVar("T")

RETRY_BUDGET: Final = 2
"""How many new runs one request may open without progress in between."""


class Loss(Enum):
    """What happened: the label in `/metrics`, the log and the ledger, and words for the dashboard."""

    # a run
    CUT = "cut", "the connection to Cursor broke"
    SILENT = "silent", "Cursor stopped sending"
    STALLED = "stalled", "Cursor sent only heartbeats, and the model made no progress"
    UNHEARD = "unheard", "Cursor ended the stream without a message"
    PROGRAM = "program", "cursor-agent ended before it answered"
    REFUSED = "refused", "Cursor refused the run with a temporary error"
    FINAL = "final", "Cursor refused the run, and would refuse it again"
    TOKEN = "token", "Cursor did not accept the token"
    HOST = "host", "this host of Cursor does not serve the account"
    SHAPE = "shape", "Cursor may not have recognised the name of the model"
    SCHEMA = "schema", "the model's maker may have refused the tools' schemas"
    SYSTEM = "system", "the account may not set a system prompt"
    TOOLS = "tools", "this build of cursor-agent does not accept the client's tools"
    DIVERGED = "diverged", "the model continued with other words after its run was lost"
    INCOMPLETE = "incomplete", "a part of the stored conversation is missing"
    STALE = "stale", "Cursor refused to continue the stored conversation"
    # a request
    GONE = "gone", "the turn or its conversation could not be continued"
    MODEL = "model", "Cursor refused the model"
    NO_CALL = "no call", "the model did not make the demanded call"
    WRONG_CALL = "wrong call", "the model wrote a call of an unknown tool, or with wrong arguments"
    # a message
    UNANSWERED = "unanswered", "a message to Cursor was not answered"

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def words(self) -> str:
        return self.value[1]


class Fact(Enum):
    """What is known: what the client has, what Cursor or a tool may have done, what was tried. The value is for the
    table in the documentation."""

    SEEN = "the client has a part of the answer"
    CALLS = "the client has whole calls"
    HALF_CALL = "the client has a part of a call"
    RESULTS = "the request brought tool results"
    WORKED = "a tool ran without the client"
    IN_CHAT = "the chat may have the message already"
    NO_RESUME = "the backend cannot continue a run"
    UNRECORDED = "there is too much output since the last checkpoint"
    USAGE_OPEN = "the plan's usage may be spent"
    SPENT = "the plan's usage is spent"
    NONE_LEFT = "nothing else is left to try"
    AGAIN = "a new run was opened before"
    BUDGET_USED = "the budget of new runs is used"
    WAITED = "a long wait was repeated"
    EMPTY_BEFORE = "the run before ended without output, too"
    ASKED_TWICE = "the model was asked again for the call"
    FIXED = "no other run may answer"
    UNPROCESSED = "Cursor has not processed the message"
    KEPT = "the connection was opened earlier, or may be broken"
    ANSWERED = "the answer to the message had begun"
    RESENT = "the message was sent twice"
    OPENS_RUN = "the message opens a run"


Facts = frozenset[Fact]


class RemedyPrice(Enum):
    NOTHING = "nothing"
    CALL = "one free call"
    RESEND = "a free resend"
    REFUSED = "nothing for the refused run"
    RUN = "a new run from the last checkpoint"
    WHOLE = "a new run with the whole history"
    LATER = "the next run reads the whole history"
    MORE = "a new run with one more message"


class Remedy(Enum):
    """What is done: the label in `/metrics`, the log and the ledger, and the price."""

    HAND_OVER = "hand over", RemedyPrice.LATER
    SAME_RUN = "same run", RemedyPrice.RUN
    OTHER_CONNECTION = "other connection", RemedyPrice.RUN
    OTHER_HOST = "other host", RemedyPrice.REFUSED
    NEW_TOKEN = "renewed token", RemedyPrice.REFUSED
    OTHER_NAME = "other name", RemedyPrice.REFUSED
    SIMPLER_SCHEMAS = "simpler schemas", RemedyPrice.REFUSED
    SYSTEM_AS_TEXT = "system prompt as text", RemedyPrice.REFUSED
    NEXT_MODEL = "next model", RemedyPrice.REFUSED
    FRESH_RUN = "fresh run", RemedyPrice.WHOLE
    NEW_RUN = "new run", RemedyPrice.WHOLE
    CORRECTION = "correction", RemedyPrice.MORE
    ASK_USAGE = "ask for usage", RemedyPrice.CALL
    RESEND = "resend", RemedyPrice.RESEND
    GIVE_UP = "give up", RemedyPrice.NOTHING

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def price(self) -> RemedyPrice:
        return self.value[1]

    @property
    def opens_run(self) -> bool:
        """Whether this remedy counts against the budget. The next model after a refused one does not: each model is
        asked once, and refuses at once."""
        return self not in _OPEN_NO_RUN


_OPEN_NO_RUN: Final = frozenset(
    {Remedy.HAND_OVER, Remedy.NEXT_MODEL, Remedy.ASK_USAGE, Remedy.RESEND, Remedy.GIVE_UP, Remedy.SYSTEM_AS_TEXT}
)


class Situation(Struct, frozen=True):
    loss: Loss
    facts: Facts = frozenset()
    runs: int = 0
    """New runs that were opened for this request since the last progress."""
    budget: int = RETRY_BUDGET


def holding(*facts: tuple[Fact, bool]) -> Facts:
    """The facts that hold."""
    return frozenset([fact for fact, holds in facts if holds])


class Step(Struct, frozen=True):
    """One row of the table."""

    losses: frozenset[Loss]
    """The losses that the row fits; empty: all losses of the row's part of the table."""
    given: Facts
    unless: Facts
    remedy: Remedy
    reason: str
    quiet: bool = False
    """The error for the client needs no reason why nothing more is tried."""

    def fits(self, loss: Loss, facts: Facts) -> bool:
        return (not self.losses or loss in self.losses) and self.given <= facts and not self.unless & facts

    def message(self, message: str) -> str:
        """An error's message, with the reason why nothing more is tried."""
        return message if self.quiet else f"{message.rstrip()} (Not tried again: {self.reason}.)"


def _row(
    losses: Loss | tuple[Loss, ...],
    given: Fact | tuple[Fact, ...],
    unless: Fact | tuple[Fact, ...],
    remedy: Remedy,
    reason: str,
    *,
    quiet: bool = False,
) -> Step:
    return Step(_set(losses), _set(given), _set(unless), remedy, reason, quiet)


def _set(one_or_more: T | tuple[T, ...]) -> frozenset[T]:
    return frozenset(one_or_more) if isinstance(one_or_more, tuple) else frozenset((one_or_more,))


_ANY: Final = ()
_BROKEN: Final = (Loss.CUT, Loss.SILENT, Loss.STALLED, Loss.UNHEARD)
_LONG: Final = (Loss.SILENT, Loss.STALLED)
_NO_WAY_BACK: Final = (Loss.DIVERGED, Loss.INCOMPLETE, Loss.STALE, Loss.TOOLS)
_BY_CHANGE: Final = (Loss.TOKEN, Loss.HOST, Loss.SHAPE, Loss.SCHEMA, Loss.SYSTEM)
_ELSEWHERE: Final = (Fact.SEEN, Fact.WORKED)
_L, _F, _R = Loss, Fact, Remedy

TABLE: Final[Mapping[str, tuple[Step, ...]]] = {
    "A run of Cursor": (
        _row(_ANY, _F.SPENT, (), _R.GIVE_UP, "the plan's usage is spent", quiet=True),
        _row(_ANY, _F.USAGE_OPEN, (), _R.ASK_USAGE, "Cursor refuses a spent plan with the same error"),
        _row(_L.FINAL, (), (), _R.GIVE_UP, "the same run would be refused again", quiet=True),
        _row(_BY_CHANGE, _F.NONE_LEFT, (), _R.GIVE_UP, "nothing else is left to try", quiet=True),
        _row(_BY_CHANGE, _F.SEEN, (), _R.GIVE_UP, "a run that has begun to answer needs no change", quiet=True),
        _row(_ANY, _F.CALLS, _F.HALF_CALL, _R.HAND_OVER, "the client has the calls; its results start a fresh run"),
        _row(_ANY, (_F.NO_RESUME, _F.SEEN), (), _R.GIVE_UP, "the client has a part of the answer", quiet=True),
        _row(_ANY, _F.BUDGET_USED, (), _R.GIVE_UP, "every new run ended without progress"),
        _row(
            (_L.UNHEARD, _L.HOST),
            (),
            (_F.NONE_LEFT, _F.UNRECORDED),
            _R.OTHER_HOST,
            "Cursor may name the host that serves the account",
        ),
        _row(_L.UNHEARD, _F.EMPTY_BEFORE, (), _R.GIVE_UP, "a second connection brought no output either"),
        _row(
            _NO_WAY_BACK,
            _F.SEEN,
            (),
            _R.GIVE_UP,
            "the client has a part of the answer, and a fresh run would give another one",
        ),
        _row(_NO_WAY_BACK, _F.WORKED, (), _R.GIVE_UP, "tools ran in the gateway, and a fresh run would run them again"),
        _row(_NO_WAY_BACK, (), (), _R.FRESH_RUN, "the history is sent to a fresh run"),
        _row(_L.TOKEN, (), _F.UNRECORDED, _R.NEW_TOKEN, "a newer token may be accepted"),
        _row(_ANY, (_F.NO_RESUME, _F.IN_CHAT), (), _R.FRESH_RUN, "the message may be in the chat already"),
        _row(_ANY, _F.NO_RESUME, (), _R.NEW_RUN, "the client has nothing yet"),
        _row(_L.SHAPE, (), _F.UNRECORDED, _R.OTHER_NAME, "the model has another name"),
        _row(_L.SCHEMA, (), _F.UNRECORDED, _R.SIMPLER_SCHEMAS, "every maker accepts simpler schemas"),
        _row(_L.SYSTEM, (), (), _R.SYSTEM_AS_TEXT, "the message can contain the system prompt"),
        _row(
            _L.STALLED,
            _F.RESULTS,
            _ELSEWHERE,
            _R.FRESH_RUN,
            "no progress after the tool results: the history is sent to a fresh run",
        ),
        _row(_LONG, _F.WAITED, (), _R.GIVE_UP, "a long wait is repeated only once"),
        _row(
            _ANY,
            (_F.RESULTS, _F.AGAIN),
            _ELSEWHERE,
            _R.FRESH_RUN,
            "the same run was lost again: the history is sent to a fresh run",
        ),
        _row(_ANY, _F.UNRECORDED, (), _R.GIVE_UP, "there is too much output since the last checkpoint"),
        _row(_BROKEN, (), (), _R.OTHER_CONNECTION, "the run continues from its last checkpoint"),
        _row(_ANY, (), (), _R.SAME_RUN, "the run continues from its last checkpoint"),
    ),
    "A request": (
        _row(_ANY, _F.FIXED, (), _R.GIVE_UP, "no other run may answer this request", quiet=True),
        _row(_L.MODEL, _F.NONE_LEFT, (), _R.GIVE_UP, "no other model may answer", quiet=True),
        _row((_L.GONE, _L.MODEL, _L.NO_CALL), _F.SEEN, (), _R.GIVE_UP, "the client has a part of the answer"),
        _row((_L.GONE, _L.MODEL, _L.NO_CALL), _F.WORKED, (), _R.GIVE_UP, "a fresh run would run the tools again"),
        _row(_L.MODEL, (), (), _R.NEXT_MODEL, "Cursor refused the model; its alias or the request names another"),
        _row((_L.NO_CALL, _L.WRONG_CALL), _F.ASKED_TWICE, (), _R.GIVE_UP, "the model is asked again only once"),
        _row(_ANY, _F.BUDGET_USED, (), _R.GIVE_UP, "every new run ended without progress"),
        _row((_L.GONE, _L.NO_CALL), (), (), _R.FRESH_RUN, "the history is sent to a fresh run"),
        _row(_L.WRONG_CALL, (), (), _R.CORRECTION, "the model is told what is wrong with its call"),
    ),
    "A message or a call to Cursor": (
        _row(_ANY, _F.OPENS_RUN, (), _R.GIVE_UP, "the run is lost, which is decided above"),
        _row(_ANY, _F.RESENT, (), _R.GIVE_UP, "two connections brought no answer"),
        _row(_ANY, _F.UNPROCESSED, (), _R.RESEND, "Cursor has not acted on the message"),
        _row(_ANY, _F.ANSWERED, (), _R.GIVE_UP, "Cursor has processed the message"),
        _row(_ANY, _F.KEPT, (), _R.RESEND, "the connection was most likely closed before"),
        _row(_ANY, (), (), _R.GIVE_UP, "a new connection was lost, too"),
    ),
}
"""The parts of the table. A part is for its own losses; in a part the first row that fits decides."""

_OF_REQUEST: Final = frozenset({Loss.GONE, Loss.MODEL, Loss.NO_CALL, Loss.WRONG_CALL})


def part_of(loss: Loss) -> str:
    run, request, message = TABLE
    return message if loss is Loss.UNANSWERED else request if loss in _OF_REQUEST else run


def remedy(situation: Situation) -> Step:
    """The first row of the table that fits: what is done, and why."""
    facts = situation.facts
    if situation.runs:
        facts |= {Fact.AGAIN}
    if situation.runs >= situation.budget:
        facts |= {Fact.BUDGET_USED}
    return next(step for step in TABLE[part_of(situation.loss)] if step.fits(situation.loss, facts))


class NewRuns:
    """Counts the new runs of a request on a backend that cannot continue a run."""

    def __init__(self, opened: int) -> None:
        """`opened`: by earlier turns of the request."""
        self.opened = opened

    def lost(self, loss: Loss, *facts: tuple[Fact, bool]) -> tuple[Step, list[Event]]:
        """What is done after a lost run, and the report about it."""
        step = remedy(Situation(loss, holding((Fact.NO_RESUME, True), *facts), self.opened))
        if not step.remedy.opens_run:
            return step, []
        self.opened += 1
        return step, [Recovered(step.remedy.label, loss.label, self.opened)]


def may_resend(*facts: tuple[Fact, bool]) -> bool:
    """Whether a message or a call to Cursor is sent again."""
    return remedy(Situation(Loss.UNANSWERED, holding(*facts))).remedy is Remedy.RESEND


# ---- A remedy in words, from the labels that are in the log and the ledger.


def words_of(remedy: str, loss: str) -> tuple[str, str]:
    """(what happened, what the remedy cost). Labels of other versions, and the codes of refused models, stay as they
    are."""
    what = next((each.words for each in Loss if each.label == loss), loss)
    if remedy == Remedy.NEXT_MODEL.label:
        what = f"{Loss.MODEL.words} ({loss})"
    return what, next((each.price.value for each in Remedy if each.label == remedy), "")


def in_words(recoveries: Iterable[tuple[str, str]]) -> list[str]:
    """One phrase for each: what was done, why, and what it cost."""
    explained = [(how, *words_of(how, loss)) for how, loss in recoveries]
    return [f"{how}, because {what}{price and f': {price}'}" for how, what, price in explained]


# ---- The table as text, for docs/reliability.md.


def as_markdown() -> str:
    lines = ["| label | what happened |", "|---|---|", *[f"| `{loss.label}` | {loss.words} |" for loss in Loss], ""]
    for part, rows in TABLE.items():
        lines += [f"### {part}", "", "| what happened | if | unless | what is done | because | price |"]
        lines += ["|---|---|---|---|---|---|", *map(_as_line, rows), ""]
    return "\n".join(lines)


def _as_line(row: Step) -> str:
    happened = " ".join([f"`{loss.label}`" for loss in Loss if loss in row.losses]) or "anything"
    given = ", and ".join([fact.value for fact in Fact if fact in row.given])
    unless = ", or ".join([fact.value for fact in Fact if fact in row.unless])
    return f"| {happened} | {given} | {unless} | *{row.remedy.label}* | {row.reason} | {row.remedy.price.value} |"


if __name__ == "__main__":
    print(as_markdown(), end="")  # noqa: T201  # a command for the documentation
