"""Kill the gateway between two turns: the next one continues, from the file the first one left."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
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


def wait_for_the_store(path: Path) -> None:
    """Conversations are written a moment after the answer: see that moment pass."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with closing(sqlite3.connect(path)) as store:
            if store.execute("SELECT count(*) FROM conversations").fetchone()[0]:
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
