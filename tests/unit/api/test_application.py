"""From a matched request to its handler: ids, places, refusals, and failures that become a 500."""

import msgspec
import pytest

from caretway.api.application import MAX_PATH_TOLD
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.turn import ModelInfo
from caretway.server.exchange import HttpRequest
from unit.api.parts import Models, Parts, refusal

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
