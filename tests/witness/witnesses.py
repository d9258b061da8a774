"""Two public clients that people use with the real Cursor: how each is installed, started and asked.

Their packages come from the public registry, in fixed versions, without their install scripts; nothing of them is kept
in this repository. Both are told a story in the same words and give back what their user would see.
"""

import asyncio
import contextlib
import http.client
import json
import os
import platform
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent
BUN = "bun@1.4.0"
START_S = 60.0


@dataclass(frozen=True)
class Seen:
    """What one turn showed to the client's user."""

    text: str = ""
    thought: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Handed to the user: id, name, args."""
    ran: list[dict[str, Any]] = field(default_factory=list)
    """Run by the client itself, inside the turn: also from and to, in milliseconds."""
    deltas: list[float] = field(default_factory=list)
    """When text came, in milliseconds."""
    error: str = ""
    output: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Place:
    """A simulated Cursor."""

    url: str
    http: str
    authority: str = ""
    token: str = ""


class WitnessFailed(Exception):
    """The client itself could not be installed, started or asked."""


def bun(home: Path) -> str:
    system = {"Linux": "linux", "Darwin": "darwin"}[platform.system()]
    machine = "aarch64" if platform.machine() in ("arm64", "aarch64") else "x64"
    return str(home / "node_modules" / "@oven" / f"bun-{system}-{machine}" / "bin" / "bun")


class Witness:
    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    overrides: ClassVar[dict[str, str]] = {}
    runs_tools: ClassVar[bool]
    """Tools are run inside the turn, on the open stream; else a call ends the turn and its result is replayed."""
    learns_max_mode: ClassVar[bool] = False
    """Takes from the list of models which of them need max mode."""

    def __init__(self, home: Path, place: Place, directory: Path) -> None:
        self.home = home
        self.place = place
        self.directory = directory
        self.model = ""
        self._process: asyncio.subprocess.Process | None = None

    def wire(self, tool: str) -> str:
        """The name under which the server is offered a tool."""
        return tool

    def environment(self, **more: str) -> dict[str, str]:
        own = self.directory / "home"
        own.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
        if self.place.authority:
            kept["NODE_EXTRA_CA_CERTS"] = self.place.authority
        return {**kept, "HOME": str(own), "DO_NOT_TRACK": "1", **more}

    async def start(self) -> None:
        raise NotImplementedError

    async def models(self) -> list[str]:
        raise NotImplementedError

    async def turn(self, story: Sequence[dict[str, Any]], **how: Any) -> Seen:
        """`how`: tools, answers, system, model, cancel, conversation, effort."""
        raise NotImplementedError

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def restart(self) -> None:
        await self.close()
        await self.start()

    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace")[-1500:] if path.exists() else ""


class PiAi(Witness):
    """A library: it runs tools on the open stream, like the official client, or hands them to its caller."""

    name = "pi-ai"
    packages: ClassVar = ("@oh-my-pi/pi-ai@18.2.11", BUN)
    # The registry lacks 18.2.11 of these two helpers; the provider itself is 18.2.11.
    overrides: ClassVar = {"@oh-my-pi/pi-natives": "18.2.3", "@oh-my-pi/pi-utils": "18.2.3"}
    runs_tools = True
    learns_max_mode = True

    async def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(bun(self.home), "run", str(HERE / "pi_ai.ts"), str(self.home), self.place.url, self.place.token),
                cwd=self.directory,
                env=self.environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=64 * 1024 * 1024,
            )

    async def _ask(self, **ask: Any) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WitnessFailed("pi-ai does not run")
        process.stdin.write(json.dumps(ask).encode() + b"\n")
        await process.stdin.drain()
        while line := await process.stdout.readline():
            if line.startswith(b"\t"):
                answer: dict[str, Any] = json.loads(line)
                if "broke" in answer:
                    raise WitnessFailed(answer["broke"])
                return answer
        raise WitnessFailed(f"pi-ai ended: {self.log()}")

    async def models(self) -> list[str]:
        return list((await self._ask(models=True))["models"])

    async def turn(self, story: Sequence[dict[str, Any]], **how: Any) -> Seen:
        ask = {"tools": [], "model": self.model, **{name: value for name, value in how.items() if value is not None}}
        return Seen(**await self._ask(story=list(story), **ask))


class Opencodex(Witness):
    """A gateway of its own, asked over its chat completions: it ends the run at a call and replays the result."""

    name = "opencodex"
    packages: ClassVar = ("@bitkyc08/opencodex@2.63.0", BUN)
    runs_tools = False
    port = 0

    def wire(self, tool: str) -> str:
        return f"ocx_client_{tool}"

    async def start(self) -> None:
        settings, codex = self.directory / "opencodex", self.directory / "codex"
        for path in (settings, codex):
            path.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        provider: dict[str, Any] = {
            "adapter": "cursor",
            "baseUrl": self.place.url,
            "authMode": "key",
            "apiKey": self.place.token,
        }
        provider |= {"allowPrivateNetwork": True} | (
            {"upstreamHttpVersion": "http1.1"} if self.place.http == "1.1" else {}
        )
        config = {"port": self.port, "hostname": "127.0.0.1", "codexAutoStart": False, "defaultProvider": "sim"}
        config |= {"providers": {"sim": provider}, "claudeCode": {"intercept": {"enabled": False}}}
        (settings / "config.json").write_text(json.dumps(config))
        with (self.directory / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(bun(self.home), "run", str(HERE / "opencodex.ts"), str(self.home), "serve", str(self.port)),
                cwd=self.directory,
                env=self.environment(OPENCODEX_HOME=str(settings), CODEX_HOME=str(codex)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.returncode is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.1)  # another program's port: there is nothing to wait on
        raise WitnessFailed(f"opencodex did not start: {self.log()}")

    async def models(self) -> list[str]:
        place = self.place
        process = await asyncio.create_subprocess_exec(
            *(
                bun(self.home),
                "run",
                str(HERE / "opencodex.ts"),
                str(self.home),
                "models",
                place.url,
                place.token,
                place.http,
            ),
            cwd=self.directory,
            env=self.environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, complaint = await process.communicate()
        lines = [line for line in printed.decode().splitlines() if line.startswith("\t")]
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {"ok": False}
        if not found["ok"]:
            raise WitnessFailed(f"no models: {found} {complaint.decode()[-500:]}")
        return list(found["models"])

    async def turn(self, story: Sequence[dict[str, Any]], **how: Any) -> Seen:
        system = [{"role": "system", "content": how["system"]}] if how.get("system") else []
        body: dict[str, Any] = {
            "model": f"sim/{how.get('model') or self.model}",
            "messages": system + [_as_chat(item) for item in story],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if how.get("tools"):
            body["parallel_tool_calls"] = True
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": t["name"], "description": t["name"], "parameters": t["schema"]},
                }
                for t in how["tools"]
            ]
        if how.get("effort"):
            body["reasoning_effort"] = how["effort"]
        headers = {"Content-Type": "application/json"}
        if how.get("conversation"):
            headers["session_id"] = how["conversation"]
        return await asyncio.to_thread(self._post, body, headers, bool(how.get("cancel")))

    def _post(self, body: dict[str, Any], headers: dict[str, str], cancel: bool) -> Seen:
        began = time.monotonic()
        said, thought, error, output = "", "", "", 0
        deltas: list[float] = []
        calls: dict[int, dict[str, Any]] = {}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return Seen(error=f"HTTP {answer.status} {answer.read().decode()[:600]}")
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                error = json.dumps(chunk["error"]) if "error" in chunk else error
                output = (chunk.get("usage") or {}).get("completion_tokens", output)
                for choice in chunk.get("choices", ()):
                    delta = choice.get("delta", {})
                    thought += delta.get("reasoning_content") or delta.get("reasoning") or ""
                    if delta.get("content"):
                        said += delta["content"]
                        deltas.append((time.monotonic() - began) * 1000)
                    for piece in delta.get("tool_calls", ()):
                        call = calls.setdefault(piece["index"], {"id": "", "name": "", "args": ""})
                        call["id"] = piece.get("id") or call["id"]
                        call["name"] = piece["function"].get("name") or call["name"]
                        call["args"] += piece["function"].get("arguments") or ""
                if cancel and said:
                    break
        handed = [{**call, "args": json.loads(call["args"] or "{}")} for _, call in sorted(calls.items())]
        return Seen(said, thought, handed, [], deltas, error, output, time.monotonic() - began)


def _as_chat(item: dict[str, Any]) -> dict[str, Any]:
    if "user" in item:
        words = {"type": "text", "text": item["user"]}
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{item.get('picture')}"}}
        return {"role": "user", "content": [words, url] if item.get("picture") else item["user"]}
    if "result" in item:
        return {"role": "tool", "tool_call_id": item["id"], "content": item["result"]}
    calls = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["args"])}}
        for c in item.get("calls", ())
    ]
    return {"role": "assistant", "content": item.get("said") or None} | ({"tool_calls": calls} if calls else {})


def temporary() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="caretway-witness-")
