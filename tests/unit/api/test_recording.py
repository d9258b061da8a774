"""What of an exchange stands in a trace: shapes and sizes, never what was said."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from caretway.api.recording import TraceRecorder
from caretway.observe.trace import Trace
from caretway.server.exchange import HttpRequest


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
