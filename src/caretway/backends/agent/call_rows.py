"""One row of the table of calls: its state (being written, asked, answered), whether a call on the wire means the same
one, its answer given again, and whether a checkpoint holds its result. Pure."""

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from ...core.events import Event
from ...core.request import Image, ToolResult
from ..builtin_tools.execs import Convert, readdressed
from .arguments import complete, rest, same_meaning, spellings
from .echo import Diverged
from .held_results import Held


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
    """A call on the wire may be the one that is known by its id: an id may stand for a read and a write."""
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
    if not (told := written_whole(call)):
        raise Diverged("the model went on with other arguments than it began with", in_call=True)
    return told[len(call.streamed) :]


def answered_again(call: Call, exec_id: int, convert: Convert | None) -> Sequence[bytes]:
    """The answer to a call that was answered before."""
    if call.forgotten:
        raise Diverged("the result of a call is no longer remembered")
    if call.result is None or convert is None:
        return readdressed(call.replies, exec_id)
    return convert(exec_id, call.result)


def result_held(call: Call, held: Held) -> bool | None:
    """The checkpoint holds the call's result. None: it cannot be known from the checkpoint itself."""
    told = () if "~" in call.id else tuple(map(held, call.wire_ids))  # an id that stands for two calls tells nothing
    return True if True in told else False if False in told else None
