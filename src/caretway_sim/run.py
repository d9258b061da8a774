"""One simulated run: client messages in, heartbeats, and its ending (refused, dropped, cancelled, cut, empty);
conversations that stay refused, and the body left open after the end.

`feed` takes client messages in order and resolves their waiters; the task sends. Messages may come over HTTP/2 or as
numbered appends.
"""

import asyncio
import logging
import uuid
from typing import Any

from google.protobuf.message import DecodeError

from caretway.cursor.wire.envelope import ConnectError
from caretway.cursor.wire.messages import pb
from caretway.processes.tasks import spawn

from . import admission, faults, updates
from .admission import Choice, choose, shape_of
from .catalogue import is_external
from .exchange import SimExchange
from .history import HistoryError
from .pending import Pending
from .play_calls import Left
from .play_steps import Dropped, Performance
from .shared import BilledRun, Shared
from .start import Blobs, EmptyTurn, RunRefused, open_conversation

log = logging.getLogger(__name__)


class _Unheard(Exception):
    """The stream ends without a frame."""


class SimStream:
    """A response that a task writes until it ends: with an error, by a cut, or normally."""

    lingers_ms = 0
    """How long the body stays open after the end."""

    def __init__(self, exchange: SimExchange, name: str) -> None:
        self._exchange = exchange
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._cancelled: ConnectError | None = None
        self.over = False
        self.task: asyncio.Task[Any] = spawn(self._live(), name)

    def end(self, error: ConnectError) -> None:
        """Stop now and send this error."""
        if not self.over:
            self._cancelled = error
            self.stop()

    def stop(self) -> None:
        """Stop without an error: the client is gone."""
        self._loop.call_soon(self.task.cancel)  # not before the task starts: a task that never ran cleans nothing up

    async def _live(self) -> None:
        error: ConnectError | None = None
        try:
            await self._play()
        except RunRefused as refused:
            error = refused.error
        except HistoryError as wrong:
            error = faults.bad_request(str(wrong))
        except Dropped:
            self._exchange.cut()
            return
        except Left:
            pass
        except EmptyTurn:
            self._exchange.write(updates.update(turn_ended=pb.TurnEndedUpdate()))
        except _Unheard:
            self._exchange.finish()
            return
        except asyncio.CancelledError:
            if self._cancelled is None:
                raise
            error = self._cancelled
        except Exception:  # the edge of the stream: a bug of the simulator must not leave the client waiting
            log.exception("the %s failed", self._name)
            error = faults.SCRIPTED["internal"]
        finally:
            self.over = True
        self._exchange.write(updates.end(error))
        if self.lingers_ms:
            await asyncio.sleep(self.lingers_ms / 1000)
        self._exchange.finish()

    async def _play(self) -> None:
        raise NotImplementedError


class SimRun(SimStream):
    def __init__(
        self, shared: Shared, exchange: SimExchange, request_id: str, owner: str = "", *, abroad: bool = False
    ) -> None:
        """`owner`: the account that is billed. `abroad`: the client is where models of other makers are not served."""
        self._shared = shared
        self._owner = owner
        self._abroad = abroad
        self._request_id = request_id or str(uuid.uuid4())
        self._pending = Pending(exchange.write, shared.stats)
        self.lingers_ms = shared.manners.lingers_ms
        super().__init__(exchange, f"simulated run {self._request_id}")
        self._first: asyncio.Future[pb.AgentRunRequest] = self._loop.create_future()
        self._performance: Performance | None = None
        self._heartbeat = self._loop.call_later(shared.heartbeat_s, self._beat)

    # ------------------------------------------------------------------ from the client

    def feed(self, data: bytes) -> None:
        try:
            message = pb.AgentClientMessage.FromString(data)
        except DecodeError:
            self.end(faults.bad_request("a message is not an AgentClientMessage"))
            return
        match message.WhichOneof("message"):
            case "kv_client_message":
                self._pending.deliver_kv(message.kv_client_message)
            case "exec_client_message":
                self._pending.deliver_exec(message.exec_client_message)
            case "exec_client_control_message":
                self._pending.deliver_control(message.exec_client_control_message)
            case "interaction_response":
                self._pending.deliver_response(message.interaction_response)
            case "run_request":
                if not self._first.done():
                    self._first.set_result(message.run_request)
            case "conversation_action":
                if message.conversation_action.HasField("cancel_action"):
                    self.end(faults.CANCELLED)
            case _:
                pass  # heartbeats, and messages newer than the schema

    # ------------------------------------------------------------------ the run itself

    async def _play(self) -> None:
        try:
            await self._perform(await self._first)
        finally:
            self._heartbeat.cancel()

    async def _perform(self, request: pb.AgentRunRequest) -> None:
        stats = self._shared.stats
        stats.runs_opened += 1
        stats.runs_resumed += request.action.HasField("resume_action")
        if admission.ends_unheard(request):
            raise _Unheard
        try:
            await self._serve(request)
        except RunRefused as refused:
            if self._shared.manners.poisons and refused.error == faults.SCRIPTED["bare"]:
                self._shared.poisoned[request.conversation_id] = None
            raise

    async def _serve(self, request: pb.AgentRunRequest) -> None:
        manners = self._shared.manners
        chosen = choose(request, manners)
        self._shared.asked.append((shape_of(request), chosen.label if isinstance(chosen, Choice) else ""))
        if self._abroad and isinstance(chosen, Choice) and is_external(chosen.label):
            if manners.abroad == "ends":
                raise _Unheard
            raise RunRefused(faults.SCRIPTED["region" if manners.abroad == "words" else "bare"])
        if request.conversation_id in self._shared.poisoned:
            raise RunRefused(faults.SCRIPTED["bare"])
        blobs = Blobs(self._pending, self._shared.stats)
        conversation = await open_conversation(request, chosen, self._pending, blobs, self._request_id, manners)
        self._performance = Performance(
            self._shared,
            self._exchange,
            self._pending,
            blobs,
            conversation,
            request.run_id or request.conversation_id or self._request_id,
            self._request_id,
            request.next_interaction_query_id,
        )
        await self._performance.play()
        usage = self._performance.usage
        self._shared.billed.add(
            BilledRun(
                self._owner,
                int(self._shared.clock() * 1000),
                conversation.model,
                request.conversation_id,
                usage.uncached,
                usage.cached,
                usage.output,
            )
        )

    def _beat(self) -> None:
        muted = self._performance is not None and self._performance.muted
        if not muted and not self._exchange.congested:
            self._exchange.write(updates.HEARTBEAT)
        self._heartbeat = self._loop.call_later(self._shared.heartbeat_s, self._beat)
