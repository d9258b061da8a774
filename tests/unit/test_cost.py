"""What a delta costs, counted and not timed: calls and kept objects from the socket's bytes to the stream's bytes.

The whole way of a delta is walked, on a fake socket: HTTP/2 frame, envelope, message, event, response, chunk. Counts do
not depend on the machine, so a limit here can be close to the truth; whoever raises one says why in the commit.
"""

import asyncio
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType as PythonFrame
from typing import Any

import caretway
from caretway.api.answer import Pace, StreamedAnswer
from caretway.backends.agent.backend import AgentBackend, AgentSetup
from caretway.backends.agent.compose import RunContext
from caretway.backends.agent.turn_clock import ConversationLimits
from caretway.backends.builtin_tools.execs import Refuse
from caretway.backends.builtin_tools.policy import ToolRules
from caretway.core.fold import Reply
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.cursor.transport.h2_connection import H2Connection
from caretway.cursor.transport.h2_frames import END_HEADERS, FrameType, field_block, frame
from caretway.cursor.transport.h2_transport import H2Run
from caretway.cursor.transport.identity import Identity
from caretway.cursor.transport.ports import NewRun, RunHandler, TransportLimits
from caretway.cursor.wire.envelope import pack
from caretway.cursor.wire.messages import pb
from caretway.dialects import ResponseMeta
from caretway.dialects.openai_chat import OpenAIChat
from caretway.processes.tasks import spawn
from caretway.server.exchange import ResponseWriter
from caretway.sessions.lifecycle import Happening
from caretway.sessions.live import LiveTurn, Tickets
from caretway.sessions.response import Response

OPENAI_CHAT = OpenAIChat()

MAX_CALLS = 42
"""Per delta, Python functions and C functions alike, the client's socket included. 41.5 on CPython 3.11."""
MAX_CALLS_COALESCED = 6
"""The same when a hundred deltas arrive in one read, and are told as one: 5.4."""
MAX_KEPT = 1.5
"""Objects that stay per delta: the text, with its places in the fold and in the memory for a lost connection."""

OURS = str(Path(caretway.__file__).parent)
REQUEST = TurnRequest("model", (Message(Role.USER, (Text("hello"),)),), stream=True)


class Socket(asyncio.Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return None

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


class Wire:
    """A transport whose one connection is in the test's hands."""

    name = "h2"

    def __init__(self) -> None:
        self.connection = H2Connection(TransportLimits(), "host", lambda _: None)
        self.connection.connection_made(Socket())
        self.connection.data_received(frame(FrameType.SETTINGS, 0, 0))

    def open_run_now(self, new: NewRun, handler: RunHandler) -> H2Run:
        run = H2Run(handler, TransportLimits())
        run.stream = self.connection.open(field_block([(":method", "POST")]), run)
        return run

    def answer(self, payload: bytes) -> None:
        self.connection.data_received(payload)


class Keeper:
    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None: ...

    def issue(self, live: LiveTurn, ticket: str) -> None: ...

    def discard(self, live: LiveTurn) -> None:
        pass

    def let_go(self, response: Response) -> None: ...


class NoSecret:
    renewable = False

    def at_hand(self) -> str | None:
        return "t"

    async def token(self, *, refused: str = "") -> str:
        return "t"

    async def aclose(self) -> None: ...


def nothing(request: TurnRequest) -> ToolRules:
    return ToolRules(lambda _: Refuse("no"), "")


async def no_restart(reopened: int, _request: TurnRequest) -> LiveTurn:
    raise AssertionError("nothing was lost")


def delta(number: int) -> bytes:
    update = pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text=f"word{number} "))
    return pack(pb.AgentServerMessage(interaction_update=update).SerializeToString())


class ClientLine:
    """A client's connection that counts what is written to it."""

    said = 0

    def write(self, data: bytes) -> None:
        self.said += len(data)

    def date(self) -> bytes:
        return b""

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None: ...

    def answered(self) -> None: ...

    def abort(self) -> None: ...


class Stream:
    """One streamed answer, from the fake socket upstream to the fake socket of the client."""

    def __init__(self, wire: Wire, response: Response, line: ClientLine) -> None:
        self._wire = wire
        self._response = response
        self._line = line
        writer = ResponseWriter(line, keep_alive=True, chunked=True)
        meta = ResponseMeta("id", 0, "model")
        self._answer = StreamedAnswer(OPENAI_CHAT, response, meta, [], writer, Pace(10.0, 10.0))

    @classmethod
    async def open(cls) -> "Stream":
        wire: Any = Wire()
        identity = Identity("sdk", "caretway")
        setup = AgentSetup("agent", "unofficial", identity, ConversationLimits(), RunContext(), 1 << 20, nothing)
        turn = await AgentBackend(setup, wire, NoSecret(), lambda: 0.0).start(REQUEST)
        live = LiveTurn(turn, Tickets("sid", "call_"), REQUEST)
        response = Response(Keeper(), live, REQUEST, "fresh", "", (), no_restart)
        stream = cls(wire, response, ClientLine())
        spawn(stream._answer.run_to_end(), "answer")
        await asyncio.sleep(0)  # it listens now
        wire.answer(frame(FrameType.HEADERS, END_HEADERS, 1, b"\x88"))
        stream.carry([delta(0)])
        return stream

    def carry(self, reads: list[bytes]) -> None:
        """Each of these arrives by itself, and has left when its read is over: no task stands in between."""
        for read in reads:
            said = self._line.said
            self._wire.answer(frame(FrameType.DATA, 0, 1, read))
            assert self._line.said > said

    async def aclose(self) -> None:
        self._answer.stop()
        await self._response.live.turn.aclose()


class Counter:
    """Calls of our functions, and of C functions by them: what the event loop does is another's business."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, where: PythonFrame, event: str, _: object) -> None:
        if event in ("call", "c_call") and OURS in where.f_code.co_filename:
            self.calls += 1


def calls(stream: Stream, reads: list[bytes]) -> int:
    counter = Counter()
    before = sys.getprofile()
    sys.setprofile(counter)
    try:
        stream.carry(reads)
    finally:
        sys.setprofile(before)
    return counter.calls


async def growth(reads: list[bytes], deltas: int) -> float:
    """Calls per delta: what more of the same adds, so that whatever happens once does not count."""
    stream = await Stream.open()
    try:
        few, many = calls(stream, reads[: len(reads) // 3]), calls(stream, reads)
    finally:
        await stream.aclose()
    return (many - few) / (deltas - deltas // 3)


async def test_calls_per_delta() -> None:
    per_delta = await growth([delta(number) for number in range(300)], 300)
    assert per_delta <= MAX_CALLS, f"{per_delta:.1f} calls per delta"


async def test_calls_per_delta_when_many_arrive_in_one_read() -> None:
    reads = [b"".join(delta(number) for number in range(100)) for _ in range(30)]
    per_delta = await growth(reads, 3000)
    assert per_delta <= MAX_CALLS_COALESCED, f"{per_delta:.1f} calls per delta"


async def test_kept_objects_per_delta() -> None:
    stream = await Stream.open()
    reads = [delta(number) for number in range(2000)]
    stream.carry(reads[:500])
    before = sys.getallocatedblocks()
    stream.carry(reads[500:])
    kept = (sys.getallocatedblocks() - before) / 1500
    await stream.aclose()
    assert kept <= MAX_KEPT, f"{kept:.2f} objects per delta"


def test_a_frame_says_how_long_it_is() -> None:
    """The fake socket of this file speaks what the real one would."""
    assert frame(FrameType.DATA, 0, 1, b"abc") == struct.pack(">IBI", 3 << 8, 0, 1) + b"abc"
