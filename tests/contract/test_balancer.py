"""Three gateways behind Debian's haproxy, on Debian's redis-server, in front of one simulator, all processes of their
own: the official SDK does not notice that there is more than one. `./scripts/clients --cluster` tries the clients.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from faults.cluster import Cluster, cluster

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
