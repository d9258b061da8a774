"""The tools of real clients, and of libraries that write schemas, on every family of models: Cursor takes them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from caretway.backends.agent_api.tool_schemas import RULES
from caretway.core.request import ToolSpec
from caretway.simulator import catalogue
from caretway.simulator.manners import LIVE
from caretway.simulator.schema_rules import refused
from contract.gateways import Client, gateway, result
from unit.builtin_tools.redirect.client_tools import CLIENTS, MADE_LISTS, tools_of

FAMILIES = {base.family: base.id for base in catalogue.BASES if not any(variant.dead for variant in base.variants)}


@pytest.fixture
async def live() -> AsyncIterator[Client]:
    async with gateway(manners=replace(LIVE, lingers_ms=0)) as client:
        yield client


def function(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)},
    }


@pytest.mark.parametrize("client", [*CLIENTS, *MADE_LISTS])
async def test_l1_every_family_takes_the_tools(live: Client, client: str) -> None:
    tools = tools_of(client)
    for family, model in FAMILIES.items():
        answer = await live.chat("sim: say hi", model=model, tools=list(map(function, tools)))
        assert (answer.status, answer.text) == (200, "hi"), (family, answer.error)
        changed = {tool.name for tool in tools if refused(tool.schema, family)}
        told = answer.headers.get("x-caretway-tools", "")
        assert all(f"{name} (" in told for name in changed), (family, told)
        assert family in RULES or not told
    assert live.stats()["runs_opened"] == len(FAMILIES)


CALLS = [
    ("pydantic", "book", {"title": "t", "size": 3, "level": 2, "pet": {"kind": "dog", "name": "Rex"}, "note": None}),
    ("zod", "plan", {"mode": "slow", "step": {"op": "drop", "index": 1}, "count": 4, "range": [1, 2]}),
]


@pytest.mark.parametrize(("client", "name", "arguments"), CALLS, ids=[row[0] for row in CALLS])
async def test_l1_arguments_come_back_as_the_client_knows_them(
    live: Client, client: str, name: str, arguments: dict[str, Any]
) -> None:
    tools = list(map(function, tools_of(client)))
    script = f"sim: call {name} {msgspec.json.encode(arguments).decode()}\nsim: result"
    messages = [{"role": "user", "content": script}]
    for model in FAMILIES.values():
        first = await live.chat(messages, model=model, tools=tools, stream=True)
        (call,) = first.calls
        assert msgspec.json.decode(call["function"]["arguments"]) == arguments
        second = await live.chat([*messages, first.message, result(call, "DONE")], model=model, tools=tools)
        assert (second.session, second.text) == ("resumed", "DONE")
        assert second.headers.get("x-caretway-tools") == first.headers.get("x-caretway-tools"), "each response tells"


@pytest.mark.parametrize(
    ("count", "size", "told"),
    [
        (331, 1, ["331 tools", "330", "--no-agent-check-limits"]),
        (30, 4_100, ["120,000 bytes", "--no-agent-check-limits"]),
    ],
)
async def test_l2_more_tools_than_cursor_takes(live: Client, count: int, size: int, told: list[str]) -> None:
    tools = [function(ToolSpec(f"t{number}", "d" * size)) for number in range(count)]
    answer = await live.chat("sim: say hi", tools=tools)
    assert answer.status == 400
    assert answer.error is not None
    assert answer.error["code"] == "too_many_tools"
    assert all(word in answer.error["message"] for word in told), answer.error
    assert live.stats()["runs_opened"] == 0


async def test_l2_as_many_as_cursor_takes(live: Client) -> None:
    tools = [function(ToolSpec(f"t{number}", "d" * 200)) for number in range(330)]
    assert (await live.chat("sim: say hi", tools=tools)).text == "hi"
    async with gateway(agent_check_limits=False) as patient:
        more = [*tools, function(ToolSpec("one-more"))]
        assert (await patient.chat("sim: say hi", tools=more)).text == "hi"


async def test_a_built_in_call_reaches_a_tool_that_takes_lists(live: Client) -> None:
    tools = list(map(function, tools_of("cline")))
    messages = [{"role": "user", "content": 'sim: exec read {"path": "/w/a"}\nsim: result'}]
    first = await live.chat(messages, tools=tools, model="claude-fable-5")
    (call,) = first.calls
    assert call["function"]["name"] == "read_files"
    assert msgspec.json.decode(call["function"]["arguments"]) == {"files": [{"path": "/w/a"}]}
    told = result(call, '[{"query": "/w/a", "result": "CONTENT", "success": true}]')
    second = await live.chat([*messages, first.message, told], tools=tools, model="claude-fable-5")
    assert second.session == "resumed"
    assert "CONTENT" in second.text
    assert "success" not in second.text
