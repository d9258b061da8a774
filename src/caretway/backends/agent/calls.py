"""The table of a turn's tool calls: which call an exec belongs to, calls repeated after a lost attempt (answered from
memory, never shown twice), late siblings, one call at a time, limits in number and size. Pure.

A call is being written, then asked for, then answered; a checkpoint that holds its result takes it out of the table.

After a new attempt, calls that its checkpoint does not hold are expected once more, in order. A call on the wire that
means the same as an expected one (name and parsed arguments) is that call: it is answered from memory, once, or waits
for the client's result. A call that was cut while it was being written goes on where the client's copy ends. Anything
else while calls are expected means that the model took another way (`Diverged`).
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

# ---- One row of the table of calls: its state (being written, asked, answered), whether a call on the wire means the
# same one, its answer given again, and whether a checkpoint holds its result. Pure.


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
    """None: it runs on this side."""
    wire_ids: tuple[str, ...] = ()
    """All that the server calls it."""
    own_id: bool = False
    """On this attempt it was told of under an id of its own and another one."""
    state: CallState = CallState.WRITING
    arguments: str = ""
    begun: bool = False
    """The client has its start."""
    streamed: str = ""
    """What the client has of its arguments."""
    draft: str = ""
    """What this attempt has told of them."""
    exec_id: int | None = None
    """The exec that waits for the result, on this attempt."""
    typed: bool = False
    """The answer has a fixed shape (a redirected exec) and no room for other words."""
    shown: bool = False
    """The client has the whole call."""
    early: bool = False
    """And the server has written it, but not asked for it yet."""
    result: ToolResult | None = None
    replies: Sequence[bytes] = ()
    """What answered a call that ran on this side."""
    taken: bool = False
    """The server said that it has the result."""
    saved: Saved = Saved.NO
    step: int = 0
    """Calls of one step are made together; those of the next, after their results."""
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
            size += sum(len(part.data) if isinstance(part, Image) else len(part.text) for part in self.result.content)
        return size

    def drop_answer(self) -> int:
        """Forgets what answered it. How many bytes that frees, with its arguments."""
        self.result, self.replies = None, ()
        freed, self.size = self.size, 0
        return freed


class Asked(Struct, frozen=True):
    call: Call
    events: Sequence[Event] = ()
    replies: Sequence[bytes] = ()
    """The answer, when it is known."""
    run: bool = False
    """It is to be run on this side, now."""


def may_be(known: Call, name: str, arguments: str) -> bool:
    """Whether a call on the wire may be the one known by its id: one id may stand for a read and a write."""
    if known.name != name:
        return False
    return known.state is CallState.WRITING or known.early or same_meaning(known.arguments, arguments)


def means(call: Call, name: str, arguments: str, draft: str) -> bool:
    """A call on the wire is this one: by its name, and by its arguments however they are spelled."""
    if call.name != name:
        return False
    if call.state is CallState.WRITING:
        return rest(call.streamed, spellings(draft, arguments)) is not None
    return same_meaning(call.arguments, arguments)


def written_whole(call: Call) -> str:
    """The model's own text of a call that goes on from what the client has; empty while it is not whole."""
    for text in (call.draft, call.streamed + "}"):
        if text.startswith(call.streamed) and complete(text):
            return text
    return ""


def still_missing(call: Call) -> str:
    """What the client has not got of the arguments of a call that is asked for. Raises Diverged."""
    missing = rest(call.streamed, spellings(call.draft, call.arguments))
    if missing is not None:
        return missing
    if not (whole := written_whole(call)):
        raise Diverged("the model went on with other arguments than it began with", in_call=True)
    return whole[len(call.streamed) :]


def answered_again(call: Call, exec_id: int, convert: Convert | None) -> Sequence[bytes]:
    """The answer to a call that was answered before."""
    if call.forgotten:
        raise Diverged("the result of a call is no longer remembered")
    if call.result is None or convert is None:
        return readdressed(call.replies, exec_id)
    return convert(exec_id, call.result)


