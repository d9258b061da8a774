"""A noisy run, with everything that can be written down switched on; then everything that was written is searched."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from contract.gateways import CHAT, simulated, tool

ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+")
CURSOR_KEY: Final = "key_0123456789abcdef0123456789abcdef"
GATEWAY_KEY: Final = "a-plain-word-as-the-gateways-key"
WRONG_KEY: Final = "sk-wrong-0123456789abcdefghijklmnop"
PROMPT, RESULT, SYSTEM = "marzipan-prompt", "marzipan-result", "marzipan-system"
SECRETS: Final = (CURSOR_KEY, GATEWAY_KEY, WRONG_KEY)
CONTENT: Final = (PROMPT, RESULT, SYSTEM)


@contextmanager
def serving(port: int, home: Path, *flags: str) -> Iterator[tuple[str, Path]]:
    """A gateway process; its output is in the file when the block is over."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CURSOR_API_KEY": CURSOR_KEY,
        "CARETWAY_API_KEY": GATEWAY_KEY,
    }
    command = [sys.executable, "-X", "dev", "-m", "caretway", "serve", "--port", "0", "--log-level", "debug"]
    command += [
        "--agent-url",
        f"http://127.0.0.1:{port}",
        "--data-dir",
        str(home / "data"),
        "--backend",
        "agent",
        "--agent-retries",
        "0",
        *flags,
    ]
    output = home / "output"
    with output.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process:
        try:
            while not (found := ADDRESS.search(output.read_text())):
                assert process.poll() is None, output.read_text()
                time.sleep(0.02)  # a file that another process writes has no event
            yield found[0], output
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


async def make_noise(url: str) -> None:
    """Good and bad requests, tool loops, failures of every kind, wrong keys in every place."""
    right = {"authorization": f"Bearer {GATEWAY_KEY}"}
    system = {"role": "system", "content": SYSTEM}
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False, verify=False) as http:

        async def ask(text: str, headers: dict[str, str] = right, **more: Any) -> httpx.Response:
            messages = [system, {"role": "user", "content": f"{PROMPT}\n{text}"}]
            return await http.post(CHAT, json={"model": "sim-auto", "messages": messages, **more}, headers=headers)

        assert (await ask("sim: say fine")).status_code == 200
        assert (await ask("sim: think deep\nsim: say fine", stream=True)).status_code == 200
        script = f'sim: call look {{"path": "{PROMPT}"}}\nsim: result'
        called = (await ask(script, tools=[tool("look", "path")])).json()
        message = called["choices"][0]["message"]
        answered = [
            system,
            {"role": "user", "content": f"{PROMPT}\n{script}"},
            message,
            {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": RESULT},
        ]
        body = {"model": "sim-auto", "messages": answered, "tools": [tool("look", "path")]}
        assert RESULT in (await http.post(CHAT, json=body, headers=right)).text
        for failure in ("unauthenticated", "usage_limit", "bad_model", "internal", "unavailable"):
            assert (await ask(f"sim: fail {failure}")).status_code >= 400
        for wrong in ({"authorization": f"Bearer {WRONG_KEY}"}, {"x-api-key": WRONG_KEY}, {"cookie": WRONG_KEY}):
            refused = await ask("sim: say no", headers=wrong)
            assert refused.status_code == 401
            assert not any(secret in refused.text for secret in SECRETS)
        assert (
            await ask("sim: say fine", headers=right | {"x-secret": WRONG_KEY, "cookie": WRONG_KEY})
        ).status_code == 200
        await ask("sim: say fine", temperature=PROMPT)
        await http.post(CHAT, content=f'{{"broken": "{PROMPT}', headers=right)
        await http.post(
            "/v1/messages", json={"model": "sim-auto", "max_tokens": 5, "messages": answered}, headers=right
        )
        await http.post("/v1/responses", json={"model": "sim-auto", "input": PROMPT}, headers=right)
        for path in ("/health", "/metrics", "/v1/models", "/openapi.json", "/nope"):
            seen = await http.get(path, headers=right)
            assert not any(secret in seen.text for secret in SECRETS), path
        assert (await http.get("/health", headers=right | {"x-long": WRONG_KEY * 3000})).status_code == 431
        assert (await http.get("/health", headers=right | {"host": f"{WRONG_KEY}.example"})).status_code == 403


def found_in(words: tuple[str, ...], *places: Path) -> list[str]:
    """Where one of the words stands, in any file below the places, however the bytes around it look."""
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*")) if file.is_file()]
    assert files
    return [f"{word} in {file.name}" for file in files for word in words if word.encode() in file.read_bytes()]


async def test_a_noisy_run_writes_no_secret_down(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    async with simulated() as (_, port):
        with serving(port, tmp_path, "--trace", str(trace)) as (url, output):
            await make_noise(url)
    text = output.read_text()
    assert "wire traffic is recorded" in text
    assert found_in(SECRETS, output, trace, tmp_path / "data") == []
    assert found_in(CONTENT, output, trace) == []
    lines = [json.loads(line) for file in trace.iterdir() for line in file.read_text().splitlines()]
    kinds = {line["what"] for line in lines}
    assert {"request", "request body", "response", "response body", "run", "sent", "received", "call"} <= kinds
    told = json.dumps(lines)
    assert "interaction_update.text_delta" in told
    assert "chat.completion.chunk" in told
    for place in (trace, *trace.iterdir()):
        assert place.stat().st_mode & 0o077 == 0


async def test_with_content_a_recording_still_has_no_secret(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    async with simulated() as (_, port):
        with serving(port, tmp_path, "--trace", str(trace), "--trace-content") as (url, output):
            await make_noise(url)
    assert "WITH prompts" in output.read_text()
    assert found_in(SECRETS, output, trace) == []
    assert found_in(CONTENT, output) == []
    assert found_in((PROMPT,), trace) != []


def test_settings_are_shown_without_their_secrets(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CURSOR_API_KEY": CURSOR_KEY,
        "CARETWAY_API_KEY": GATEWAY_KEY,
    }
    for form in ([], ["--json"]):
        command = [sys.executable, "-m", "caretway", "config", *form]
        shown = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
        assert not any(secret in shown.stdout + shown.stderr for secret in SECRETS)
        assert "CARETWAY_API_KEY" in shown.stdout
