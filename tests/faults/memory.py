"""A whole conversation without a socket: the session engine and the Agent API client against the simulator's runs.

`Wire` carries the same enveloped bytes as a real connection and is cut after a chosen number of them. Time is the event
loop's own and jumps to the next timer when nothing else is to do, so a wait of minutes takes no time and can still be
measured. Every case is the same each time it is played.
"""

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from caretway.accounts.tokens import FixedToken
from caretway.backends.agent.backend import AgentBackend, AgentSetup
from caretway.backends.agent.compose import RunContext
from caretway.backends.agent.turn_clock import ConversationLimits
from caretway.backends.builtin_tools.policy import LocalSetup, tool_policy
from caretway.core.errors import GatewayError
from caretway.core.request import Message, Role, Text, ToolResult, ToolSpec, TurnRequest
from caretway.core.turn import Snapshot
from caretway.cursor.transport.faults import cut
from caretway.cursor.transport.identity import Identity
from caretway.cursor.transport.ports import NewRun, RunHandler, UnaryResponse
from caretway.cursor.wire.envelope import EnvelopeReader
from caretway.sessions.manager import SessionLimits, Sessions
from caretway.sessions.transcript import answer_message
from caretway_sim.exchange import Headers
from caretway_sim.manners import LIVE_AT_ONCE, Manners
from caretway_sim.run import SimRun
from caretway_sim.shared import Shared
from contract.speakers import Call as SeenCall
from faults.answers import Answer
from faults.judge import End, Played
from faults.scenes import PROPERTIES, Scene, call_key, outcome
from receiving import receive

_T = TypeVar("_T")


# ---------------------------------------------------------------------------------------------- time


class _Impatient(selectors.DefaultSelector):
    """Never waits: tells the loop how long it would have."""

    slept: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.slept(timeout)
        return []


class TimelessLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps."""

    def __init__(self) -> None:
        selector = _Impatient()
        selector.slept = self._sleep
        self._now = 1000.0
        super().__init__(selector)

    def _sleep(self, seconds: float) -> None:
        self._now += seconds

    def time(self) -> float:
        return self._now


@contextmanager
def timeless() -> Iterator[Callable[[Awaitable[_T]], _T]]:
    with asyncio.Runner(loop_factory=TimelessLoop) as runner:

        def run(work: Awaitable[_T]) -> _T:
            async def waited() -> _T:
                return await work

            return runner.run(waited())

        yield run


# ---------------------------------------------------------------------------------------------- the wire


@dataclass(slots=True)
class Cuts:
    """When lines are lost: each number is used up by one line, the numbers after it count on from there."""

    down: list[int] = field(default_factory=list)
    """Bytes that the server's side says before a line is lost."""
    up: list[int] = field(default_factory=list)
    """Messages that reach the server before a line is lost."""


class Wire:
    """A `Transport` whose runs end at the simulator's, in memory."""

    name = "memory"

    def __init__(self, cuts: Cuts, manners: Manners) -> None:
        self.shared = Shared(manners, clock=lambda: 0.0)
        self.cuts = cuts
        self.heard = 0
        """Bytes from the server."""
        self.said = 0
        """Messages to it."""
        self.marks: list[int] = []
        """After how many bytes a piece of the server's ended."""
        self.runs: list[SimRun] = []

    def open_run_now(self, run: NewRun, handler: RunHandler) -> "Line":
        return Line(self, handler, run.id)

    async def open_run(self, run: NewRun, handler: RunHandler) -> "Line":
        return Line(self, handler, run.id)

    async def open_stream(self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler) -> "Line":
        raise AssertionError("no scene makes such a call")

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        raise AssertionError("no scene makes such a call")

    async def aclose(self) -> None:
        for run in self.runs:
            run.stop()
        await asyncio.gather(*(run.task for run in self.runs), return_exceptions=True)


