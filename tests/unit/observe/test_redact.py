"""What may be written down: texts, headers, bodies, failures, recordings."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.observe.redact import HIDDEN, Redactor
from caretway.observe.trace import Trace

SECRET = "correct horse battery"
PLAIN = Redactor([SECRET, "short"], salt=b"salt")
FULL = Redactor([SECRET], content=True, salt=b"salt")
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"before {SECRET} after",
        f"Authorization: Bearer {JWT}",
        "authorization: bearer abc",
        f"token={JWT}",
        "key_0123456789abcdef",
        "sk-ant-0123456789abcdef",
        "cw-0123456789abcdefghijk",
        "{'x-api-key': 'whatever it is'}",
        "(b'authorization', b'Basic abc')",
    ],
)
def test_secrets_in_a_line(text: str) -> None:
    shown = PLAIN.text(text)
    assert HIDDEN in shown
    for word in (SECRET, JWT, "0123456789abcdef", "whatever", "abc"):
        assert word not in shown


def test_other_lines_stay_as_they_are() -> None:
    for text in ("short words stay", "the key is wrong", "the bearer of news", "task-keyring done"):
        assert PLAIN.text(text) in (text, text.replace("of", HIDDEN))


def test_headers() -> None:
    shown = PLAIN.headers([("User-Agent", "curl/8"), ("cookie", "a=b"), ("authorization", "Bearer x"), ("x-new", "1")])
    assert shown == {
        "User-Agent": "curl/8",
        "cookie": "[3 characters]",
        "authorization": "[8 characters]",
        "x-new": "[1 characters]",
    }


BODY = {
    "model": "sim-auto",
    "stream": True,
    "messages": [
        {"role": "user", "content": f"tell me {SECRET}"},
        {"role": "tool", "content": [{"type": "text", "text": "x y"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"properties": {"my secret name": {}}}}}],
    "input": {"my secret name": 1},
}


def test_bodies_keep_their_shape_and_lose_their_content() -> None:
    shown = PLAIN.value(BODY)
    assert isinstance(shown, dict)
    assert (shown["model"], shown["stream"]) == ("sim-auto", True)
    assert shown["messages"][0]["role"] == "user"
    told = json.dumps(shown)
    for word in ("tell", "horse", "x y", "look", "my secret name"):
        assert word not in told
    assert "29 characters" in told
    assert PLAIN.value(BODY) == shown  # equal texts can be recognised
    assert Redactor(salt=b"other").value(BODY) != shown  # within one recording only


def test_with_content_only_the_secrets_go() -> None:
    told = json.dumps(FULL.value(BODY))
    assert "tell me" in told
    assert "my secret name" in told
    assert "horse" not in told


SPOILED = st.text(max_size=20) | st.builds("{}{}{}".format, st.text(max_size=9), st.just(SECRET), st.text(max_size=9))
"""Texts, some of them with the secret inside."""


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | SPOILED, lambda x: st.lists(x) | st.dictionaries(SPOILED, x))
)
def test_no_json_leaks_a_secret(value: object) -> None:
    """Wherever the secret stands, as a value or as a key."""
    for redactor in (PLAIN, FULL):
        assert SECRET not in repr(redactor.value(value))


def test_a_recording(tmp_path: Path) -> None:
    place = tmp_path / "new" / "trace"
    trace = Trace(place, "clients", hidden=[SECRET], content=False, max_bytes=400, clock=lambda: 0.5)
    other = Trace(place, "clients", hidden=[], content=False, max_bytes=400, clock=lambda: 0.5)
    assert trace.path != other.path
    other.close()
    assert stat.S_IMODE(trace.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for number in range(20):
        trace.write("request", exchange=trace.number(), path=f"/{number}")
    lines = [json.loads(line) for line in trace.path.read_text().splitlines()]
    assert lines[0] == {"at": 0.5, "what": "recording", "side": "clients", "content": False}
    assert lines[1] == {"at": 0.5, "what": "request", "exchange": 1, "path": "/0"}
    assert lines[-1]["what"] == "the recording has reached its limit"
    assert trace.path.stat().st_size < 500
    trace.close()
    trace.write("nothing happens")
