"""Three gateways behind Debian's haproxy, on Debian's redis-server, in front of one simulator, all processes of their
own: clients do not notice that there is more than one, nor that the one which made a response was killed.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from clients.test_acp_agents import OPENCODE
from faults.cluster import Cluster, cluster

SHELL: Any = {
    "type": "function",
    "function": {"name": "shell", "description": "runs", "parameters": {"type": "object", "properties": {}}},
}


async def opened(on: Cluster) -> int:
    """Runs of the simulated Cursor."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        stats = (await http.get(f"http://127.0.0.1:{on.upstream}/_sim/stats")).json()
    return int(stats["runs_opened"])


@pytest.mark.all
@pytest.mark.timeout(300)
async def test_a_loop_of_the_official_sdk_is_one_run_whatever_gateways_it_reaches(tmp_path: Path) -> None:
    prompt = "\n".join(f'sim: call shell {{"step": {n}}}' for n in range(7)) + "\nsim: say done"
    async with cluster(tmp_path) as on:
        sdk = AsyncOpenAI(base_url=f"http://127.0.0.1:{on.balancer_port}/v1", api_key="sk-test", max_retries=2)
        async with sdk:
            said: list[Any] = [{"role": "user", "content": prompt}]
            passed = 0
            for step in range(8):
                raw = await sdk.chat.completions.with_raw_response.create(
                    model="sim-auto", messages=said, tools=[SHELL]
                )
                answer = raw.parse().choices[0].message
                assert raw.headers["x-caretway-session"] == ("resumed" if step else "fresh")
                passed += "x-caretway-passed-to" in raw.headers
                said.append(answer.model_dump(exclude_none=True))
                results = json.dumps(step)
                said += [{"role": "tool", "tool_call_id": c.id, "content": results} for c in answer.tool_calls or ()]
        assert answer.content == "done" and passed >= 4, "round robin: two of three steps arrive at another gateway"
        assert await opened(on) == 1


@pytest.mark.all
@pytest.mark.timeout(300)
async def test_a_stored_response_outlives_the_gateway_that_made_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as on:
        sdk = AsyncOpenAI(base_url=f"http://127.0.0.1:{on.balancer_port}/v1", api_key="sk-test", max_retries=2)
        async with sdk:
            made = await sdk.responses.create(model="sim-auto", input="sim: say kept")
            await kept_in_redis(on)
            os.kill(on.replicas[await maker(on, made.id)].pid, signal.SIGKILL)
            for _ in range(4):  # whatever gateway is left
                assert (await sdk.responses.retrieve(made.id)).output_text == "kept"
            more = await sdk.responses.create(model="sim-auto", input="sim: recall", previous_response_id=made.id)
            assert "sim: say kept" in more.output_text
            assert len((await sdk.responses.input_items.list(more.id)).data) == 3


async def kept_in_redis(on: Cluster) -> None:
    """The end of an answer waits for that only so long."""
    async with asyncio.timeout(30):
        with on.redis.client() as client:
            while not list(client.scan_iter("*:response:*")):
                await asyncio.sleep(0.02)


async def maker(on: Cluster, response_id: str) -> int:
    """Which of the gateways made it."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        texts = [(await http.get(f"http://127.0.0.1:{one.port}/metrics")).text for one in on.replicas]
    ids = [re.search(r'caretway_replica_info{replica="(\w{4})"', text) for text in texts]
    return [found and found[1] for found in ids].index(response_id[5:9])


@pytest.mark.all
@pytest.mark.timeout(600)
@pytest.mark.skipif(not OPENCODE.exists(), reason="opencode is not installed; ./scripts/clients --quick does it")
def test_every_quick_client_runs_its_tool_loop_through_the_balancer() -> None:
    """One Cursor run for each loop: the table of clients says how many they may cost."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "clients.py"
    command = [sys.executable, str(script), "--quick", "--cluster", "--mode", "tool"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0 and "4 passed, 0 failed" in done.stdout, done.stdout + done.stderr
