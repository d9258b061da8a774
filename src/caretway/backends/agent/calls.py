"""The table of a turn's tool calls. It finds the call that an exec belongs to, answers from memory the calls that a new
attempt repeats, shows no call twice, holds back late calls, and limits number and size. Pure.

A call is being written, then asked for, then answered; a checkpoint that holds its result removes it from the table.

A new attempt is expected to repeat, in order, the calls that its checkpoint does not hold. A call on the wire whose
name and parsed arguments equal an expected call is that call: it is answered once from memory, or waits for the
client's result. A call that was cut while it was being written continues where the client's copy ends. Any other
call while calls are expected means that the model diverged (`Diverged`).
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError
from ...core.events import Event, ToolCallDelta, ToolCallReady, ToolCallStarted
from ...core.request import Image, ToolResult
from ..builtin_tools.execs import Convert, readdressed
from .arguments import complete, grown, rest, same_meaning, spellings, sure
from .lost_run import Diverged, Held

# ---- One row of the table: the call's state (being written, asked for, answered), its comparison with a call on the
# wire, its repeated answer, and whether a checkpoint holds its result. Pure.


class CallState(Enum):
    WRITING = "being written"
    ASKED = "asked for"
    ANSWERED = "answered"


class Saved(Enum):
    NO = "in no checkpoint"
    LIKELY = "the model spoke after the result, then came a checkpoint"
    YES = "in the checkpoint"


class Call(Struct, eq=False):
    id: str
    name: str
    convert: Convert | None = None
    """Turns the client's result into messages for the exec; None if the call runs in the gateway."""
    wire_ids: tuple[str, ...] = ()
    """The newest ids that the server uses for the call."""
    own_id: bool = False
    """In this attempt the server used a second id in addition to the call's own id."""
    state: CallState = CallState.WRITING
    arguments: str = ""
    begun: bool = False
    """The client has received the start of the call."""
    streamed: str = ""
    """The part of the arguments that the client has received."""
    draft: str = ""
    """The part of the arguments that this attempt has received from the server."""
    exec_id: int | None = None
    """The exec of this attempt that waits for the result."""
    typed: bool = False
    """The answer has a fixed shape (a redirected exec) that cannot carry additional text."""
    shown: bool = False
    """The client has received the whole call."""
    early: bool = False
    """The call is shown to the client, but the server has not asked for it yet."""
    result: ToolResult | None = None
    replies: Sequence[bytes] = ()
    """The answer to a call that ran in the gateway."""
    taken: bool = False
    """The server confirmed that it has the result."""
    saved: Saved = Saved.NO
    step: int = 0
    """The number of the call's step. A step's calls are made together, before any of their results."""
    size: int = 0

    @property
    def here(self) -> bool:
        return self.convert is None

    @property
    def forgotten(self) -> bool:
        return self.state is CallState.ANSWERED and self.result is None and not self.replies

    @property
    def remembered_bytes(self) -> int:
        size = len(self.arguments) + len(self.streamed) + sum(map(len, self.replies))
        if self.result is not None:
            size += sum([len(part.data) if isinstance(part, Image) else len(part.text) for part in self.result.content])
        return size

    def drop_answer(self) -> int:
        """Drop the answer. Returns the call's former size, which includes its arguments."""
        self.result, self.replies = None, ()
        freed, self.size = self.size, 0
        return freed


class Asked(Struct, frozen=True):
    call: Call
    events: Sequence[Event] = ()
    replies: Sequence[bytes] = ()
    """The answer, if it is already known."""
    run: bool = False
    """The gateway must run the call now."""


def may_be(known: Call, name: str, arguments: str) -> bool:
    """Whether a call on the wire may be the `known` call with the same id: one id may stand for a read and a write."""
    if known.name != name:
        return False
    return known.state is CallState.WRITING or known.early or same_meaning(known.arguments, arguments)


def means(call: Call, name: str, arguments: str, draft: str) -> bool:
    """Whether a call on the wire is `call`: same name, same arguments in any spelling."""
    if call.name != name:
        return False
    if call.state is CallState.WRITING:
        return rest(call.streamed, spellings(draft, arguments)) is not None
    return same_meaning(call.arguments, arguments)


