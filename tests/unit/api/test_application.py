"""From a matched request to its handler: ids, places, refusals, and failures that become a 500."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from caretway.api.application import MAX_PATH_TOLD, AcceptedRequest, AccessLayer, TraceRecorder
from caretway.core.caller import Caller
from caretway.core.errors import ErrorKind, GatewayError, bad_request
from caretway.core.turn import ModelInfo
from caretway.observe.trace import Trace
from caretway.server.access import Access, Admission, CallerLimits, access_for
from caretway.server.exchange import HttpRequest
from unit.api.parts import Models, Parts, Written, refusal, writer


class Recorded:
    def __init__(self, directory: Path) -> None:
        self._trace = Trace(directory, "clients", hidden=("hunter2",), content=False, max_bytes=1 << 20)
        request = HttpRequest("POST", "/v1/messages", {"authorization": "Bearer hunter2", "user-agent": "test/1"})
        self.recorder = TraceRecorder(self._trace, request)

    def lines(self) -> list[dict[str, Any]]:
        self._trace.close()
        return [msgspec.json.decode(line) for line in self._trace.path.read_bytes().splitlines()][1:]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def test_an_exchange(recorded: Recorded) -> None:
    it = recorded.recorder
    it.request_body(b"")
    it.request_body(b'{"model": "m", "messages": [{"role": "user", "content": "my prompt"}]}')
    it.head(200, [(b"content-type", b"text/event-stream")])
    it.body(b'event: x\ndata: {"text": "my answer"}\n\ndata: [DONE]\n\n', end=False)
    it.body(b"", end=True)
    it.hung_up()
    lines = recorded.lines()
    assert [line["what"] for line in lines] == [
        *("request", "request body", "response", "response body", "response body", "hung up"),
    ]
    assert {line["exchange"] for line in lines} == {1}
    assert [len(line["json"]) for line in lines if line["what"] == "response body" and line["json"]] == [2]
    assert lines[-2]["end"] is True
    told = str(lines)
    assert not any(secret in told for secret in ("hunter2", "my prompt", "my answer"))
    assert "test/1" in told


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000])
def test_what_is_no_json_is_recorded_by_its_size(recorded: Recorded, body: bytes) -> None:
    recorded.recorder.request_body(body)
    line = recorded.lines()[-1]
    assert line["bytes"] == len(body)
    assert len(msgspec.json.encode(line)) < 1000


def test_a_whole_answer_and_a_sign_of_life(recorded: Recorded) -> None:
    recorded.recorder.body(b'{"choices": []}', end=True)
    recorded.recorder.body(b": keep-alive\n\n", end=False)
    whole, sign = recorded.lines()[-2:]
    assert isinstance(whole["json"], dict)
    assert sign["json"] is None


KEY = "cw-0123456789abcdef"
OPEN = access_for("127.0.0.1", ())
LOCKED = access_for("127.0.0.1", (KEY,), (), ["https://app.example"])
CHAT = "/v1/chat/completions"


def layer(access: Access = OPEN, concurrent: int = 2, trace: Trace | None = None) -> AccessLayer:
    return layer_of(Parts(max_concurrent=2), access, concurrent, trace)


def layer_of(parts: Parts, access: Access = OPEN, concurrent: int = 2, trace: Trace | None = None) -> AccessLayer:
    admission = Admission(CallerLimits(concurrent, 100), lambda: 0.0)
    return AccessLayer(parts.application, access=access, admission=admission, trace=trace)


def accept(
    subject: AccessLayer, method: str = "POST", path: str = CHAT, **headers: str
) -> tuple[Written, AcceptedRequest | None]:
    written, response = writer()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return written, subject.accept(HttpRequest(method, path, named), response)


async def test_a_request_is_accepted_begun_answered_and_left() -> None:
    written, accepted = accept(layer())
    assert accepted is not None
    accepted.begin()
    await accepted.answer()
    accepted.leave()
    assert (written.status, written.body) == (200, b"openai_chat")


def test_places_are_given_back_once() -> None:
    subject = layer()
    accepted = [accept(subject)[1] for _ in range(3)]
    first, second, third = (one for one in accepted if one is not None)
    first.begin()
    second.begin()
    assert refusal(third.begin).kind is ErrorKind.OVERLOADED
    third.leave()  # it never began
    assert refusal(third.begin).kind is ErrorKind.OVERLOADED
    first.leave()
    first.leave()
    third.begin()
    assert refusal(lambda: accept(subject)).kind is ErrorKind.OVERLOADED, "before its body is read"


def test_a_place_that_the_application_refuses_is_given_back_to_the_caller() -> None:
    subject = layer(LOCKED, concurrent=3)
    accepted = [accept(subject, x_api_key=KEY)[1] for _ in range(3)]
    for one in accepted[:2]:
        assert one is not None
        one.begin()
    last = accepted[2]
    assert last is not None
    for _ in range(5):
        assert refusal(last.begin).kind is ErrorKind.OVERLOADED, "and never: three requests of this key"


def test_a_preflight_is_answered_at_once() -> None:
    page = {"origin": "https://app.example", "access_control_request_method": "POST"}
    written, accepted = accept(layer(LOCKED), "OPTIONS", **page)
    assert (accepted, written.status) == (None, 204)
    assert b"access-control-allow-origin: https://app.example" in written.head
    for method, headers in (("OPTIONS", {}), ("POST", page)):
        told = refusal(partial(accept, layer(LOCKED), method, **headers))
        assert told.kind is ErrorKind.ACCESS_DENIED, "this is no question of a browser"


@pytest.mark.parametrize(
    ("method", "path", "open_to_all"),
    [("HEAD", "/", True), ("GET", "/", False), ("GET", "/healthz", True), ("GET", "/v1/healthz", False)],
)
def test_who_needs_no_key(method: str, path: str, open_to_all: bool) -> None:
    if open_to_all:
        assert accept(layer(LOCKED), method, path)[1] is not None
    else:
        assert refusal(lambda: accept(layer(LOCKED), method, path)).kind is ErrorKind.ACCESS_DENIED


async def test_a_page_that_may_gets_its_headers_with_every_answer() -> None:
    written, accepted = accept(layer(LOCKED), origin="https://app.example", x_api_key=KEY)
    assert accepted is not None
    await accepted.answer()
    assert b"vary: origin" in written.head


def test_a_refusal_is_in_the_words_of_its_path() -> None:
    for path, key in ((CHAT, "param"), ("/messages", "details")):
        written, response = writer()
        layer().refuse(path, response, bad_request("no"))
        assert written.status == 400
        assert key in msgspec.json.decode(written.body)["error"]


async def test_who_asks_is_known_to_whoever_answers() -> None:
    request = HttpRequest("POST", CHAT, {"x-api-key": KEY, "user-agent": "opencode/1.0"})
    layer(LOCKED).accept(request, writer()[1])
    assert (request.caller.client, len(request.caller.key)) == ("opencode", 12)


def test_those_who_are_not_let_in_are_told_of_too() -> None:
    parts = Parts()
    request = HttpRequest("POST", CHAT, {"user-agent": "curl/8"})
    layer_of(parts, LOCKED).refuse(request.path, writer()[1], bad_request("no"), request)
    layer_of(parts, LOCKED).refuse("/v1/messages", writer()[1], bad_request("this is not HTTP"))
    first, second = parts.refused.records
    assert (first.method, first.path, first.turn, first.caller) == ("POST", CHAT, True, Caller("", "curl"))
    assert (second.method, second.path, second.turn, second.dialect) == (
        "",
        "/v1/messages",
        False,
        "anthropic_messages",
    )


async def test_what_passes_is_recorded_when_asked_for(tmp_path: Path) -> None:
    trace = Trace(tmp_path, "clients", hidden=(), content=False, max_bytes=10_000)
    written, response = writer()
    accepted = layer(trace=trace).accept(HttpRequest("POST", CHAT, {}), response)
    assert accepted is not None
    response.request_body(b'{"model": "m"}')
    await accepted.answer()
    trace.close()
    lines = [msgspec.json.decode(line) for line in trace.path.read_bytes().splitlines()]
    assert [line["what"] for line in lines] == ["recording", "request", "request body", "response", "response body"]
    assert written.status == 200


TURNS = {
    "/v1/chat/completions": "openai_chat",
    "/messages": "anthropic_messages",
    "/v1/v1/responses": "openai_responses",
}


@pytest.mark.parametrize(("path", "name"), TURNS.items())
async def test_a_turn_goes_to_its_dialect(path: str, name: str) -> None:
    written = await Parts().ask("POST", path)
    assert (written.status, written.body) == (200, name.encode())
    assert b"x-caretway-backend: sim" in written.head


@pytest.mark.parametrize(("given", "kept"), [("mine-1", True), ("", False), ("bad id!", False), ("x" * 129, False)])
async def test_request_ids(given: str, kept: bool) -> None:
    written = await Parts().ask("GET", "/health", x_request_id=given)
    line = next(line for line in written.head if line.startswith(b"x-request-id: "))
    assert line == b"x-request-id: " + given.encode() if kept else line.startswith(b"x-request-id: req_")


async def test_a_refusal_has_its_headers_and_the_words_of_its_path() -> None:
    written = await Parts().ask("PUT", "/v1/messages")
    assert written.status == 405
    assert b"allow: OPTIONS, POST" in written.head
    assert msgspec.json.decode(written.body)["type"] == "error"
    assert (await Parts().ask("GET", "/nothing")).status == 404


async def test_an_error_of_a_handler_is_an_answer() -> None:
    parts = Parts()
    parts.responder.failure = GatewayError(ErrorKind.RATE_LIMITED, "slow down", retry_after=7)
    written = await parts.ask("POST", "/v1/chat/completions")
    assert written.status == 429
    assert b"retry-after: 7" in written.head
    assert b"x-should-retry: true" in written.head


@pytest.mark.seed("C07")
async def test_a_bug_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    parts.responder.failure = RuntimeError("a secret")
    written = await parts.ask("POST", "/v1/chat/completions", x_request_id="mine")
    assert written.status == 500
    assert b'"type":"internal_error"' in written.body and b'"code":"server_error"' in written.body
    assert b"mine" in written.body
    assert b"a secret" not in written.body
    assert "a secret" in caplog.text


async def test_a_path_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Models):
        async def find(self, name: str) -> ModelInfo | None:
            raise RuntimeError(f"no list, asked for {len(name)} characters")

    parts = Parts()
    parts.tenant.models = Broken()
    written = await parts.ask("GET", "/v1/models/x\nERROR forged")
    assert written.status == 500
    assert "/v1/models/x?ERROR?forged failed" in caplog.text
    assert not [line for line in caplog.text.splitlines() if line.startswith("ERROR forged")]


async def test_a_bug_in_the_middle_of_a_stream_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    parts.responder.failure, parts.responder.starts = RuntimeError("bug"), True
    written = await parts.ask("POST", "/v1/chat/completions")
    assert written.aborted
    assert written.data.count(b"HTTP/1.1") == 1
    assert "bug" in caplog.text


async def test_a_refusal_is_told_to_the_observer() -> None:
    parts = Parts()
    parts.responder.failure = GatewayError(ErrorKind.BAD_REQUEST, "no messages", code="missing_messages")
    written = await parts.ask("POST", "/v1/messages", x_request_id="mine")
    await parts.ask("GET", "/v1/nothing" + "x" * 1000)
    first, second = parts.refused.records
    assert (first.request_id, first.method, first.path, first.dialect) == (
        "mine",
        "POST",
        "/v1/messages",
        "anthropic_messages",
    )
    assert (first.status, first.kind, first.code, first.turn) == (
        written.status,
        "bad_request",
        "missing_messages",
        True,
    )
    assert (second.status, second.turn, second.dialect) == (404, False, "")
    assert len(second.path) == MAX_PATH_TOLD


def test_places_are_for_turns_alone() -> None:
    application = Parts(max_concurrent=1).application
    turn = application.routes.resolve(HttpRequest("POST", "/v1/messages", {}))
    models = application.routes.resolve(HttpRequest("GET", "/v1/models", {}))
    application.check(turn)
    application.begin(turn)
    assert refusal(lambda: application.check(turn)).kind is ErrorKind.OVERLOADED
    assert refusal(lambda: application.begin(turn)).kind is ErrorKind.OVERLOADED
    application.begin(models)
    application.leave(models)
    application.leave(turn)
    application.begin(turn)
