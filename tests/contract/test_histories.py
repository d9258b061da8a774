"""What clients do to histories, ids and tools in the middle of a tool loop, and what the parked run makes of it."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from caretway_sim.manners import Manners
from contract.gateways import Client, gateway, result, tool
from contract.speakers import Messages, ask

pytestmark = pytest.mark.both_profiles
LOOKUP = tool("lookup", "key")
SEARCH = tool("ToolSearch", "query")
NOTE = tool("note", "text")
Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


# ---- our newest answer, retold

RETOLD: dict[str, Callable[[Message], list[Message]]] = {
    "words added": lambda ours: [{**ours, "content": "(tool call)"}],
    "words dropped": lambda ours: [{**ours, "content": None}],
    "words changed": lambda ours: [{**ours, "content": "Let me see."}],
    "two messages": lambda ours: [{"role": "assistant", "content": ours["content"]}, {**ours, "content": None}],
}


@pytest.mark.parametrize("change", RETOLD)
@pytest.mark.parametrize("said", ["", "sim: say Looking.\n"], ids=["silent", "with words"])
async def test_tickets_are_proof_enough_and_the_conversation_goes_on(client: Client, change: str, said: str) -> None:
    """The client's own account is what the next request begins with, at the next step and at the next turn."""
    talk = [user(said + 'sim: call lookup {"key": "a"}\nsim: call lookup {"key": "b"}\nsim: result')]
    sessions = []
    for content in ("ONE", "TWO"):
        answer = await client.chat(talk, tools=[LOOKUP])
        sessions.append(answer.session)
        talk += [*RETOLD[change](answer.message), result(answer.calls[0], content)]
    last = await client.chat(talk, tools=[LOOKUP])
    assert (last.session, last.text) == ("resumed", "TWO")
    talk += [last.message, user("sim: recall")]
    after = await client.chat(talk, tools=[LOOKUP])
    assert [*sessions, after.session] == ["fresh", "resumed", "continued"]
    assert "2 tool results" in after.text
    assert client.stats()["runs_opened"] == 2


async def test_a_call_that_was_edited_before_it_ran_is_told_to_a_new_run(client: Client) -> None:
    talk = [user('sim: call lookup {"key": "a"}\nsim: result')]
    first = await client.chat(talk, tools=[LOOKUP])
    (call,) = first.calls
    edited = {**call, "function": {"name": "lookup", "arguments": '{"key": "b"}'}}
    answer = await client.chat([*talk, {**first.message, "tool_calls": [edited]}, result(call, "B")], tools=[LOOKUP])
    assert (answer.session, answer.text) == ("replayed", "B")
    assert answer.headers["x-caretway-session-reason"] == "the history changed"


# ---- ids


@pytest.mark.seed("J03", "J04")
@pytest.mark.parametrize("route", ["chat", "responses", "messages"])
async def test_ids_look_like_the_dialect_s_own(client: Client, route: str) -> None:
    prompt = 'sim: call lookup {"key": "a"}'
    schema = LOOKUP["function"]["parameters"]
    body: dict[str, Any]
    if route == "chat":
        body = {"messages": [user(prompt)], "tools": [LOOKUP]}
        answer = await client.http.post("/v1/chat/completions", json={"model": "sim-auto", **body})
        ticket = answer.json()["choices"][0]["message"]["tool_calls"][0]["id"]
    elif route == "responses":
        body = {"input": prompt, "tools": [{"type": "function", "name": "lookup", "parameters": schema}]}
        answer = await client.http.post("/v1/responses", json={"model": "sim-auto", **body})
        (item,) = answer.json()["output"]
        ticket = item["call_id"]
        assert item["id"].startswith("fc_")
    else:
        body = {"messages": [user(prompt)], "max_tokens": 9, "tools": [{"name": "lookup", "input_schema": schema}]}
        answer = await client.http.post("/v1/messages", json={"model": "sim-auto", **body})
        ticket = answer.json()["content"][0]["id"]
    prefix = "toolu_" if route == "messages" else "call_"
    assert re.fullmatch(prefix + "[A-Za-z0-9]+", ticket)
    assert len(ticket) <= 40