def written_whole(call: Call) -> str:
    """The model's own text of the whole call, if it continues what the client has; empty while it is incomplete."""
    for text in (call.draft, call.streamed + "}"):
        if text.startswith(call.streamed) and complete(text):
            return text
    return ""


def still_missing(call: Call) -> str:
    """The arguments of a requested call that the client has not received yet. Raises Diverged."""
    missing = rest(call.streamed, spellings(call.draft, call.arguments))
    if missing is not None:
        return missing
    if not (whole := written_whole(call)):
        raise Diverged("the model went on with other arguments than it began with", in_call=True)
    return whole[len(call.streamed) :]


def answered_again(call: Call, exec_id: int, convert: Convert | None) -> Sequence[bytes]:
    """The stored answer, addressed to `exec_id`. Raises Diverged if it was dropped."""
    if call.forgotten:
        raise Diverged("the result of a call is no longer remembered")
    if call.result is None or convert is None:
        return readdressed(call.replies, exec_id)
    return convert(exec_id, call.result)


def result_held(call: Call, held: Held) -> bool | None:
    """Whether the checkpoint holds the call's result; None if the checkpoint itself does not show it."""
    found = () if "~" in call.id else tuple(map(held, call.wire_ids))  # an id that stands for two calls proves nothing
    return True if True in found else False if False in found else None


# ---- Arguments of calls that are being written but not shown yet, because the call is unknown or belongs to a later
# response. Bounded in number and characters. Pure.

MAX_DRAFTS: Final = 512
MAX_DRAFT_CHARS: Final = 4 * 1024 * 1024
"""The limit for all drafts together."""
MAX_ID_CHARS: Final = 1024


class Drafts:
    __slots__ = ("_chars", "_texts")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._chars = 0

    def knows(self, ids: Sequence[str]) -> bool:
        return any(one in self._texts for one in ids)

    def begin(self, ids: Sequence[str]) -> None:
        if len(self._texts) < MAX_DRAFTS and len(ids[0]) <= MAX_ID_CHARS:
            self._texts[ids[0]] = ""

    def grow(self, ids: Sequence[str], piece: str) -> bool:
        """Append to the draft of a known id. Returns False if the drafts exceed `MAX_DRAFT_CHARS`."""
        for one in ids:
            if one in self._texts:
                before = self._texts[one]
                self._texts[one] = draft = grown(before, piece)
                self._chars += len(draft) - len(before)
        return self._chars <= MAX_DRAFT_CHARS

    def text(self, call_id: str) -> str:
        return self._texts.get(call_id, "")

    def take(self, ids: Sequence[str]) -> str:
        draft = next((self._texts.pop(one) for one in ids if one in self._texts), "")
        self._chars -= len(draft)
        return draft

    def clear(self) -> None:
        self._texts.clear()
        self._chars = 0


# ---- Limits: the number of tool calls in a turn, their size, and the bytes that are remembered; and the error above
# a limit.

