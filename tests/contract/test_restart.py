"""Kill the gateway between two turns: the next one continues, from the file the first one left. So do stored responses,
for the key that made them and for no other."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def running(*command: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `caretway` process and its address."""
    words = [sys.executable, "-m", "caretway", *command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | environment) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield process, found.group()
                    break
            else:
                raise AssertionError(f"{command[0]} ended without an address")
        finally:
            process.kill()


def chat(url: str, messages: list[dict[str, Any]]) -> tuple[str, str]:
    body = json.dumps({"model": "sim-auto", "messages": messages}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
        return answer.headers["x-caretway-session"], text


def wait_for_the_store(path: Path, query: str = "SELECT count(*) FROM conversations") -> None:
    """Conversations are written a moment after the answer: see that moment pass."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if path.exists():
            with closing(sqlite3.connect(path)) as store, suppress(sqlite3.OperationalError):
                if store.execute(query).fetchone()[0]:
                    return
        time.sleep(0.02)
    raise AssertionError("the conversation was not written")


def test_a_killed_gateway_costs_no_conversation(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "sim: say The codeword is EGRET"}]
    with running("simulate", "--port", "0") as (_, simulator):
        serve = ("serve", "--port", "0", "--agent-url", simulator, "--data-dir", str(tmp_path))
        with running(*serve, CARETWAY_ACCESS_TOKEN="token") as (gateway, url):
            _, text = chat(url, messages)
            wait_for_the_store(tmp_path / "conversations.sqlite")
            gateway.send_signal(signal.SIGKILL)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "sim: recall"}]
        with running(*serve, CARETWAY_ACCESS_TOKEN="token") as (_, url):
            session, text = chat(url, messages)
    assert session == "continued"
    assert "EGRET" in text


ANNA, BOB = "cw-key-of-anna-0123456789", "cw-key-of-bob-0123456789"


def call(url: str, key: str, method: str, path: str, **body: Any) -> tuple[int, Any]:
    data = json.dumps(body).encode() if body else None
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/v1/responses{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def test_a_stored_response_outlives_a_kill_and_is_its_owners_alone(tmp_path: Path) -> None:
    keys, file = tmp_path / "keys", tmp_path / "data" / "responses.sqlite"
    keys.write_text(f"{ANNA}\n{BOB}\n")
    with running("simulate", "--port", "0") as (_, simulator):
        data = ("--data-dir", str(file.parent), "--api-key-file", str(keys))
        serve = ("serve", "--port", "0", "--agent-url", simulator, *data)
        with running(*serve, CARETWAY_ACCESS_TOKEN="token") as (gateway, url):
            said = {"id": "msg_of_anna", "role": "user", "content": "sim: say The codeword is EGRET"}
            status, first = call(url, ANNA, "POST", "", model="sim-auto", input=[said])
            assert status == 200
            wait_for_the_store(file, "SELECT count(*) FROM responses")
            gateway.send_signal(signal.SIGKILL)
        assert file.stat().st_mode & 0o777 == 0o600
        name = first["id"]
        with running(*serve, CARETWAY_ACCESS_TOKEN="token") as (gateway, url):
            assert call(url, ANNA, "GET", f"/{name}") == (200, first)
            more = {"model": "sim-auto", "input": "sim: recall", "previous_response_id": name}
            assert call(url, BOB, "POST", "", **more)[1]["error"]["code"] == "previous_response_not_found"
            status, second = call(url, ANNA, "POST", "", **more)
            assert (status, "EGRET" in json.dumps(second["output"])) == (200, True)
            told_by_id = {"model": "sim-auto", "input": [{"type": "item_reference", "id": "msg_of_anna"}]}
            assert call(url, BOB, "POST", "", **told_by_id)[1]["error"]["code"] == "item_not_found"
            assert call(url, ANNA, "POST", "", **told_by_id)[0] == 200
            for method, path in (("GET", ""), ("GET", "/input_items"), ("DELETE", "")):
                assert call(url, BOB, method, f"/{name}{path}")[0] == 404
            assert call(url, ANNA, "GET", f"/{name}/input_items")[1]["data"][0]["id"] == "msg_of_anna"
            assert call(url, ANNA, "DELETE", f"/{name}") == (200, {"id": name, "object": "response", "deleted": True})
            gateway.send_signal(signal.SIGKILL)
        with running(*serve, CARETWAY_ACCESS_TOKEN="token") as (_, url):
            assert call(url, ANNA, "GET", f"/{name}")[0] == 404
            assert call(url, ANNA, "POST", "", **more)[1]["error"]["code"] == "previous_response_not_found"
