"""The sdk route, per tool step: what the gateway adds to the SDK's process, which is also driven without a gateway.

A step has two calls. The simulated Cursor says how many there are, so nobody waits for more of them.
"""

import asyncio
import json
import secrets
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from caretway.backends.builtin_tools.policy import MCP_TOOL_CALLS
from caretway.backends.sdk.backend import find_sdk
from caretway.backends.sdk.bridge import egress, node_command

from ..extras import why_missing
from ..ledger import Ledger
from ..load import PATIENCE_S, WrongAnswer
from ..processes import TargetFailed, process_cpu_s
from ..sdk import MODEL, TOOLS, TWO, script, sdk_gateway
from ..sizes import Sizes
from ..targets import House, stub
from ..tool_loop import Steps, compared, tool_loop


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    if reason := why_missing("sdk"):
        ledger.note(f"the sdk route was left out: {reason}")
        return
    with ExitStack() as stack:
        simulator = stub("counting_simulator", house.folder)
        stack.callback(simulator.stop)
        try:
            gateway = sdk_gateway("caretway-sdk", simulator, house.folder)
        except TargetFailed as failure:
            ledger.note(f"the sdk route was left out: {failure}")
            return
        stack.callback(gateway.stop)
        bridge = await SdkProcess.start(simulator.url, house.folder)
        try:
            prompt = script(TWO, sizes.steps)
            for number in range(-1, sizes.rounds):
                direct = await bridge.tool_loop(prompt, sizes.steps)
                through = await tool_loop(gateway, MODEL, prompt, sizes.steps, tools=TOOLS)
                if number >= 0:  # what is done once is done by then
                    compared(ledger, "sdk", direct, through)
        finally:
            await bridge.stop()


class SdkProcess:
    """The SDK's process as the gateway starts it, and nobody in between: calls are answered at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._run = 0

    @classmethod
    async def start(cls, url: str, folder: Path) -> "SdkProcess":
        root = folder / "sdk-direct"
        root.mkdir()
        command = node_command(find_sdk(), root, egress([url], stand_in=True), backend_url=url)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command.argv, cwd=command.cwd, env=dict(command.environment), stdin=pipe, stdout=pipe, limit=2**24
        )
        bridge = cls(process)
        await bridge._heard()  # it is ready
        return bridge

    async def tool_loop(self, prompt: str, steps: int) -> Steps:
        self._run += 1
        self._tell(op="open", **_asked(prompt))
        times: list[float] = []
        used: list[float] = []
        told = time.perf_counter()
        for _ in range(steps):
            calls = [await self._call() for _ in range(2)]
            times.append((time.perf_counter() - told) * 1000)
            used.append(process_cpu_s(self._process.pid))
            told = time.perf_counter()
            for call in calls:
                self._tell(op="answer", id=call, value={"content": [{"type": "text", "text": "ok"}], "isError": False})
        while (frame := await self._heard())["t"] != "over":
            pass
        if frame["status"] != "finished":
            raise WrongAnswer(f"the SDK's process: {frame}")
        return Steps(times[1:], (used[-1] - used[0]) * 1000 / (steps - 1))

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends with its input
        await self._process.wait()

    async def _call(self) -> int:
        while (frame := await self._heard())["t"] != "call":
            if frame["t"] == "over":
                raise WrongAnswer(f"the SDK's process: {frame}")
        return int(frame["id"])

    def _tell(self, **frame: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"n": self._run, **frame}).encode() + b"\n")

    async def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        if not line:
            raise WrongAnswer("the SDK's process is gone")
        frame: dict[str, Any] = json.loads(line)
        return frame


def _asked(prompt: str) -> dict[str, Any]:
    described = (tool["function"] for tool in TOOLS)
    return {
        "key": "bench",
        "agent": f"agent-{uuid.uuid4()}",
        "blobKey": secrets.token_hex(32),
        "root": None,
        "blobs": [],
        "text": prompt,
        "images": [],
        "model": {"id": MODEL, "params": []},
        "tools": [
            {"name": one["name"], "description": one["name"], "inputSchema": one["parameters"]} for one in described
        ],
        "allowed": MCP_TOOL_CALLS.split(","),
        "workspace": "",
    }
