"""What is a tool call of the bridge's and what is not. The server itself is shown by the contract tests."""

import json

import pytest

from caretway.backends.cursor_sdk.callbacks import PATH, BadCallback, Invocation, read_call
from caretway.backends.cursor_sdk.supervisor import replaced

KEY = {"authorization": "Bearer token"}


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


GOOD = body(agentId="a", toolName="left", args={"k": [1, None, "ä"]}, toolCallId="c1")


def test_a_call() -> None:
    assert read_call("POST", PATH, KEY, GOOD, "token") == Invocation("a", "left", '{"k":[1,null,"ä"]}', "c1")
    bare = read_call("POST", PATH, KEY, body(agentId="a", toolName="left"), "token")
    assert (bare.arguments, bare.call_id) == ("{}", "")


@pytest.mark.parametrize(
    ("method", "path", "headers", "data", "status"),
    [
        ("GET", PATH, KEY, GOOD, 404),
        ("POST", "/other", KEY, GOOD, 404),
        ("POST", PATH, {}, GOOD, 401),
        ("POST", PATH, {"authorization": "Bearer tokem"}, GOOD, 401),
        ("POST", PATH, KEY, b"{", 400),
        ("POST", PATH, KEY, b"\xff", 400),
        ("POST", PATH, KEY, b"[]", 400),
        ("POST", PATH, KEY, body(agentId="a"), 400),
        ("POST", PATH, KEY, body(agentId="a", toolName="left", args=[1]), 400),
        ("POST", PATH, KEY, body(agentId=1, toolName="left"), 400),
    ],
)
def test_everything_else(method: str, path: str, headers: dict[str, str], data: bytes, status: int) -> None:
    with pytest.raises(BadCallback) as refused:
        read_call(method, path, headers, data, "token")
    assert refused.value.status == status


def test_the_watcher_gives_the_bridge_our_callback() -> None:
    given = ["--workspace", "/w", "--url", "theirs", "--token", "-url"]
    assert replaced(given, {"--url": "ours", "--token": "t"}) == ["--workspace", "/w", "--url", "ours", "--token", "t"]
    assert replaced(["--url"], {"--url": "ours"}) == ["--url"]