class Line:
    """One attempt at a run: the client's `RunStream`, and the server's `Exchange`."""

    congested = False

    def __init__(self, wire: Wire, handler: RunHandler, request_id: str) -> None:
        self._wire = wire
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._reader = EnvelopeReader()
        self._out = bytearray()
        self._delivering = False
        self._finished = False
        self._held = False
        self._over = False
        self._run = SimRun(wire.shared, self, request_id)
        wire.runs.append(self._run)

    # ---- the client's side

    def send(self, message: bytes) -> None:
        self._loop.call_soon(self._arrive, message)

    def _arrive(self, message: bytes) -> None:
        if self._over:
            return
        wire = self._wire
        wire.said += 1
        self._run.feed(message)
        if wire.cuts.up and wire.said >= wire.cuts.up[0]:
            wire.cuts.up.pop(0)
            self._lose()

    def pause(self) -> None:
        self._held = True

    def resume(self) -> None:
        self._held = False
        self._wake()

    def doubt(self) -> None:
        pass

    def close(self) -> None:
        self._over = True
        self._run.stop()

    # ---- the server's side

    async def drained(self) -> None:
        pass

    def start(self, status: int, headers: Headers) -> None:
        pass

    def write(self, data: bytes) -> None:
        self._out += data
        self._wire.marks.append(self._wire.heard + len(self._out))
        self._wake()

    def finish(self) -> None:
        self._finished = True
        self._wake()

    def cut(self) -> None:
        self._loop.call_soon(self._lose)

    # ---- between them

    def _wake(self) -> None:
        if not self._delivering:
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if self._over or self._held:
            return
        wire, data = self._wire, bytes(self._out)
        self._out.clear()
        left = wire.cuts.down[0] - wire.heard if wire.cuts.down else len(data) + 1
        passing = data[:left]
        wire.heard += len(passing)
        messages = self._reader.feed(passing)
        if messages:
            self._handler.on_messages(messages)
        if self._over:
            return  # what was heard made the client hang up
        if left <= len(data):
            wire.cuts.down.pop(0)
            self._lose()
        elif self._finished:
            self._over = True
            self._handler.on_closed(None)

    def _lose(self) -> None:
        if not self._over:
            self.close()
            self._handler.on_closed(cut("the connection was cut by the test"))


# ---------------------------------------------------------------------------------------------- a conversation


class _Store:
    """Finished conversations, in a dict."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Snapshot] = {}

    def recall(self, key: bytes) -> Snapshot | None:
        return self._kept.get(key)

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        self._kept[key] = snapshot

    settled = True
    shared = False

    async def settle(self) -> None: ...

    async def bring(self, key: bytes) -> None: ...


def _backend(wire: Wire) -> AgentBackend:
    setup = AgentSetup(
        name="agent",
        standing="unofficial",
        identity=Identity("test", "test"),
        limits=ConversationLimits(),
        surroundings=RunContext(),
        buffer_bytes=1 << 20,
        tools=tool_policy(LocalSetup("off", None, (), {}, 1.0, 1000)),
    )
    return AgentBackend(setup, wire, FixedToken("token"), lambda: 0.0)


async def converse(scene: Scene, cuts: Cuts, retries: int = 0, manners: Manners = LIVE_AT_ONCE) -> tuple[Played, Wire]:
    """Plays a scene as a client does. `retries`: after an error that comes before anything was shown."""
    wire, played = Wire(cuts, manners), Played()
    backend = _backend(wire)
    sessions = Sessions(backend, stages=(), limits=SessionLimits(), store=_Store(), guard=lambda request: request)
    tools = tuple(
        ToolSpec(name, schema={"type": "object", "properties": {argument: {"type": "string"}}})
        for name, argument in PROPERTIES.items()
    )
    messages: tuple[Message, ...] = ()
    try:
        for turn in scene.turns:
            messages = (*messages, Message(Role.USER, (Text(turn.prompt),)))
            played.answers.append([])
            for _ in range(len(turn.calls) + 2):
                message = await _ask(
                    sessions, TurnRequest("sim-auto", messages, tools=tools, stream=True), played, retries
                )
                messages = (*messages, message)
                if played.end is not End.PLAYED:
                    return played, wire
                calls = played.answers[-1][-1].calls
                if not calls:
                    break
                results = tuple(ToolResult(call.id, (Text(_run(scene, played, call)),)) for call in calls)
                messages = (*messages, Message(Role.TOOL, results))
            else:
                played.end = End.ENDLESS
        return played, wire
    finally:
        await sessions.aclose()
        await wire.aclose()
        await backend.aclose()


def _run(scene: Scene, played: Played, call: SeenCall) -> str:
    key = call_key(call.name, call.arguments)
    played.ran[key] += 1
    return outcome(scene.nonce, key, played.ran[key])


async def _ask(sessions: Sessions, request: TurnRequest, played: Played, retries: int) -> Message:
    began = asyncio.get_running_loop().time()
    while True:
        reply = None
        try:
            response = await sessions.open(request)
            while not response.over:
                await receive(response)
            reply = response.reply()
            response.close()
            error = reply.error
        except GatewayError as failure:
            error = failure
        played.posts += 1
        played.longest_s = max(played.longest_s, asyncio.get_running_loop().time() - began)
        shown = reply is not None and (reply.text or reply.reasoning or reply.calls)
        if error is None or shown or not retries:
            break
        retries -= 1
    answer = Answer(reply.text, reply.reasoning) if reply is not None else Answer()
    if error is not None:
        played.end, played.code, played.status = End.ERROR, error.code or error.kind.value, 0
        answer.error = played.code
    elif reply is not None:
        answer.calls = [SeenCall(call.id, call.name, json.loads(call.arguments)) for call in reply.calls]
    played.answers[-1].append(answer)
    return answer_message(reply) if reply is not None else Message(Role.ASSISTANT, ())
