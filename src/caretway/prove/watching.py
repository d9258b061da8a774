"""A transport that records the time and kind of each message, with the few values that facts are read from.

It wraps any transport, as `cursor.transport.tracing` does. Records stay in memory, at most `MAX_MOMENTS` for each run;
the last section derives facts from them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from google.protobuf.message import DecodeError

from ..cursor.transport.ports import NewRun, RunHandler, RunStream, Transport, UnaryResponse
from ..cursor.wire.envelope import End, ErrorSyntax, read_end
from ..cursor.wire.messages import pb
from .facts import Fact, code_of

MAX_MOMENTS: Final = 20_000

Kind = Literal[
    "text",
    "thought",
    "tokens",
    "started",
    "partial",
    "exec",
    "listed",
    "checkpoint",
    "ended",
    "end",
    "result",
]


class Moment(NamedTuple):
    ms: int
    what: Kind
    id: str = ""
    """The envelope's id of a call, or Cursor's name of an error."""
    text: str = ""
    """The inner id of a call, its arguments, or an error code."""
    figures: tuple[int, ...] = ()


class RunNotes:
    """The recorded messages of one attempt at a run."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._noted = asyncio.Event()

    def note(self, what: Kind, name: str = "", text: str = "", figures: tuple[int, ...] = ()) -> None:
        if len(self.moments) < MAX_MOMENTS:
            ms = round((self._loop.time() - self._began) * 1000)
            self.moments.append(Moment(ms, what, name, text, figures))
            self._noted.set()

    async def more(self) -> None:
        """Waits for the next moment."""
        self._noted.clear()
        await self._noted.wait()


class WireWatch:
    """The recorded traffic of one backend."""

    def __init__(self) -> None:
        self.runs: list[RunNotes] = []
        self.transport: WatchedTransport | None = None

    def around(self, transport: Transport) -> Transport:
        self.transport = WatchedTransport(transport, self)
        return self.transport


class WatchedTransport:
    def __init__(self, inner: Transport, watch: WireWatch) -> None:
        self._inner = inner
        self._watch = watch
        self._headers: dict[str, str] = {}
        self.open_stream, self.aclose = inner.open_stream, inner.aclose

    @property
    def name(self) -> str:
        return self._inner.name

    async def open_run(self, run: NewRun, handler: RunHandler) -> RunStream:
        notes = RunNotes()
        self._watch.runs.append(notes)
        return _Mouth(await self._inner.open_run(run, _Ear(handler, notes)), notes)

    def open_run_now(self, run: NewRun, handler: RunHandler) -> RunStream | None:
        return None  # `open_run` is the only place that records

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        response = await self._inner.call(method, path, headers, body)
        self._headers = dict(headers)
        return response

    async def probe(self, path: str, kind: str, body: bytes = b"") -> UnaryResponse:
        """Sends a call with the headers of the last answered call, to another path with another content type."""
        return await self._inner.call("POST", path, self._headers | {"content-type": kind}, body)


class _Ear:
    def __init__(self, handler: RunHandler, notes: RunNotes) -> None:
        self._handler = handler
        self._notes = notes
        self.on_closed = handler.on_closed

    def on_messages(self, messages: list[bytes]) -> None:
        for message in messages:
            if isinstance(message, End):
                _hear_end(message, self._notes)
            else:
                _hear(message, self._notes)
        self._handler.on_messages(messages)


class _Mouth:
    def __init__(self, stream: RunStream, notes: RunNotes) -> None:
        self._stream = stream
        self._notes = notes
        self.pause, self.resume = stream.pause, stream.resume
        self.doubt, self.close = stream.doubt, stream.close

    def send(self, message: bytes) -> None:
        sent = pb.AgentClientMessage.FromString(message)
        if sent.WhichOneof("message") == "exec_client_message" and sent.exec_client_message.HasField("mcp_result"):
            self._notes.note("result")
        self._stream.send(message)


def _hear_end(payload: bytes, notes: RunNotes) -> None:
    try:
        error = read_end(payload)
    except ErrorSyntax:
        notes.note("end", text="not understood")
        return
    notes.note("end", *(("", "") if error is None else (error.name, error.code)))


def _hear(payload: bytes, notes: RunNotes) -> None:
    try:
        message = pb.AgentServerMessage.FromString(payload)
    except DecodeError:
        return  # reported when the message is read
    match message.WhichOneof("message"):
        case "interaction_update":
            _hear_update(message.interaction_update, notes)
        case "exec_server_message" if message.exec_server_message.HasField("mcp_args"):
            notes.note("exec", text=message.exec_server_message.mcp_args.tool_call_id)
        case "conversation_checkpoint_update":
            tokens = message.conversation_checkpoint_update.token_details
            notes.note("checkpoint", figures=(tokens.used_tokens, tokens.max_tokens))
        case _:
            pass


def _hear_update(update: pb.InteractionUpdate, notes: RunNotes) -> None:
    match update.WhichOneof("message"):
        case "text_delta":
            notes.note("text")
        case "thinking_delta":
            notes.note("thought")
        case "token_delta":
            notes.note("tokens")
        case "tool_call_started":
            started = update.tool_call_started
            notes.note("started", started.call_id, started.tool_call.mcp_tool_call.args.tool_call_id)
        case "partial_tool_call":
            partial = update.partial_tool_call
            notes.note("partial", partial.call_id, partial.args_text_delta)
        case "tool_requests_listed":
            notes.note("listed", figures=(update.tool_requests_listed.call_count,))
        case "turn_ended":
            ended = update.turn_ended
            figures = (ended.input_tokens, ended.output_tokens, ended.cache_read_tokens, ended.cache_write_tokens)
            notes.note("ended", figures=figures)
        case _:
            pass