MAX_CALLS: Final = 20_000
"""Calls in one turn, including finished calls, whose ids stay remembered."""
MAX_OPEN_CALLS: Final = 512
"""Calls in the table: being written, asked for, or answered but in no checkpoint."""
MAX_WIRE_IDS: Final = 8
"""Earlier ids that are kept for one call, besides the newest: each attempt may use new ids."""
MAX_ARGUMENT_CHARS: Final = 1024 * 1024
"""Arguments of one call, as JSON. The response quotes them, in some dialects several times, all in memory at once."""
MAX_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Arguments and results that are kept until a checkpoint holds them. Above the limit the oldest results are dropped."""


def too_much(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor made {what}.", hint="Ask for less in one turn.")


__all__ = ["Call", "CallState", "CallTable"]


class CallTable:
    __slots__ = (
        "_bytes",
        "_calls",
        "_closed",
        "_drafts",
        "_given",
        "_ids",
        "_left_out",
        "_listed",
        "_parallel",
        "_round",
        "_step",
        "_used",
        "_waiting",
        "owed",
        "writing",
    )

    def __init__(self, *, parallel: bool) -> None:
        self._parallel = parallel
        self._calls: dict[str, Call] = {}  # in the order in which they began
        self._ids: dict[str, Call] = {}  # by the ids that this attempt uses
        self._drafts = Drafts()
        self.writing = 0
        """The number of calls that the client has received in part."""
        self.owed: list[Call] = []
        """Calls that this attempt is expected to repeat and has not repeated yet."""
        self._used: set[str] = set()
        self._listed = self._round = self._left_out = 0
        self._bytes = 0
        self._step: list[Call] = []  # whole calls that this response has shown
        self._waiting: list[Call] = []  # asked for, to be shown in a later response
        self._closed = self._given = False  # the response has ended with calls; its results are here

    # ---- messages from the server

    def listed(self, count: int) -> None:
        """Record the server's count of calls in this step."""
        self._listed = count

    def left_out(self) -> None:
        """Count a call of this step that was rejected and is not in the table."""
        self._left_out += 1

    def begin(self, ids: Sequence[str], name: str, convert: Convert) -> Sequence[Event]:
        """The server began to write a call: show its start to the client unless it must be held back."""
        if self._drafts.knows(ids) or self._by_id(ids) is not None:
            return ()
        if self.owed:
            first = self.owed[0]
            if first.state is CallState.WRITING and first.name == name:
                self._bind(ids, self.owed.pop(0))  # the call that was cut
            else:
                self._drafts.begin(ids)
            return ()
        if not self._may_show():
            self._drafts.begin(ids)
            return ()
        call = self._new(ids, name, convert)
        call.begun = True
        self.writing += 1
        return (ToolCallStarted(call.id, name),)

    def grow(self, ids: Sequence[str], piece: str) -> Sequence[Event]:
        call = self._by_id(ids)
        if call is None:
            if not self._drafts.grow(ids, piece):
                raise too_much(f"tool calls of more than {MAX_DRAFT_CHARS} characters")
            return ()
        if call.state is not CallState.WRITING or not piece:
            return ()
        call.draft = grown(call.draft, piece)
        certain = sure(call.draft)
        if len(certain) <= len(call.streamed) or not certain.startswith(call.streamed):
            return ()  # the difference is settled when the call is whole
        more, call.streamed = certain[len(call.streamed) :], certain
        self._weigh(call)
        return (ToolCallDelta(call.id, more),)

    def ask(
        self,
        ids: Sequence[str],
        exec_id: int,
        name: str,
        arguments: str,
        convert: Convert | None,
        *,
        typed: bool = False,
    ) -> Asked:
        """The server wants the call executed. Raises Diverged if calls are expected and this is not one of them."""
        if len(arguments) > MAX_ARGUMENT_CHARS:
            raise too_much(f"a tool call with arguments of {len(arguments)} characters")
        may_show = self._may_show()
        draft = self._drafts.take(ids)
        call = self._asked_for(ids, name, arguments, draft)
        if call is None:
            call = self._new(ids, name, convert)
            call.draft = draft
        self._bind(ids, call)
        call.exec_id = exec_id
        call.early = False
        if call.state is CallState.ANSWERED:
            return Asked(call, replies=answered_again(call, exec_id, convert))
        if call.state is CallState.ASKED:
            return Asked(call)  # the client has it, or it runs: only the exec id is new
        if call.begun:
            self.writing -= 1
        call.convert, call.typed = convert, typed
        call.state = CallState.ASKED
        call.arguments = arguments
        self._weigh(call)
        if convert is None:
            return Asked(call, run=True)
        if not call.begun and not may_show:
            self._waiting.append(call)
            return Asked(call)
        return Asked(call, events=self._show(call))

    def written(self, call_id: str) -> tuple[str, bool]:
        """(arguments received before the call was asked for, whether the client has a part of the call)."""
        call = self._ids.get(call_id)
        if call is not None and call.state is CallState.WRITING:
            return call.draft, call.begun
        return self._drafts.text(call_id), False

    def unseen(self, call_id: str) -> bool:
        """Whether this call is new: it is not in the table, and no call of a lost attempt is expected."""
        return not self.owed and call_id not in self._ids

    def knows(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether this call was made before, or a repeated call of the same tool is expected."""
        known = self._ids.get(call_id)
        return (known is not None and may_be(known, name, arguments)) or any(call.name == name for call in self.owed)

    def taken(self, ids: Sequence[str]) -> None:
        """The server confirmed a call's result: the next checkpoint is trusted to hold it, unless the checkpoint shows
        that it does not."""
        call = self._by_id(ids)
        if call is not None and call.state is CallState.ANSWERED:
            call.taken = True

    @property
    def answered(self) -> bool:
        """Whether some results may not be in a checkpoint yet."""
        return bool(self._calls) and any(call.state is CallState.ANSWERED for call in self._calls.values())

    def checkpointed(self, held: Held, *, spoke: bool) -> None:
        """Remove calls whose results the new checkpoint holds. `held` looks a result up in the checkpoint; `spoke`:
        the model produced output between the newest results and this checkpoint."""
        for call in list(self._calls.values()):
            if call.state is not CallState.ANSWERED or call.exec_id is None:
                continue  # this attempt has not received its result
            there = result_held(call, held)
            if there or (there is None and call.taken) or (spoke and call.saved is Saved.LIKELY):
                self._forget(call)
                self.went_on()
            elif spoke:
                call.saved = Saved.LIKELY
        if spoke:
            self.went_on()

    def aborted(self, exec_id: int) -> Call | None:
        """The server no longer wants a result. Returns the call, or None if it is unknown. The result of a client's
        call is not sent to the server; a call that runs here is dropped."""
        for call in self._calls.values():
            if call.exec_id == exec_id:
                call.exec_id = None
                if call.here:
                    self._forget(call)
                return call
        return None

    # ---- a new attempt

    def reopened(self, held: Held) -> None:
        """A new attempt begins at the last checkpoint. `held` looks results up in that checkpoint."""
        for call in list(self._calls.values()):
            call.exec_id = None
            call.draft = ""
            call.taken = call.own_id = False
            if call.state is CallState.ANSWERED:
                there = result_held(call, held)
                if there or (there is None and call.saved is Saved.LIKELY):
                    self._forget(call)
            elif call.state is CallState.ASKED and not call.shown and not call.here:
                self._forget(call)  # it was held back, and the client never saw it
        self._waiting.clear()
        self._ids.clear()
        self._drafts.clear()
        self._listed = self._left_out = 0
        self.owed = list(self._calls.values())

    # ---- the step

    @property
    def step(self) -> Sequence[Call]:
        return self._step

    @property
    def open(self) -> list[int]:
        """Ids of execs that wait for a result."""
        return [
            call.exec_id
            for call in self._calls.values()
            if call.exec_id is not None and call.state is not CallState.ANSWERED
        ]

    @property
    def runs_here(self) -> bool:
        """Whether a call is running in the gateway."""
        return any(call.here and call.state is CallState.ASKED for call in self._calls.values())

    def complete(self) -> bool:
        """Whether the step certainly has no more calls. False if only silence can show it."""
        if not self._step or self.writing:
            return False
        return not self._parallel or (self._listed > 0 and not self.missing)

    @property
    def missing(self) -> bool:
        """Whether the server announced more calls than have arrived."""
        return len(self._step) + len(self._waiting) + self._left_out < self._listed

    @property
    def waits(self) -> bool:
        """Whether calls are held back for a later response."""
        return bool(self._waiting)

    def take_written(self) -> Sequence[Event] | None:
        """Treat calls that are written whole as asked for, because some servers ask for each call of a step only after
        the previous result. Returns None if a call is incomplete."""
        written = [call for call in self._calls.values() if call.state is CallState.WRITING]
        if not all(written_whole(call) for call in written):
            return None
        for call in written:
            call.state, call.arguments, call.early = CallState.ASKED, written_whole(call), True
        self.writing = 0
        return [event for call in written for event in self._show(call)]

    def close_step(self) -> None:
        """The response ends with the shown calls. Later calls wait for the client's next response."""
        self._closed = True

    def went_on(self) -> None:
        """The model continued after the results: its next call begins another step. Until then a new call may be a
        late sibling of the answered calls."""
        if self._given and not self._waiting:
            self._given = False
            self._round += 1

    # ---- results from the client

    def carries_text(self, call_id: str) -> bool:
        """Whether the answer to this call can carry free text. A redirected exec's answer can if it is shell output."""
        return not self._calls[call_id].typed

    def submit(self, results: Iterable[ToolResult]) -> list[bytes]:
        messages: list[bytes] = []
        for result in results:
            call = self._calls[result.call_id]
            call.result = result
            call.state = CallState.ANSWERED
            self._weigh(call)
            if call.exec_id is not None and call.convert is not None:
                messages.extend(call.convert(call.exec_id, result))
        self._step = []
        self._closed, self._given = False, True
        self._listed = self._left_out = 0
        return messages

    def ran(self, call: Call, replies: Sequence[bytes]) -> Sequence[bytes]:
        """Record the result of a call that ran in the gateway. Returns the messages to send if Cursor awaits it."""
        call.replies = tuple(replies)
        call.state = CallState.ANSWERED
        self._weigh(call)
        return () if call.exec_id is None else readdressed(replies, call.exec_id)

    def next_waiting(self) -> Sequence[Event]:
        """Show calls that were held back: all, or only one if the request forbids parallel calls."""
        count = len(self._waiting) if self._parallel else 1
        shown, self._waiting = self._waiting[:count], self._waiting[count:]
        return [event for call in shown for event in self._show(call)]

    # ---- finding a call

    def _by_id(self, ids: Sequence[str]) -> Call | None:
        """The call with the first of `ids`, which is the call's own. The other ids find only calls without an own id,
        because several calls with own ids may share another id."""
        for one in ids:
            call = self._ids.get(one)
            if call is not None and (one == ids[0] or not call.own_id):
                return call
        return None

    def _asked_for(self, ids: Sequence[str], name: str, arguments: str, draft: str) -> Call | None:
        known = next((self._ids[one] for one in ids if one in self._ids), None)
        if known is not None and may_be(known, name, arguments):
            return known
        for expected in self.owed:
            if means(expected, name, arguments, draft):
                self._claim(expected)
                return expected
        if self.owed:
            raise Diverged("the model asked for another call than before")
        if known is not None or draft:
            return None
        # Written under another id: some servers use two ids for one call.
        candidates = [call for call in self._calls.values() if call.state is CallState.WRITING or call.early]
        return next((call for call in candidates if means(call, name, arguments, call.draft)), None)

    def _claim(self, call: Call) -> None:
        """The attempt repeats an expected call. Calls of earlier steps would have been repeated first, so the attempt's
        checkpoint holds them."""
        for old in self.owed:
            if old.step < call.step:
                self._forget(old)
        self.owed = [other for other in self.owed if other is not call and other.step >= call.step]

    # ---- the rows

    def _new(self, ids: Sequence[str], name: str, convert: Convert | None) -> Call:
        if len(self._used) >= MAX_CALLS or len(self._calls) >= MAX_OPEN_CALLS:
            raise too_much(f"more tool calls in one turn than is allowed ({len(self._used)})")
        if any(len(one) > MAX_ID_CHARS for one in ids):
            raise too_much(f"a tool call whose id is longer than {MAX_ID_CHARS} characters")
        own = ids[0]
        if own in self._used:  # an edit is a read and a write under one id
            own = f"{own}~{len(self._used)}"
        self._used.add(own)
        call = self._calls[own] = Call(own, name, convert, step=self._round)
        self._bind(ids, call)
        return call

    def _bind(self, ids: Sequence[str], call: Call) -> None:
        call.own_id = call.own_id or len(ids) > 1
        for one in ids:
            self._ids[one] = call
            if one not in call.wire_ids:
                call.wire_ids = (*call.wire_ids[-MAX_WIRE_IDS:], one)

    def _forget(self, call: Call) -> None:
        self._calls.pop(call.id, None)
        for one in [one for one, bound in self._ids.items() if bound is call]:
            del self._ids[one]
        self._bytes -= call.size

    def _weigh(self, call: Call) -> None:
        size = call.remembered_bytes
        self._bytes += size - call.size
        call.size = size
        if self._bytes > MAX_REMEMBERED_BYTES:
            for old in list(self._calls.values()):
                if old is not call and old.state is CallState.ANSWERED and not old.forgotten:
                    self._bytes -= old.drop_answer()
                    if self._bytes <= MAX_REMEMBERED_BYTES:
                        break

    def _show(self, call: Call) -> Sequence[Event]:
        events: list[Event] = [] if call.begun else [ToolCallStarted(call.id, call.name)]
        call.begun = True
        if call.streamed:
            missing = still_missing(call)
            call.streamed += missing
            call.arguments = call.streamed  # the model's own spelling: the client has it already
            if missing:
                events.append(ToolCallDelta(call.id, missing))
        events.append(ToolCallReady(call.id, call.name, call.arguments))
        call.shown = True
        self._step.append(call)
        return events

    def _may_show(self) -> bool:
        return not self._closed and (self._parallel or not (self._step or self.writing))