async def test_an_id_seen_in_one_dialect_is_found_when_it_comes_back_in_another(client: Client) -> None:
    prompt = 'sim: call lookup {"key": "a"}\nsim: call lookup {"key": "b"}\nsim: result'
    schema = LOOKUP["function"]["parameters"]
    declared = {"name": "lookup", "description": "lookup (test)", "input_schema": schema}
    body = {"model": "sim-auto", "max_tokens": 9, "messages": [user(prompt)], "tools": [declared]}
    answer = await client.http.post("/v1/messages", json=body)
    (use,) = answer.json()["content"]
    call = {"id": use["id"], "type": "function", "function": {"name": "lookup", "arguments": '{"key":"a"}'}}
    talk = [user(prompt), {"role": "assistant", "tool_calls": [call]}, result(call, "ONE")]
    second = await client.chat(talk, tools=[LOOKUP])
    assert second.session == "resumed"
    assert second.calls[0]["id"].startswith("call_")
    assert client.stats()["runs_opened"] == 1


async def test_ids_of_an_older_gateway_are_foreign_ones(client: Client) -> None:
    function = {"name": "lookup", "arguments": '{"key":"z"}'}
    call = {"id": "sess_0123456789abcdef__call_1a2b3c4", "type": "function", "function": function}
    talk = [user('sim: call lookup {"key": "z"}\nsim: result'), {"role": "assistant", "tool_calls": [call]}]
    answer = await client.chat([*talk, result(call, "OLD")], tools=[LOOKUP])
    assert (answer.session, answer.text) == ("replayed", "OLD")


# ---- tools that grow on the way


async def test_a_tool_that_nobody_asked_for_waits_for_the_next_run(client: Client) -> None:
    talk = [user('sim: call lookup {"key": "a"}\nsim: result')]
    first = await client.chat(talk, tools=[LOOKUP])
    talk += [first.message, result(first.calls[0], "ONE")]
    second = await client.chat(talk, tools=[LOOKUP, NOTE])
    assert (second.session, second.text) == ("resumed", "ONE")
    assert second.headers["x-caretway-session-reason"].endswith("new tools wait")
    talk += [second.message, user('sim: call note {"text": "n"}')]
    third = await client.chat(talk, tools=[LOOKUP, NOTE])
    assert third.session == "continued"
    assert [call["function"]["name"] for call in third.calls] == ["note"]
    assert client.stats()["runs_opened"] == 2


INLINE: Final[Message] = {
    "name": "note",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
IN_THE_LOOP: Final[dict[str, tuple[Message, str, int]]] = {
    "added": ({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": INLINE}}, "resumed", 1),
    "added and asked for": (
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": INLINE | {"name": "asked"}}},
        "replayed",
        2,
    ),
    "removed": ({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "other"}}, "replayed", 2),
}


@pytest.mark.parametrize("case", IN_THE_LOOP)
async def test_a_tool_change_among_the_messages_of_a_tool_loop(client: Client, case: str) -> None:
    """As Claude Code tells of an MCP server that came up late, or went away."""
    change, session, runs = IN_THE_LOOP[case]
    speaker = Messages()
    body = speaker.body('sim: call lookup {"key": "asked"}\nsim: result', ["lookup", "other"], stream=False)
    heard = await ask(speaker, client.http, body)
    body = speaker.follow_up(body, heard, {heard.calls[0].id: "FOUND"})
    body["messages"].append({"role": "system", "content": [change]})
    heard = await ask(speaker, client.http, body)
    assert (heard.headers["x-caretway-session"], heard.text) == (session, "FOUND")
    assert client.stats()["runs_opened"] == runs
    body["messages"] += [{"role": "assistant", "content": heard.text}, {"role": "user", "content": "sim: say on"}]
    heard = await ask(speaker, client.http, body)
    assert (heard.headers["x-caretway-session"], heard.text) == ("continued", "on")


async def test_a_tool_that_was_loaded_can_be_called(client: Client) -> None:
    """Also when it had been waiting: the run still does not know it."""
    script = (
        'sim: call lookup {"key": "a"}\nsim: call ToolSearch {"query": "select:note"}\nsim: call note {"text": "n"}'
    )
    talk = [user(script + "\nsim: result"), user("Go on.")]
    first = await client.chat(talk, tools=[LOOKUP, SEARCH])
    talk += [first.message, result(first.calls[0], "ONE")]
    second = await client.chat(talk, tools=[LOOKUP, SEARCH, NOTE])
    talk += [second.message, result(second.calls[0], "Tool: note")]
    third = await client.chat(talk, tools=[LOOKUP, SEARCH, NOTE])
    assert [first.session, second.session, third.session] == ["fresh", "resumed", "replayed"]
    assert third.headers["x-caretway-session-reason"] == "a tool was loaded: note"
    assert client.gateway.tenants.live == 1, "the run that could not call it is let go"
    assert [call["function"]["name"] for call in third.calls] == ["note"]
    talk += [third.message, result(third.calls[0], "NOTED")]
    last = await client.chat(talk, tools=[LOOKUP, SEARCH, NOTE])
    assert (last.session, last.text) == ("resumed", "NOTED")
    assert client.stats()["runs_opened"] == 2


# ---- tools inside the input of a Responses request, as today's Codex has them


def more(*tools: Message) -> Message:
    return {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "namespace", "name": "ns", "tools": tools}],
    }


