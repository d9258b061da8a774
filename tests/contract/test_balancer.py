"""Three gateways behind Debian's haproxy, on Debian's redis-server, in front of one simulator, all processes of their
own: the official SDKs and the client rigs do not notice that there is more than one.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from faults.cluster import Cluster, cluster

ROOT = Path(__file__).parents[2]
SHELL: Any = {
    "type": "function",
    "function": {"name": "shell", "description": "runs", "parameters": {"type": "object", "properties": {}}},
}


async def opened(on: Cluster) -> int:
    """Runs of the simulated Cursor."""
    async with httpx.AsyncClient(trust_env=False) as http:
        stats = (await http.get(f"http://127.0.0.1:{on.upstream}/_sim/stats")).json()
    return int(stats["runs_opened"])


@pytest.mark.all
@pytest.mark.timeout(300)
async def test_a_loop_of_the_official_sdk_is_one_run_whatever_doors_it_takes(tmp_path: Path) -> None:
    prompt = "\n".join(f'sim: call shell {{"step": {n}}}' for n in range(7)) + "\nsim: say done"
    async with cluster(tmp_path) as on:
        sdk = AsyncOpenAI(base_url=f"http://127.0.0.1:{on.door}/v1", api_key="sk-test", max_retries=2)
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
        assert answer.content == "done" and passed >= 4, "round robin: two of three steps arrive at another door"
        assert await opened(on) == 1


@pytest.mark.all
@pytest.mark.timeout(600)
def test_the_rigs_of_quick_clients_pass_through_the_balancer() -> None:
    """Each with at most the runs that one gateway would open."""
    command = [sys.executable, "scripts/clients.py", "--quick", "--cluster", "--mode", "tool"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " 0 failed" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]