def result_held(call: Call, held: Held) -> bool | None:
    """The checkpoint holds the call's result. None: it cannot be known from the checkpoint itself."""
    found = () if "~" in call.id else tuple(map(held, call.wire_ids))  # an id that stands for two calls tells nothing
    return True if True in found else False if False in found else None


# ---- Arguments of calls that are being written and not shown yet, because the call is not known or belongs to a later
# response. Bounded in number and characters. Pure.

MAX_DRAFTS: Final = 512
MAX_DRAFT_CHARS: Final = 4 * 1024 * 1024
"""Of all of them."""
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
        """False: it is too much."""
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


# ---- How many tool calls a turn may have, how large one may be, how much of them is remembered; and the error for
# more.

MAX_CALLS: Final = 20_000
"""Of one turn, finished ones included: their ids are remembered."""
MAX_OPEN_CALLS: Final = 512
"""Calls that are being written, asked for, or answered and in no checkpoint."""
MAX_WIRE_IDS: Final = 8
"""Of one call: each attempt may use others."""
MAX_ARGUMENT_CHARS: Final = 1024 * 1024
"""Of one call, as JSON. It is quoted in the answer, some dialects say it several times, and all of that at once."""
MAX_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Arguments and results that are kept until a checkpoint holds them. Of more, the oldest results are forgotten."""


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
        """Calls of which the client has a part."""
        self.owed: list[Call] = []
        """Expected once more on this attempt, and not repeated yet."""
        self._used: set[str] = set()
        self._listed = self._round = self._left_out = 0
        self._bytes = 0
        self._step: list[Call] = []  # whole calls that this response has shown
        self._waiting: list[Call] = []  # asked for, to be shown in a later response
        self._closed = self._given = False  # the response has ended with calls; its results are here

    # ---- what the server tells

    def listed(self, count: int) -> None:
        """The server says how many calls this step has."""
        self._listed = count

    def left_out(self) -> None:
        """One of the step's calls was rejected and is not in the table."""
        self._left_out += 1

    def begin(self, ids: Sequence[str], name: str, convert: Convert) -> Sequence[Event]:
        """The server began to write a call: the client sees it grow."""
        if self._drafts.knows(ids) or self._by_id(ids) is not None:
            return ()
        if self.owed:
            first = self.owed[0]
            if first.state is CallState.WRITING and first.name == name:
                self._bind(ids, self.owed.pop(0))  # the one that was cut
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
            return ()  # the whole call will tell
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
        """The server wants the call executed. Raises Diverged when it is none of those that are expected."""
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
        """What was told of a call before it was asked for, and whether the client has a part of it."""
        call = self._ids.get(call_id)
        if call is not None and call.state is CallState.WRITING:
            return call.draft, call.begun
        return self._drafts.text(call_id), False

    def unseen(self, call_id: str) -> bool:
        """This call reached no client, and no lost attempt made it."""
        return not self.owed and call_id not in self._ids

    def knows(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether this call was made before, or one of this tool is expected once more."""
        known = self._ids.get(call_id)
        return (known is not None and may_be(known, name, arguments)) or any(call.name == name for call in self.owed)

    def taken(self, ids: Sequence[str]) -> None:
        """The server shows a call with its result: the next checkpoint holds it."""
        call = self._by_id(ids)
        if call is not None and call.state is CallState.ANSWERED:
            call.taken = True

    @property
    def answered(self) -> bool:
        """Whether there are results that may not be in a checkpoint yet."""
        return any(call.state is CallState.ANSWERED for call in self._calls.values())

    def checkpointed(self, held: Held, *, spoke: bool) -> None:
        """`held`: what the checkpoint itself tells. `spoke`: the model said something after the newest results and
        before this checkpoint."""
        for call in list(self._calls.values()):
            if call.state is not CallState.ANSWERED or call.exec_id is None:
                continue  # on this attempt nobody has its result
            there = result_held(call, held)
            if there or (there is None and call.taken) or (spoke and call.saved is Saved.LIKELY):
                self._forget(call)
                self.went_on()
            elif spoke:
                call.saved = Saved.LIKELY
        if spoke:
            self.went_on()

    def aborted(self, exec_id: int) -> Call | None:
        """The server no longer wants the result. The client keeps its call; its answer goes nowhere."""
        for call in self._calls.values():
            if call.exec_id == exec_id:
                call.exec_id = None
                if call.here:
                    self._forget(call)
                return call
        return None

    # ---- a new attempt

    def reopened(self, held: Held) -> None:
        """A new attempt begins at the last checkpoint, of which `held` tells."""
        for call in list(self._calls.values()):
            call.exec_id = None
            call.draft = ""
            call.taken = call.own_id = False
            if call.state is CallState.ANSWERED:
                there = result_held(call, held)
                if there or (there is None and call.saved is Saved.LIKELY):
                    self._forget(call)
            elif call.state is CallState.ASKED and not call.shown and not call.here:
                self._forget(call)  # it waited for its turn, and the client never saw it
        self._waiting.clear()
        self._ids.clear()
        self._drafts.clear()
        self._listed = self._left_out = 0
        self.owed = list(self._calls.values())

    # ---- what the step is

    @property
    def step(self) -> Sequence[Call]:
        return self._step

    @property
    def open(self) -> list[int]:
        """Execs that wait for a result."""
        return [
            call.exec_id
            for call in self._calls.values()
            if call.exec_id is not None and call.state is not CallState.ANSWERED
        ]

    @property
    def runs_here(self) -> bool:
        """A call is being run on this side."""
        return any(call.here and call.state is CallState.ASKED for call in self._calls.values())

    def complete(self) -> bool:
        """True when nothing more can be expected of this step; False when only silence can tell."""
        if not self._step or self.writing:
            return False
        return not self._parallel or (self._listed > 0 and not self.missing)

    @property
    def missing(self) -> bool:
        """More calls were announced than have come."""
        return len(self._step) + len(self._waiting) + self._left_out < self._listed

    @property
    def waits(self) -> bool:
        """Calls came that the client is to see in a later response."""
        return bool(self._waiting)

    def take_written(self) -> Sequence[Event] | None:
        """Some servers ask for the calls of a step one after the other, each after the result of the one before. So
        those that are written whole are taken as asked for. None: one is not whole."""
        written = [call for call in self._calls.values() if call.state is CallState.WRITING]
        if not all(written_whole(call) for call in written):
            return None
        for call in written:
            call.state, call.arguments, call.early = CallState.ASKED, written_whole(call), True
        self.writing = 0
        return [event for call in written for event in self._show(call)]

    def close_step(self) -> None:
        """The client is asked to run what it was shown. Calls that come from now on wait for its next response."""
        self._closed = True

    def went_on(self) -> None:
        """The model did something after the results: its next call begins another step. Before that, a call may be a
        late sibling of the answered ones."""
        if self._given and not self._waiting:
            self._given = False
            self._round += 1

    # ---- what the client answers

    def carries_text(self, call_id: str) -> bool:
        """True when the answer to this call has free text: that of a redirected exec has, if it is a shell's output."""
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
        """Calls that had to wait: late siblings, or one when the client takes one at a time."""
        count = len(self._waiting) if self._parallel else 1
        shown, self._waiting = self._waiting[:count], self._waiting[count:]
        return [event for call in shown for event in self._show(call)]

    # ---- which call is it

    def _by_id(self, ids: Sequence[str]) -> Call | None:
        """By its own id, the first one. Another one may stand for several calls that have ids of their own."""
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
        # Told of under another id: some servers use two for one call.
        candidates = [call for call in self._calls.values() if call.state is CallState.WRITING or call.early]
        return next((call for call in candidates if means(call, name, arguments, call.draft)), None)

    def _claim(self, call: Call) -> None:
        """The attempt repeats an expected call. What came in earlier steps it would have repeated before: that is in
        its checkpoint."""
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