# ---- sightings

# Derives facts about the service from the moments of a run. Pure; each function has its own facts, and returns none if
# the run did not show them.

LONG_ID_CHARS: Final = 64
SPARED_TOKENS: Final = 6_000
"""The threshold for a missing preamble: Cursor's has 10,000 tokens or more, a prompt of one line has far fewer."""
ABSURD: Final = 3
"""Cache reads above this multiple of the context are counting errors."""
TOGETHER_MS: Final = 50
"""Calls within this interval arrived at once."""
QUIET_MS: Final = 200
"""A silence that ends a step (`sibling_quiet` in `agent_quirks`)."""

Moments = Sequence[Moment]


def of(moments: Moments, *kinds: str) -> list[Moment]:
    return [moment for moment in moments if moment.what in kinds]


def outcome(moments: Moments) -> str:
    """The outcome of a run for which any text is right: right, empty or refused; failed if it was cut."""
    if of(moments, "text"):
        return "right"
    end = of(moments, "end")
    if end and end[0].text:
        return "refused"
    return "empty" if of(moments, "ended") else "failed"


def code(moments: Moments) -> str:
    """The error that ended the run: Connect's code, and Cursor's own name for it if there was one."""
    for moment in of(moments, "end"):
        return code_of(f"{moment.text} {moment.id}".strip())
    return ""


def ends(moments: Moments) -> dict[str, Fact]:
    return {"end_told": bool(of(moments, "ended")) and any(not moment.text for moment in of(moments, "end"))}


def first_checkpoint(moments: Moments) -> dict[str, Fact]:
    words, checkpoints = of(moments, "text", "thought"), of(moments, "checkpoint")
    if not words or not checkpoints:
        return {}
    early = checkpoints[0].ms <= words[0].ms and moments.index(checkpoints[0]) < moments.index(words[0])
    return {"early_checkpoint": early, "first_window_zero": checkpoints[0].figures[1] == 0}


def usage(moments: Moments) -> dict[str, Fact]:
    ended = of(moments, "ended")
    if not ended:
        return {}
    sent, answered, read, written = ended[-1].figures
    context = max((moment.figures[0] for moment in of(moments, "checkpoint")), default=0)
    return {
        "input_tokens": sent,
        "output_tokens": answered,
        "usage_told": sent > 0 and answered > 0,
        "cache_in_input": read + written <= sent or read > ABSURD * max(sent, context),
        "cache_absurd": read > ABSURD * max(sent, context),
    }


def preamble(moments: Moments) -> dict[str, Fact]:
    """The fact whether Cursor left out its preamble; none without a count of tokens. `moments`: of a run with a prompt
    of one line and no tools."""
    ended = of(moments, "ended")
    return {"preamble_spared": ended[-1].figures[0] < SPARED_TOKENS} if ended and ended[-1].figures[0] else {}


def arguments(moments: Moments) -> dict[str, Fact]:
    for call in dict.fromkeys(moment.id for moment in of(moments, "partial")):
        partials = [moment.text for moment in of(moments, "partial") if moment.id == call and moment.text]
        if len(partials) > 1:
            grows = all(later.startswith(sooner) for sooner, later in pairwise(partials))
            return {"argument_text": "all so far" if grows else "pieces"}
    return {}


def call_ids(moments: Moments) -> dict[str, Fact]:
    execs = of(moments, "exec")
    if not execs:
        return {}
    inner = execs[0].text
    found: dict[str, Fact] = {"long_ids": len(inner) > LONG_ID_CHARS or "\n" in inner}
    if envelopes := {moment.id for moment in of(moments, "started")}:
        found["two_ids"] = inner not in envelopes
    return found


def checkpoint_after_call(moments: Moments) -> dict[str, Fact]:
    """Milliseconds from the last exec to a checkpoint before any result; -1 if none came."""
    before = _until(moments, "result")
    execs = of(before, "exec")
    if not execs:
        return {}
    after = [moment.ms for moment in before[before.index(execs[-1]) :] if moment.what == "checkpoint"]
    return {"checkpoint_after_call_ms": after[0] - execs[-1].ms if after else -1}


def step(moments: Moments, wanted: int) -> dict[str, Fact]:
    """Facts about a step for which the prompt asked for `wanted` calls."""
    started = of(moments, "started")[:wanted]
    if len(started) < wanted:
        return {}
    unanswered = _until(moments, "result")
    found: dict[str, Fact] = {
        "calls_listed": bool(of(moments, "listed")),
        "asked_in_turn": len(of(unanswered, "started")) >= wanted and len(of(unanswered, "exec")) < wanted,
    }
    pairs = list(pairwise(started))
    if len(of(unanswered, "started")) < wanted:
        return found  # the calls came in separate steps
    gaps = tuple(later.ms - sooner.ms for sooner, later in pairs)
    found["gaps_ms"] = gaps
    if max(gaps, default=0) >= QUIET_MS:
        long_ones = [pair for pair in pairs if pair[1].ms - pair[0].ms >= QUIET_MS]
        found["tokens_in_gaps"] = all(_between(moments, *pair) for pair in long_ones)
    return found


def _between(moments: Moments, sooner: Moment, later: Moment) -> bool:
    return any(m.what == "tokens" for m in moments[moments.index(sooner) : moments.index(later)])


def _until(moments: Moments, kind: str) -> Moments:
    stop = next((index for index, moment in enumerate(moments) if moment.what == kind), len(moments))
    return moments[:stop]
