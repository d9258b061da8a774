"""The tools of real clients, and of libraries that write schemas, on every family of models: Cursor takes them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from caretway.core.request import ToolSpec
from caretway.schemas.fitting import RULES
from caretway_sim import catalogue
from caretway_sim.admission import refused
from caretway_sim.manners import LIVE
from contract.gateways import CHAT, Client, gateway, result, tool
from unit.backends.builtin_tools.client_tools import CLIENTS, DATA, MADE_LISTS, tools_of

HI = {"role": "user", "content": "sim: say hi"}
FAMILIES = {base.family: base.id for base in catalogue.BASES if not any(variant.dead for variant in base.variants)}


@pytest.fixture
async def live() -> AsyncIterator[Client]:
    async with gateway(manners=replace(LIVE, lingers_ms=0)) as client:
        yield client


def function(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": dict(spec.schema)},
    }


@pytest.mark.parametrize("client", [*CLIENTS, *MADE_LISTS])
async def test_l1_every_family_takes_the_tools(live: Client, client: str) -> None:
    tools = tools_of(client)
    for family, model in FAMILIES.items():
        answer = await live.chat("sim: say hi", model=model, tools=list(map(function, tools)))
        assert (answer.status, answer.text) == (200, "hi"), (family, answer.error)
        changed = {one.name for one in tools if refused(one.schema, family)}
        told = answer.headers.get("x-caretway-tools", "")
        assert all(f"{name} (" in told for name in changed), (family, told)
        assert family in RULES or not told
    assert live.stats()["runs_opened"] == len(FAMILIES)


UNKNOWN, OF_FAMILY = "glm-5.2", "glm"
"""A model of a family of which the gateway knows nothing."""
ODD = ToolSpec("odd", "takes either", {"type": "object", "properties": {"key": {"anyOf": [{"type": "string"}]}}})
PLAIN = ToolSpec("even", "takes a text", {"type": "object", "properties": {"key": {"type": "string"}}})


async def test_l1_an_unknown_family_that_refuses_gets_simpler_schemas(transport: str, stream: bool) -> None:
    """Once, and from then on at once."""
    strict = replace(LIVE, strict_families=frozenset({OF_FAMILY}), lingers_ms=0)
    async with gateway(transport, manners=strict) as client:
        for client_name in ("pydantic", "zod"):
            tools = list(map(function, tools_of(client_name)))
            for opened in (2, 1) if client_name == "pydantic" else (1, 1):
                before = client.stats()["runs_opened"]
                answer = await client.chat("sim: say hi", model=UNKNOWN, tools=tools, stream=stream)
                assert (answer.status, answer.text) == (200, "hi"), answer.error
                assert "fitted for any maker: " in answer.headers["x-caretway-tools"]
                assert client.stats()["runs_opened"] - before == opened
        other = await client.chat("sim: say hi", model="gpt-5.4", tools=[function(ODD)])
        assert other.text == "hi" and "x-caretway-tools" not in other.headers, "another model is asked as always"
        assert 'rung="simpler schemas",cause="schema"} 1' in (await client.http.get("/metrics")).text


async def test_l1_simpler_schemas_in_the_middle_of_a_conversation(transport: str) -> None:
    """With a history, and the calls that follow reach the client."""
    strict = replace(LIVE, strict_families=frozenset({OF_FAMILY}), lingers_ms=0)
    async with gateway(transport, manners=strict) as client:
        first = await client.chat("sim: say one", model=UNKNOWN)
        talk = [{"role": "user", "content": "sim: say one"}, first.message]
        talk.append({"role": "user", "content": 'sim: call odd {"key": "k"}\nsim: result'})
        asked = await client.chat(talk, model=UNKNOWN, tools=[function(ODD)], stream=True)
        (call,) = asked.calls
        done = await client.chat([*talk, asked.message, result(call, "R")], model=UNKNOWN, tools=[function(ODD)])
        assert (done.text, done.session) == ("R", "resumed")
        assert done.headers["x-caretway-tools"] == asked.headers["x-caretway-tools"], "each response tells"
        assert client.stats()["runs_opened"] == 3


@pytest.mark.parametrize(
    ("script", "model", "tool", "runs"),
    [
        ("sim: fail schema", UNKNOWN, ODD, 2),
        ("sim: fail schema", UNKNOWN, PLAIN, 1),
        ("sim: fail schema", "claude-fable-5", ODD, 1),
        ("sim: say so far\nsim: fail schema", UNKNOWN, ODD, 1),
    ],
    ids=["refused twice", "nothing to simplify", "a known family", "after words"],
)
async def test_l1_what_no_simpler_schema_helps(
    transport: str, script: str, model: str, tool: ToolSpec, runs: int
) -> None:
    async with gateway(transport, manners=LIVE) as client:
        for _ in range(2):  # what did not help is not remembered
            before = client.stats()["runs_opened"]
            answer = await client.chat(script, model=model, tools=[function(tool)], stream=True)
            assert answer.error is not None
            assert answer.error["code"] == "tool_schema_refused"
            assert client.stats()["runs_opened"] - before == runs


async def test_l1_another_account_finds_out_for_itself(transport: str) -> None:
    strict = replace(LIVE, strict_families=frozenset({OF_FAMILY}))
    async with gateway(transport, manners=strict, auth_mode="passthrough", access_token=None) as client:
        for key, opened in (("one", 2), ("one", 1), ("two", 2)):
            before = client.stats()["runs_opened"]
            bearer = {"authorization": f"Bearer {key}"}
            assert (await client.chat("sim: say hi", model=UNKNOWN, tools=[function(ODD)], headers=bearer)).text == "hi"
            assert client.stats()["runs_opened"] - before == opened


def captured() -> dict[str, tuple[str, list[Any]]]:
    """The distinct tool lists in the recorded requests of real clients: where it was sent, and the tools."""
    found: dict[str, tuple[str, list[Any]]] = {}
    lists: set[bytes] = set()
    for folder, path in {"clients": CHAT, "messages": "/v1/messages", "responses": "/v1/responses"}.items():
        for file in sorted((DATA / folder).glob("*/*.json")):
            body = msgspec.json.decode(file.read_bytes()).get("body")
            tools = body.get("tools") if isinstance(body, dict) else None
            if path == "/v1/responses" and isinstance(body["input"], list):
                inside = [one for item in body["input"] for one in item.get("tools", ())]
                tools = [*(tools or ()), *inside]
            if tools and (key := path.encode() + msgspec.json.encode(tools)) not in lists:
                lists.add(key)
                found[f"{folder}/{file.parent.name}/{file.name}"] = path, tools
    return found


@pytest.mark.seed("N05")
async def test_l1_recorded_tool_lists_on_every_family(live: Client) -> None:
    """As their client sends them, through its own API."""
    lists = captured()
    assert len({name.split("/")[1] for name in lists}) >= 9, "clients"
    for name, (path, tools) in lists.items():
        for family, model in FAMILIES.items():
            said = {"input": "sim: say hi"} if path == "/v1/responses" else {"messages": [HI]}
            more = {"max_tokens": 100} if path == "/v1/messages" else {}
            answer = await live.http.post(path, json={"model": model, "tools": tools, **said, **more})
            assert answer.status_code == 200, (name, family, answer.text)
    assert live.stats()["runs_opened"] == len(lists) * len(FAMILIES)


BUILT_IN = [
    # client or tool, exec of Cursor's, what the client is asked
    ("cline", 'shell {"command": "cat a"}', "run_commands", {"commands": ["cat a"]}),
    ("cline", 'grep {"pattern": "a+"}', "search_codebase", {"queries": ["a+"]}),
    ("kilo", 'shell {"command": "cat a"}', "execute_command", {"command": "cat a", "cwd": None}),
    (
        [tool("t-bash", "command")],
        'shell {"command": "cat a"}',
        "t-bash",
        {"command": "cat a"},
    ),
]


@pytest.mark.parametrize(
    ("client", "exec_", "name", "arguments"), BUILT_IN, ids=["commands", "queries", "kilo", "dash"]
)
async def test_a_built_in_call_reaches_the_clients_own_tool(
    live: Client, client: Any, exec_: str, name: str, arguments: dict[str, Any]
) -> None:
    tools = client if isinstance(client, list) else list(map(function, tools_of(client)))
    first = await live.chat(f"sim: exec {exec_}\nsim: result", tools=tools, model="claude-fable-5", stream=True)
    (call,) = first.calls
    assert (call["function"]["name"], msgspec.json.decode(call["function"]["arguments"])) == (name, arguments)


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
        (331, 1, ["331 tools", "330", "ENABLE_TOOL_SEARCH=true", "--agent-quirks limits=false"]),
        (30, 4_100, ["120,000 bytes", "--agent-quirks limits=false"]),
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
    async with gateway(manners=replace(LIVE, limits=False, lingers_ms=0), agent_quirks={"limits": False}) as patient:
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
