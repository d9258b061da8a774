"""Cursor's old chat call, `POST /aiserver.v1.AiService/StreamChat`, as a Backend: one request, a stream of text. It
has no tools, thinking, usage or memory. Frozen.

Cursor's service answers the call with `ERROR_DEPRECATED`, which is reported as `upstream_deprecated`. `--backend auto`
never chooses it. The backend stays for hosts that still serve the call, and as a plain text upstream for the tests of
`text_protocol/`. No recording exists: the fields of the messages come from notes about earlier clients.

The call cannot be resumed, so it is repeated only before the first text.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from google.protobuf.message import DecodeError

from ..core.errors import ErrorKind, GatewayError
from ..core.event_buffer import EventBuffer
from ..core.events import Event, TextDelta, TurnEnded, TurnFailed, TurnStarted
from ..core.recovery import Fact, Loss, NewRuns, Remedy
from ..core.request import Role, Text, ToolResult, TurnRequest
from ..core.turn import Abilities, Backend, BackendStatus, ModelInfo, Snapshot, Standing
from ..cursor.transport.faults import fault_from_connect
from ..cursor.transport.identity import REQUEST_ID, Identity, TokenSource, checksum, new_id
from ..cursor.transport.ports import Listening, RunHandler, Transport
from ..cursor.transport.refusals import CHAT_CAUSES, AskedRun
from ..cursor.wire import paths
from ..cursor.wire.envelope import End, ErrorSyntax, read_end
from ..cursor.wire.messages import ai
from ..processes.tasks import DeadlineTimer, spawn

# ---- Composes the protobuf message of a legacy StreamChat call: roles, the system prompt as instruction, model, ids.
# Pure.

PROJECT_PATH: Final = "/project"
"""A fixed path: the service never needed a real project path."""

_Chat = ai.StreamChatRequest
_ROLES: Final = {
    Role.USER: _Chat.ROLE_USER,
    Role.ASSISTANT: _Chat.ROLE_ASSISTANT,
    Role.TOOL: _Chat.ROLE_USER,
}


def compose(request: TurnRequest, request_id: str, conversation_id: str, new_id: Callable[[], str]) -> bytes:
    message = _Chat(
        messages=[
            _Chat.Message(content=said.text, role=_ROLES[said.role], message_id=new_id()) for said in request.talk
        ],
        project_path=PROJECT_PATH,
        model=_Chat.Model(name=request.model),
        request_id=request_id,
        conversation_id=conversation_id,
    )
    if request.system:
        message.instructions.instruction = request.system
    return message.SerializeToString()


WAY_OUT = "Use --backend agent, --backend sdk or --backend cli instead."
_LOSSES: Final = {ErrorKind.UPSTREAM_DOWN: Loss.CUT, ErrorKind.SIGNED_OUT: Loss.TOKEN}


@dataclass(frozen=True, slots=True)
class ChatLimits:
    progress: float = 90.0
    """Seconds without text after which the turn fails."""
    buffer_bytes: int = 2**20
    """Bytes of unread text above which upstream is paused."""


Open = Callable[[RunHandler, bool], Awaitable[Listening]]
"""(handler, whether the last token was refused) -> the open stream."""


class ChatTurn:
    def __init__(
        self, open_stream: Open, limits: ChatLimits, *, renewable: bool, model: str = "", opened: int = 0
    ) -> None:
        """`model` is used in errors. `opened`: how many new runs earlier turns of the request opened."""
        self._open = open_stream
        self._model = model
        self._limits = limits
        self._renewable = renewable
        self._runs = NewRuns(opened)
        self._buffer = EventBuffer(limits.buffer_bytes, self._hold_back, self._go_on)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self._started = False
        self._heard = False
        self._over = False
        self._closed = False
        self._attempt = 0
        self._stream: Listening | None = None
        self._silence = DeadlineTimer(asyncio.get_running_loop())
        self._opening = spawn(self._try(refused=False), "legacy-chat-attempt")

    # ---- the reader's side

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "The legacy chat call takes no tool results.")

    def snapshot(self) -> Snapshot | None:
        return None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._opening.cancel()
        self._give_up_stream()
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()

    # ---- attempts

    async def _try(self, *, refused: bool) -> None:
        self._attempt += 1
        attempt = _Attempt(self, self._attempt)
        self._watch()
        try:
            stream = await self._open(attempt, refused)
        except GatewayError as fault:
            self.lost(attempt.number, fault)
            return
        if self._closed or self._over or attempt.number != self._attempt:
            stream.close()
            return
        self._stream = stream
        if self._buffer.full:
            stream.pause()

    def lost(self, attempt: int, fault: GatewayError) -> None:
        if attempt != self._attempt or self._over or self._closed:
            return
        loss = _LOSSES.get(fault.kind, Loss.FINAL)
        step, news = self._runs.lost(loss, (Fact.SEEN, self._heard), (Fact.NONE_LEFT, not self._renewable))
        if step.remedy.opens_run:
            self._give_up_stream()
            self._buffer.put(news)
            self._renewable = self._renewable and step.remedy is not Remedy.NEW_TOKEN
            self._opening = spawn(self._try(refused=step.remedy is Remedy.NEW_TOKEN), "legacy-chat-attempt")
        else:
            self._end(TurnFailed(replace(fault, message=step.message(fault.message))))

    def hear(self, attempt: int, messages: list[bytes]) -> None:
        if attempt != self._attempt or self._over or self._closed:
            return
        events: list[Event] = []
        try:
            for message in messages:
                if isinstance(message, End):
                    self._end_of_stream(message, events)
                    return
                text = ai.StreamChatResponse.FromString(message).msg
                if text:
                    self._start(events)
                    self._heard = True
                    events.append(TextDelta(text))
        except DecodeError:
            self._end(TurnFailed(_protocol("a message of the answer cannot be read")), events)
            return
        self._watch()
        self._buffer.put(events)

    def _end_of_stream(self, payload: bytes, events: list[Event]) -> None:
        """Handle the end of the stream. `events` came before the end in the same read."""
        try:
            error = read_end(payload)
        except ErrorSyntax as broken:
            self._end(TurnFailed(_protocol(f"the stream ended strangely: {broken}")), events)
            return
        if error is None:
            self._start(events)
            self._end(TurnEnded(), events)
            return
        fault = fault_from_connect(error, AskedRun(self._model, heard=self._heard, only=CHAT_CAUSES))
        if fault.kind is ErrorKind.UPSTREAM_DEPRECATED:
            fault.hint = f"Cursor no longer serves the legacy chat call. {WAY_OUT}"
        self._buffer.put(events)
        self.lost(self._attempt, fault)

    def _start(self, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            events.append(TurnStarted())

    def _end(self, event: TurnEnded | TurnFailed, before: Sequence[Event] = ()) -> None:
        self._over = True
        self._give_up_stream()
        self._buffer.put([*before, event])

    def _give_up_stream(self) -> None:
        self._silence.cancel()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # ---- clock and reader

    def _watch(self) -> None:
        """Restart the silence timer, or stop it while a slow reader pauses upstream."""
        if self._over or self._closed or self._buffer.full:
            self._silence.cancel()
        else:
            self._silence.set(self._limits.progress, self._late)

    def _late(self) -> None:
        fault = GatewayError(
            ErrorKind.TIMEOUT,
            f"Cursor sent no {'more ' if self._heard else ''}text for {self._limits.progress:g} s.",
            hint="Try again; raise `progress_timeout` if the model needs longer.",
        )
        self._end(TurnFailed(fault))

    def _hold_back(self) -> None:
        if self._stream is not None:
            self._stream.pause()
        self._watch()

    def _go_on(self) -> None:
        if self._stream is not None:
            self._stream.resume()
        self._watch()


class _Attempt:
    """The handler of one attempt. Callbacks from an abandoned attempt are recognised by its number."""

    __slots__ = ("_turn", "number")

    def __init__(self, turn: ChatTurn, number: int) -> None:
        self._turn = turn
        self.number = number

    def on_messages(self, messages: list[bytes]) -> None:
        self._turn.hear(self.number, messages)

    def on_closed(self, error: GatewayError | None) -> None:
        self._turn.lost(self.number, error or _cut())


def _cut() -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_DOWN, "Cursor cut the answer off.", hint="Try again.")


def _protocol(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor: {what}", hint=WAY_OUT)


# ---- The legacy chat call (StreamChat) as a Backend: headers with a checksum, a new token after a refusal. Models and
# sign-in come from the Agent API's backend.


class LegacyChatBackend:
    name = "legacy-chat"
    standing: Standing = "unofficial"
    abilities = Abilities(client_tools="text")

    def __init__(
        self,
        agent: Backend,
        transport: Transport,
        tokens: TokenSource,
        identity: Identity,
        limits: ChatLimits,
        clock: Callable[[], float],
    ) -> None:
        """`agent` lists the models, and closes the shared transport and tokens."""
        self._agent = agent
        self.standing = agent.standing
        self._transport = transport
        self._tokens = tokens
        self._known = identity.headers()
        self._limits = limits
        self._clock = clock

    async def models(self) -> Sequence[ModelInfo]:
        return await self._agent.models()

    async def status(self) -> BackendStatus:
        return await self._agent.status()

    async def aclose(self) -> None:
        await self._agent.aclose()

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> ChatTurn:
        conversation_id = new_id()
        token = ""

        async def open_stream(handler: RunHandler, refused: bool) -> Listening:
            nonlocal token
            token = await self._tokens.token(refused=token if refused else "")
            request_id = new_id()
            message = compose(request, request_id, conversation_id, new_id)
            headers = self._headers(request_id, token)
            return await self._transport.open_stream(paths.STREAM_CHAT, headers, message, handler)

        return ChatTurn(
            open_stream, self._limits, renewable=self._tokens.renewable, model=request.model, opened=request.reopened
        )

    def _headers(self, request_id: str, token: str) -> dict[str, str]:
        return {
            "authorization": f"Bearer {token}",
            **self._known,
            "x-cursor-checksum": checksum(token, self._clock()),
            REQUEST_ID: request_id,
        }
