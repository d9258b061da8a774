"""The real `openai` package in a tool loop over an upstream that speaks text only."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from caretway.config import Settings
from caretway.gateway import Gateway
from caretway_sim import Simulator

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": f"{name} two numbers", "parameters": SCHEMA}}
    for name in ("add", "multiply")
]
WORK = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
SCRIPT = (
    'sim: say I calculate.\nsim: call add {"a": 2, "b": 3} & multiply {"a": 2, "b": 3}\n'
    'sim: call multiply {"a": 5, "b": 6}\nsim: say The result is\nsim: result'
)


@pytest.fixture
async def sdk(tmp_path: Path) -> AsyncIterator[AsyncOpenAI]:
    simulator = Simulator()
    port = await simulator.listen("127.0.0.1", 0)
    settings = Settings(
        port=0, backend="legacy-chat", agent_url=f"http://127.0.0.1:{port}", access_token="test", data_dir=tmp_path
    )
    try:
        async with (
            Gateway(settings) as gateway,
            AsyncOpenAI(base_url=f"{gateway.base_url}/v1", api_key="sk-test", max_retries=0, timeout=30) as client,
        ):
            yield client
    finally:
        await simulator.aclose()


async def ask(sdk: AsyncOpenAI, messages: list[Any], stream: bool) -> Any:
    if not stream:
        return (await sdk.chat.completions.create(model="sim-auto", messages=messages, tools=TOOLS)).choices[0]
    async with sdk.chat.completions.stream(model="sim-auto", messages=messages, tools=TOOLS) as events:
        async for _event in events:
            pass
        return (await events.get_final_completion()).choices[0]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_two_tools_in_two_steps(sdk: AsyncOpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "system", "content": "Calculate."}, {"role": "user", "content": SCRIPT}]
    steps = []
    while True:
        choice = await ask(sdk, messages, stream)
        messages.append(choice.message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        if choice.finish_reason != "tool_calls":
            break
        steps.append([call.function.name for call in choice.message.tool_calls])
        for call in choice.message.tool_calls:
            worked = WORK[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(worked)})
    assert steps == [["add", "multiply"], ["multiply"]]
    assert (choice.finish_reason, choice.message.content) == ("stop", "The result is\n30")
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["5", "6", "30"]
