"""The whole product on real loopback sockets, in this process, in front of a private simulator on its own socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import msgspec

from bounds import bounded
from caretway.config import Settings
from caretway.gateway import Gateway
from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE, Manners

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Answer:
    """One chat completion, streamed or whole, told in the same words."""

    status: int
    headers: httpx.Headers
    text: str = ""
    reasoning: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    finish: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    chunks: tuple[dict[str, Any], ...] = ()
    done: bool = False

    @property
    def message(self) -> dict[str, Any]:
        """The assistant message as a client sends it back."""
        return {"role": "assistant", "content": self.text or None} | (
            {"tool_calls": list(self.calls)} if self.calls else {}
        )

    @property
    def session(self) -> str:
        return self.headers["x-caretway-session"]


class Client:
    """A client of one gateway, and a look at the simulator behind it."""

    def __init__(self, gateway: Gateway, simulator: Simulator, http: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.simulator = simulator
        self.http = http

    def stats(self) -> dict[str, int]:
        return dict(self.simulator.stats.as_dict())

    async def chat(
        self,
        messages: str | list[dict[str, Any]],
        *,
        stream: bool = False,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": "sim-auto", "messages": messages, "stream": stream, **more}
        if not stream:
            return whole(await self.http.post(CHAT, json=body, headers=headers))
        body.setdefault("stream_options", {"include_usage": True})
        async with self.http.stream("POST", CHAT, json=body, headers=headers) as response:
            return streamed(response.status_code, response.headers, await response.aread())


def whole(response: httpx.Response) -> Answer:
    body = response.json()
    if "error" in body:
        return Answer(response.status_code, response.headers, error=body["error"])
    choice = body["choices"][0]
    message = choice["message"]
    return Answer(
        response.status_code,
        response.headers,
        message["content"] or "",
        message.get("reasoning_content", ""),
        tuple(message.get("tool_calls", ())),
        choice["finish_reason"],
        body.get("usage"),
        done=True,
    )


def streamed(status: int, headers: httpx.Headers, data: bytes) -> Answer:
    if not headers["content-type"].startswith("text/event-stream"):
        return Answer(status, headers, error=msgspec.json.decode(data)["error"])
    chunks: list[dict[str, Any]] = []
    done = False
    for block in data.decode().split("\n\n"):
        if block.startswith("data: "):
            assert not done, "something follows [DONE]"
            if block == "data: [DONE]":
                done = True
            else:
                chunks.append(msgspec.json.decode(block.removeprefix("data: ")))
    return accumulated(status, headers, chunks, done)


def accumulated(status: int, headers: httpx.Headers, chunks: list[dict[str, Any]], done: bool) -> Answer:
    text, reasoning, finish, usage, error = "", "", None, None, None
    calls: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        error = chunk.get("error", error)
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            delta = choice["delta"]
            text += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            finish = choice["finish_reason"] or finish
            for piece in delta.get("tool_calls", ()):
                call = calls.setdefault(piece["index"], {"function": {"name": "", "arguments": ""}})
                call |= {key: piece[key] for key in ("id", "type") if key in piece}
                for key, value in piece["function"].items():
                    call["function"][key] += value
    return Answer(status, headers, text, reasoning, tuple(calls.values()), finish, usage, error, tuple(chunks), done)


@asynccontextmanager
async def gateway(
    transport: str = "auto", *, manners: Manners = LIVE_AT_ONCE, **settings: Any
) -> AsyncIterator[Client]:
    """A gateway on the `agent` backend, pointed at a simulator of its own that listens on a socket."""
    async with simulated(manners) as (simulator, port), gateway_to(simulator, port, transport, **settings) as client:
        yield client


@asynccontextmanager
async def simulated(manners: Manners = LIVE_AT_ONCE) -> AsyncIterator[tuple[Simulator, int]]:
    simulator = Simulator(manners=manners)
    try:
        yield simulator, await simulator.listen("127.0.0.1", 0)
    finally:
        await simulator.aclose()


@asynccontextmanager
async def gateway_to(
    simulator: Simulator, port: int, /, transport: str = "auto", **settings: Any
) -> AsyncIterator[Client]:
    known: dict[str, Any] = {
        "port": 0,
        "backend": "agent",
        "agent_url": f"http://127.0.0.1:{port}",
        "agent_transport": transport,
        "access_token": "test-token",
    }
    with TemporaryDirectory() as data_dir, bounded(settings) as mine:
        async with (
            Gateway(Settings(**{"data_dir": Path(data_dir)} | known | mine)) as running,
            httpx.AsyncClient(base_url=running.base_url, timeout=60, trust_env=False, verify=False) as http,
        ):
            yield Client(running, simulator, http)


def tool(name: str, *properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in properties}}
    return {"type": "function", "function": {"name": name, "description": f"{name} (test)", "parameters": schema}}


def result(call: dict[str, Any], content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": content}
