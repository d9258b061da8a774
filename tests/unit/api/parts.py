"""What tests of the web room share: a socket that keeps what is written, and an application without a Cursor."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from caretway.accounts.catalogue import ModelCatalogue
from caretway.api.application import Application
from caretway.api.tenant import AccountWatch, Health, SingleTenant, Tenant
from caretway.core.caller import Caller
from caretway.core.errors import GatewayError
from caretway.core.events import TERMINAL, Event
from caretway.core.fold import Reply, fold
from caretway.core.records import Observer, RefusedRequest
from caretway.core.request import TurnRequest
from caretway.core.turn import Abilities, BackendStatus, ModelInfo
from caretway.dialects import Dialect
from caretway.dialects.registry import dialects
from caretway.observe.metrics import Metrics
from caretway.server.exchange import Header, HttpRequest, ResponseWriter
from caretway.server.shape import ShapeLimits


class Written:
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = 0
        self.aborted = False
        self.wakes: list[tuple[float, Callable[[], None] | None]] = []

    def write(self, data: bytes) -> None:
        self.data += data

    def date(self) -> bytes:
        return b"now"

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None:
        self.wakes.append((when, wake))

    def answered(self) -> None:
        self.ended += 1

    def abort(self) -> None:
        self.aborted = True

    @property
    def status(self) -> int:
        return int(self.data.split()[1])

    @property
    def head(self) -> list[bytes]:
        return self.data.partition(b"\r\n\r\n")[0].split(b"\r\n")

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]


def writer(*, head_only: bool = False) -> tuple[Written, ResponseWriter]:
    written = Written()
    return written, ResponseWriter(written, keep_alive=True, chunked=True, head_only=head_only)


class Models(ModelCatalogue):
    """A list without a backend; every request fits."""

    def __init__(self) -> None:
        self.listed = [ModelInfo("sim-auto", "Auto"), ModelInfo("vendor/model")]

    async def models(self) -> list[ModelInfo]:
        return self.listed

    async def find(self, name: str) -> ModelInfo | None:
        return next((model for model in self.listed if model.id == name), None)

    async def fit(self, request: TurnRequest) -> TurnRequest:
        return request


class Responder:
    """Answers every turn with the name of the dialect that was asked, or fails."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.starts = False

    def visible(self, caller: Caller, models: Sequence[ModelInfo]) -> Sequence[ModelInfo]:
        return models

    def named(self, caller: Caller) -> None:
        return None

    async def answer(
        self, dialect: Dialect, request: HttpRequest, response: ResponseWriter, request_id: str, headers: list[Header]
    ) -> None:
        if self.starts:
            response.start(headers, b"half")
        if self.failure is not None:
            raise self.failure
        response.send(200, dialect.name.encode(), headers, content_type=b"text/plain")


class Backend:
    name = "sim"
    standing = "simulated"
    abilities = Abilities()

    def __init__(self) -> None:
        self.answers = BackendStatus(True, "all is well")
        self.asked = 0

    async def status(self) -> BackendStatus:
        self.asked += 1
        return self.answers


class Refusals(Observer):
    """Keeps what it is told of refused requests."""

    def __init__(self) -> None:
        self.records: list[RefusedRequest] = []

    def request_refused(self, record: RefusedRequest) -> None:
        self.records.append(record)


class Parts:
    def __init__(self, max_concurrent: int = 2) -> None:
        self.responder = Responder()
        self.backend = Backend()
        self.refused = Refusals()
        self.tenant = Tenant(
            dialects=dialects(),
            responder=cast(Any, self.responder),
            sessions=cast(Any, SimpleNamespace(live=3, parked=2)),
            models=Models(),
            health=Health(cast(Any, self.backend), check_timeout=5),
            account=AccountWatch(None),
        )
        self.application = Application(
            tenants=SingleTenant(self.tenant),
            metrics=Metrics(),
            observer=self.refused,
            backend="sim",
            shape=ShapeLimits(),
            max_concurrent=max_concurrent,
        )

    async def ask(self, method: str, path: str, body: str = "", **headers: str) -> Written:
        request = HttpRequest(method, path, {name.replace("_", "-"): value for name, value in headers.items()})
        request.body = body.encode()
        written, response = writer(head_only=method == "HEAD")
        await self.application.answer(self.application.routes.resolve(request), request, response)
        return written


def refusal(attempt: Callable[[], object]) -> GatewayError:
    try:
        attempt()
    except GatewayError as error:
        return error
    raise AssertionError("it was not refused")


class Told:
    """A response of the session engine whose events are in the test's hands."""

    label = "fresh"
    reason = "a test"
    adapted = ""
    pictures = ""
    note = ""
    run = "run"
    conversation = "conversation"
    budget = ""

    def __init__(self, request: TurnRequest) -> None:
        self.request = request
        self.recoveries: list[tuple[str, str]] = []
        self.over = False
        self.closed = self.head_sent = False
        self.repeats = 0
        self.bug: Exception | None = None
        """Raised out of `take`."""
        self._all: list[Event] = []
        self._waiting: list[Event] = []
        self._wake: Callable[[], None] = lambda: None

    def opened(self) -> None:
        self.head_sent = True

    def tell(self, *events: Event) -> None:
        self._waiting += events
        self._wake()

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def take(self) -> list[Event]:
        if self.bug is not None:
            raise self.bug
        taken, self._waiting = self._waiting, []
        self._all += taken
        self.over = self.over or any(isinstance(event, TERMINAL) for event in taken)
        return taken

    @property
    def untaken(self) -> int:
        return len(self._waiting)

    def reply(self) -> Reply:
        return fold(self._all)

    def shorten(self, repeats: int) -> None:
        self.repeats = repeats

    def close(self) -> None:
        self.closed = True