async def respond(client: Client, said: list[Message], thread: str = "", **body: Any) -> tuple[str, Message]:
    """How the session went on, and the last item of the answer. The answer is added to what was said."""
    answer = await client.http.post(
        "/v1/responses",
        json={"model": "sim-auto", "store": False, "input": said, **body},
        headers={"session-id": "one", "thread-id": thread} if thread else {},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    said += answer.json()["output"]
    return answer.headers["x-caretway-session"], said[-1]


EXEC: Final[Message] = {"type": "custom", "name": "exec"}
REVEAL: Final[Message] = {"type": "function", "name": "reveal", "parameters": INLINE["input_schema"]}
TOOL_SEARCH: Final[Message] = {
    "type": "tool_search",
    "execution": "client",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


async def test_a_loop_with_tools_inside_the_input(client: Client) -> None:
    steps = 3
    calls = [f'sim: call exec {{"input": "step {n}"}}' for n in range(steps)]
    said: list[Message] = [more(EXEC, REVEAL), user("\n".join([*calls, "sim: result"]))]
    sessions = []
    for n in range(steps):
        session, call = await respond(client, said, parallel_tool_calls=False)
        assert (call["type"], call["namespace"], call["name"]) == ("custom_tool_call", "ns", "exec")
        assert call["input"] == f"step {n}"
        said.append({"type": "custom_tool_call_output", "call_id": call["call_id"], "output": f"result {n}"})
        sessions.append(session)
    session, words = await respond(client, said, parallel_tool_calls=False)
    assert words["content"][0]["text"] == "result 2"
    assert [*sessions, session] == ["fresh", "resumed", "resumed", "resumed"]
    assert client.stats()["runs_opened"] == 1
    said.append(user("sim: say on"))
    said[0] = {**more(EXEC, REVEAL), "id": "at_2"}
    assert (await respond(client, said))[0] == "continued"


async def test_a_tool_that_a_tool_search_found_is_called(client: Client) -> None:
    """A search that finds nothing new goes on in the same run."""
    search = 'sim: call tool_search {"query": "reveal"}\n'
    said: list[Message] = [user(search * 3 + 'sim: call reveal {"text": "n"}\nsim: result')]
    found: list[list[Message]] = [[], [{"type": "namespace", "name": "vault", "tools": [REVEAL]}]]
    found.append(found[1])
    sessions = []
    for tools in found:
        session, call = await respond(client, said, tools=[TOOL_SEARCH])
        assert (call["type"], call["execution"]) == ("tool_search_call", "client")
        assert call["arguments"] == {"query": "reveal"}
        said.append({"type": "tool_search_output", "call_id": call["call_id"], "execution": "client", "tools": tools})
        sessions.append(session)
    session, call = await respond(client, said, tools=[TOOL_SEARCH])
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "vault", "reveal")
    said.append({"type": "function_call_output", "call_id": call["call_id"], "output": "REVEALED"})
    last, words = await respond(client, said, tools=[TOOL_SEARCH])
    assert words["content"][0]["text"] == "REVEALED"
    assert [*sessions, session, last] == ["fresh", "resumed", "replayed", "resumed", "resumed"]
    assert client.stats()["runs_opened"] == 2
    said.append(user("sim: say on"))
    assert (await respond(client, said, tools=[TOOL_SEARCH]))[0] == "continued"


@pytest.mark.parametrize("late", ["beside it", "in its place", "without a namespace"])
async def test_a_call_is_not_handed_to_the_same_tool_of_another_namespace(client: Client, late: str) -> None:
    """Two servers of one program: the run that waits was offered the first one's tool, and calls it once more."""

    def of(namespace: str) -> Message:
        return {"type": "namespace", "name": namespace, "tools": [REVEAL]}

    now = {"beside it": [of("a"), of("b")], "in its place": [of("a")], "without a namespace": [REVEAL, of("b")]}[late]
    said: list[Message] = [user('sim: call reveal {"text": "1"}\nsim: call reveal {"text": "2"}')]
    session, call = await respond(client, said, tools=[of("b")])
    assert (session, call["namespace"]) == ("fresh", "b")
    said.append({"type": "function_call_output", "call_id": call["call_id"], "output": "R"})
    assert (await respond(client, said, tools=now))[0] == "replayed"
    assert client.stats()["runs_opened"] == 2


@pytest.mark.parametrize("first", ["the agent", "its sub-agent"])
async def test_a_sub_agent_that_begins_with_a_copy_of_the_conversation(client: Client, first: str) -> None:
    """As Codex does it: the copy ends with the result of the call that started the sub-agent, and with its task. Either
    may ask first. The agent goes on in its own run."""
    spawn = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    tools = [spawn, {**spawn, "name": "wait"}]
    said = [user('sim: call spawn {"n": 1}\nsim: call wait {"n": 1}\nsim: result')]
    _, call = await respond(client, said, "root", tools=tools)
    said.append({"type": "function_call_output", "call_id": call["call_id"], "output": "started"})
    task = {
        "type": "agent_message",
        "content": [{"type": "encrypted_content", "encrypted_content": "sim: say COUNTED"}],
    }
    copy = [*said, task]

    async def ask_agent() -> None:
        session, call = await respond(client, said, "root", tools=tools)
        assert (session, call["name"]) == ("resumed", "wait")
        said.append({"type": "function_call_output", "call_id": call["call_id"], "output": "COUNTED"})

    async def ask_sub_agent() -> None:
        session, words = await respond(client, copy, "child", tools=tools)
        assert (session, words["content"][0]["text"]) == ("replayed", "COUNTED")

    for ask_one in (ask_agent, ask_sub_agent) if first == "the agent" else (ask_sub_agent, ask_agent):
        await ask_one()
    session, words = await respond(client, said, "root", tools=tools)
    assert (session, words["content"][0]["text"]) == ("resumed", "COUNTED")
    assert client.stats()["runs_opened"] == 2


@pytest.mark.parametrize("first", ["the agent", "its fork"])
async def test_a_fork_of_claude_code(client: Client, first: str) -> None:
    """Its own id is in a header beside the session that it shares: it begins with a copy of the conversation, with a
    result for the call that started it, and with its directive."""
    agent = {"name": "Agent", "input_schema": {"type": "object"}}
    said = [user('sim: call Agent {"n": 1}\nsim: call Agent {"n": 2}\nsim: result')]

    async def ask_one(said: list[Message], **own: str) -> tuple[str, str, Message]:
        answer = await client.http.post(
            "/v1/messages",
            json={"model": "sim-auto", "max_tokens": 100, "messages": said, "tools": [agent]},
            headers={"anthropic-version": "2023-06-01", "x-claude-code-session-id": "one", **own},
        )
        assert answer.status_code == 200, answer.text
        said.append({"role": "assistant", "content": answer.json()["content"]})
        headers = answer.headers
        return headers["x-caretway-session"], headers["x-caretway-session-reason"], said[-1]["content"][-1]

    def given(call: Message, words: str) -> Message:
        return {"type": "tool_result", "tool_use_id": call["id"], "content": words}

    *_, call = await ask_one(said)
    directive = {"type": "text", "text": "You are a worker fork.\nsim: say FORKED"}
    copy = [*said, {"role": "user", "content": [given(call, "Fork started."), directive]}]
    said.append({"role": "user", "content": [given(call, "started")]})

    async def ask_agent() -> None:
        session, _, call = await ask_one(said)
        assert (session, call["name"]) == ("resumed", "Agent")
        said.append({"role": "user", "content": [given(call, "FORKED")]})

    async def ask_fork() -> None:
        session, _, block = await ask_one(copy, **{"x-claude-code-agent-id": "a1"})
        assert (session, block["text"]) == ("replayed", "FORKED")

    for ask_next in (ask_agent, ask_fork) if first == "the agent" else (ask_fork, ask_agent):
        await ask_next()
    session, _, block = await ask_one(said)
    assert (session, block["text"]) == ("resumed", "FORKED")
    assert client.stats()["runs_opened"] == 2


async def test_a_second_sub_agent_of_claude_code_has_not_compacted_the_first(client: Client) -> None:
    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    headers = {"anthropic-version": "2023-06-01", "x-claude-code-session-id": "one"}
    reasons = []
    for agent in ("a1", "a2"):
        said = [user(f"sim: say {agent}\n{'The task. ' * 80}")]
        for _ in range(3):
            answer = await client.http.post(
                "/v1/messages",
                json={"model": "sim-auto", "max_tokens": 100, "messages": said, "tools": tools},
                headers={**headers, "x-claude-code-agent-id": agent},
            )
            said += [{"role": "assistant", "content": answer.json()["content"]}, user("sim: say more")]
            reasons.append(answer.headers["x-caretway-session-reason"])
    assert reasons == ["first message", "the transcript is known", "the transcript is known"] * 2


async def test_a_name_for_each_request_costs_no_run(client: Client) -> None:
    """A program between client and gateway may name every request anew."""
    said = [user('sim: call exec {"input": "a"}\nsim: call exec {"input": "b"}\nsim: result')]
    for name in ("one", "two"):
        _, call = await respond(client, said, name, tools=[EXEC])
        said.append({"type": "custom_tool_call_output", "call_id": call["call_id"], "output": f"done {name}"})
    session, words = await respond(client, said, "three", tools=[EXEC])
    assert (session, words["content"][0]["text"], client.stats()["runs_opened"]) == ("resumed", "done two", 1)


# ---- turns that were to make one call


async def test_forced_calls_never_cost_an_agent_its_loop(manners: Manners) -> None:
    forced: dict[str, Any] = {"tools": [NOTE], "tool_choice": {"type": "function", "function": {"name": "note"}}}
    async with gateway(manners=manners, max_parked=2) as client:
        prompt = 'sim: call lookup {"key": "a"}\nsim: result'
        agent = await client.chat(prompt, tools=[LOOKUP])
        for number in range(5):
            shaped = await client.chat(f'sim: call note {{"text": "{number}"}}', **forced)
            assert len(shaped.calls) == 1
        assert client.gateway.tenants.parked == 2
        again = [user(prompt), agent.message, result(agent.calls[0], "ONE")]
        assert (await client.chat(again, tools=[LOOKUP])).session == "resumed"


async def test_a_forced_call_that_is_answered_is_resumed(client: Client) -> None:
    prompt = 'sim: call lookup {"key": "a"}\nsim: result'
    first = await client.chat(prompt, tools=[LOOKUP], tool_choice="required")
    answer = await client.chat([user(prompt), first.message, result(first.calls[0], "ONE")], tools=[LOOKUP])
    assert (answer.session, answer.text) == ("resumed", "ONE")


# ---- a model that goes in circles


async def test_a_corrected_loop_stays_a_known_conversation(client: Client) -> None:
    """What the guard adds to a result is for the model: the client sends its own words again."""
    step = 'sim: call note {"text": "same"}\n'
    talk = [user(step * 3 + "sim: say done")]
    answer = await client.chat(talk, tools=[NOTE])
    async with asyncio.timeout(30):
        while answer.calls:
            talk += [answer.message, result(answer.calls[0], "error: no such file")]
            answer = await client.chat(talk, tools=[NOTE])
            assert answer.status == 200, answer.error
    talk += [answer.message, user("sim: recall")]
    assert (await client.chat(talk, tools=[NOTE])).session == "continued"
