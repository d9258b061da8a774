"""Tool calls on a live session: parked turns, resumed streams. Stories N01-N06 of the source documents among them."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from caretway_sim.manners import Manners
from contract.gateways import CHAT, Answer, Client, gateway, result, tool

TOOLS = [tool("lookup", "key"), tool("note", "text")]


pytestmark = pytest.mark.both_profiles


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def loop(client: Client, messages: list[dict[str, Any]], stream: bool, **more: Any) -> tuple[Answer, int]:
    """Play the client's side of a tool loop; the last answer and the number of requests."""
    for count in range(1, 30):
        answer = await client.chat(messages, stream=stream, tools=TOOLS, **more)
        assert answer.status == 200, answer.error
        messages.append(answer.message)
        if not answer.calls:
            return answer, count
        assert answer.finish == "tool_calls"
        messages += [result(call, f"R<{call['function']['arguments']}>") for call in answer.calls]
    raise AssertionError("the loop has no end")


@pytest.mark.seed("F01", "F28", "J06", "J07", "N01")
async def test_call_result_and_continuation_on_one_run(client: Client, stream: bool) -> None:
    """N01, N04, N05: the same session is used, no second bootstrap, the continuation arrives; both carry tools."""
    messages = [user('sim: say Looking.\nsim: call lookup {"key": "k"}\nsim: say Found:\nsim: result')]
    first = await client.chat(messages, stream=stream, tools=TOOLS)
    assert first.text == "Looking."
    assert first.finish == "tool_calls"
    (call,) = first.calls
    assert (
        call["function"] == {"name": "lookup", "arguments": '{"key": "k"}'}
        or call["function"]["arguments"] == '{"key":"k"}'
    )
    assert call["id"].startswith("call_")
    assert len(call["id"]) <= 40
    second = await client.chat([*messages, first.message, result(call, "VALUE")], stream=stream, tools=TOOLS)
    assert second.text.split() == ["Found:", "VALUE"]
    assert second.finish == "stop"
    assert (first.session, second.session) == ("fresh", "resumed")
    assert client.stats()["runs_opened"] == 1
    assert second.usage is not None
    assert second.usage["caretway"]["run"]["cache_read_tokens"] > 0, "of the run, not of this response"


@pytest.mark.seed("F04", "J08")
async def test_ten_steps_cost_one_run(client: Client, stream: bool) -> None:
    lines = [part for n in range(10) for part in (f'sim: call lookup {{"key": "k{n}"}}', "sim: result")]
    answer, requests = await loop(client, [user("\n".join(lines))], stream)
    assert requests == 11
    assert "k9" in answer.text
    assert client.stats()["runs_opened"] == 1


async def test_two_calls_in_one_step(client: Client, stream: bool) -> None:
    prompt = 'sim: call lookup {"key": "a"} & note {"text": "b"}\nsim: result'
    messages = [user(prompt)]
    first = await client.chat(messages, stream=stream, tools=TOOLS)
    assert [call["function"]["name"] for call in first.calls] == ["lookup", "note"]
    results = [result(call, f"ANSWER-{call['function']['name']}") for call in first.calls]
    second = await client.chat([*messages, first.message, *reversed(results)], stream=stream, tools=TOOLS)
    assert "ANSWER-lookup" in second.text
    assert "ANSWER-note" in second.text
    assert client.stats()["runs_opened"] == 1


async def test_one_call_at_a_time_when_asked(client: Client, stream: bool) -> None:
    messages = [user('sim: call lookup {"key": "a"} & note {"text": "b"}\nsim: result')]
    names = []
    for _ in range(2):
        answer = await client.chat(messages, stream=stream, tools=TOOLS, parallel_tool_calls=False)
        (call,) = answer.calls
        names.append(call["function"]["name"])
        messages += [answer.message, result(call, f"ANSWER-{names[-1]}")]
    last = await client.chat(messages, stream=stream, tools=TOOLS, parallel_tool_calls=False)
    assert names == ["lookup", "note"]
    assert "ANSWER-lookup" in last.text
    assert "ANSWER-note" in last.text
    assert client.stats()["runs_opened"] == 1


async def test_missing_results_are_named_and_the_turn_stays_parked(client: Client) -> None:
    messages = [user('sim: call lookup {"key": "a"} & note {"text": "b"}\nsim: result')]
    first = await client.chat(messages, tools=TOOLS)
    one, other = first.calls
    refused = await client.chat([*messages, first.message, result(one, "A")], tools=TOOLS)
    assert refused.status == 400
    assert refused.error is not None
    assert other["id"] in refused.error["message"]
    assert one["id"] not in refused.error["message"]
    answer = await client.chat([*messages, first.message, result(one, "A"), result(other, "B")], tools=TOOLS)
    assert answer.session == "resumed"
    assert client.stats()["runs_opened"] == 1


async def test_a_repeated_request_gets_the_same_answer(client: Client, stream: bool) -> None:
    """An SDK that lost the answer asks again: same calls, same ids, no second run beside the parked one."""
    messages = [user('sim: call lookup {"key": "a"}\nsim: result\nsim: call note {"text": "b"}\nsim: result')]
    first = await client.chat(messages, tools=TOOLS)
    again = [*messages, first.message, result(first.calls[0], "ONE")]
    second = await client.chat(again, tools=TOOLS)
    assert second.session == "resumed"
    repeated = await client.chat(again, tools=TOOLS, stream=stream)
    assert (repeated.session, repeated.text, repeated.calls) == ("resumed", second.text, second.calls)
    last = await client.chat([*again, repeated.message, result(repeated.calls[0], "TWO")], tools=TOOLS)
    assert (last.session, last.text) == ("resumed", "TWO")
    assert client.stats()["runs_opened"] == 1


async def test_a_repeated_request_with_other_words_leaves_no_turn_behind(client: Client, stream: bool) -> None:
    """A client that puts the time beside its results lost the answer and asks again. One run is left, which is asked
    for what it said when that request, too, is repeated; results for the old one's calls are replayed."""
    messages = [user('sim: call lookup {"key": "a"}\nsim: call note {"text": "b"}\nsim: result')]
    first = await client.chat(messages, tools=TOOLS)
    again = [*messages, first.message, result(first.calls[0], "ONE")]
    lost = await client.chat([*again, user("It is 10:00.")], tools=TOOLS)
    assert (lost.session, client.gateway.tenants.parked) == ("resumed", 1)
    later = [*again, user("It is 10:01.")]
    second = await client.chat(later, tools=TOOLS, stream=stream)
    assert (second.session, client.gateway.tenants.parked) == ("replayed", 1)
    assert second.headers["x-caretway-session-reason"] == "these results were given before, beside other words"
    repeated = await client.chat(later, tools=TOOLS, stream=stream)
    assert (repeated.session, repeated.calls) == ("resumed", second.calls)
    last = await client.chat([*later, repeated.message, result(repeated.calls[0], "TWO")], tools=TOOLS)
    assert (last.session, last.text, client.gateway.tenants.live) == ("resumed", "TWO", 0)
    other = [*again, user("It is 10:00."), lost.message, result(lost.calls[0], "TWO")]
    assert (await client.chat(other, tools=TOOLS)).session == "replayed"
    assert client.stats()["runs_opened"] == 3


async def test_the_same_results_while_they_are_worked_on(client: Client, stream: bool) -> None:
    messages = [user('sim: call lookup {"key": "a"}\nsim: say begun\nsim: hang')]
    first = await client.chat(messages, tools=TOOLS)
    again = [*messages, first.message, result(first.calls[0], "ONE")]
    body = {"model": "sim-auto", "messages": again, "stream": True, "tools": TOOLS}
    async with client.http.stream("POST", CHAT, json=body) as working:
        async for piece in working.aiter_text():
            if "begun" in piece:
                break
        second = await client.chat(again, tools=TOOLS, stream=stream)
    assert second.error is not None
    assert (second.status, second.error["code"]) == (409, "turn_in_progress")
    assert (second.headers["x-should-retry"], second.headers["retry-after"]) == ("true", "1")
    assert client.stats()["runs_opened"] == 1


async def test_a_replayed_request_that_is_repeated_while_it_is_worked_on(client: Client) -> None:
    """The tickets are of a turn that is gone; the run that the history was replayed into is found all the same."""
    call = {"id": "call_of_yesterday", "type": "function", "function": {"name": "lookup", "arguments": '{"key":"a"}'}}
    prompt = user('sim: call lookup {"key": "a"}\nsim: say begun\nsim: call note {"text": "b"}\nsim: result')
    messages = [prompt, {"role": "assistant", "tool_calls": [call]}, result(call, "ONE")]
    first, second = await asyncio.gather(*(client.chat(messages, tools=TOOLS) for _ in range(2)))
    statuses = sorted((first.status, second.status))
    assert statuses in ([200, 409], [200, 200])
    third = await client.chat(messages, tools=TOOLS)
    answers = [answer for answer in (first, second, third) if answer.status == 200]
    assert {answer.calls[0]["id"] for answer in answers} == {third.calls[0]["id"]}, "one run, one answer"
    other = await client.chat([user("another chat"), *messages[1:]], tools=TOOLS)
    assert other.status == 200, "the same ids and results in another conversation are another request"
    assert client.stats()["runs_opened"] == 2


async def test_the_same_results_after_their_client_hung_up(client: Client) -> None:
    messages = [user('sim: call lookup {"key": "a"}\nsim: result\nsim: wait 1000')]
    first = await client.chat(messages, tools=TOOLS)
    again = [*messages, first.message, result(first.calls[0], "ONE")]
    body = {"model": "sim-auto", "messages": again, "stream": True, "tools": TOOLS}
    async with client.http.stream("POST", CHAT, json=body) as working:
        async for piece in working.aiter_text():
            if "ONE" in piece:
                break
    while True:  # until the gateway has noticed
        second = await client.chat(again, tools=TOOLS)
        if second.status != 409:
            break
    assert (second.session, second.text) == ("replayed", "ONE")
    assert client.stats()["runs_opened"] == 2


@pytest.mark.seed("E13")
async def test_results_that_lead_to_heartbeats_only_are_told_to_a_fresh_run(stream: bool, manners: Manners) -> None:
    """The results are accepted and stored in blobs, no checkpoint comes, and nothing follows. The client sees one
    answer that took a while."""
    async with gateway("h2", manners=manners, progress_timeout=0.5, first_event_patience=0.1) as client:
        messages = [user('sim: call lookup {"key": "a"}\nsim: stall 1\nsim: result')]
        first = await client.chat(messages, tools=TOOLS)
        answer = await client.chat(
            [*messages, first.message, result(first.calls[0], "ONE")], tools=TOOLS, stream=stream
        )
        assert (answer.text, answer.finish, answer.calls) == ("ONE", "stop", ())
        assert client.stats()["runs_opened"] == 2
        metrics = (await client.http.get("/metrics")).text
        assert 'caretway_recoveries_total{rung="fresh run",cause="stalled"} 1' in metrics


async def test_user_text_beside_results_reaches_the_model(client: Client, stream: bool) -> None:
    messages = [user('sim: call lookup {"key": "a"}\nsim: result')]
    first = await client.chat(messages, tools=TOOLS)
    beside = [*messages, first.message, result(first.calls[0], "ONE"), user("and be quick")]
    answer = await client.chat(beside, tools=TOOLS, stream=stream)
    assert answer.session == "resumed"
    assert "ONE" in answer.text
    assert "and be quick" in answer.text


@pytest.mark.parametrize("change", ["tools", "model"])
async def test_changed_tools_or_model_replay(client: Client, change: str) -> None:
    messages = [user('sim: call lookup {"key": "a"}\nsim: result')]
    first = await client.chat(messages, tools=TOOLS)
    more: dict[str, Any] = {"tools": TOOLS[:1]} if change == "tools" else {"tools": TOOLS, "model": "sim-fast"}
    answer = await client.chat([*messages, first.message, result(first.calls[0], "ONE")], **more)
    assert (answer.session, answer.text) == ("replayed", "ONE")
    assert change in answer.headers["x-caretway-session-reason"]


@pytest.mark.seed("J11", "N02")
async def test_two_sessions_that_open_alike_do_not_mix(client: Client, stream: bool) -> None:
    """N02: same first prompt, same model, same tools, interleaved."""
    messages = [user('sim: call lookup {"key": "same"}\nsim: result\nsim: call note {"text": "same"}\nsim: result')]
    talks = {name: list(messages) for name in ("red", "blue")}
    said = dict.fromkeys(talks, "")
    for step in range(3):
        for name in ("red", "blue") if step % 2 else ("blue", "red"):
            answer = await client.chat(talks[name], stream=stream, tools=TOOLS)
            said[name] += answer.text + " "
            talks[name] += [answer.message, *(result(call, f"{name}-{step}") for call in answer.calls)]
    assert said == {"red": " red-0 red-1 ", "blue": " blue-0 blue-1 "}
    assert client.stats()["runs_opened"] == 2


async def test_a_call_with_very_many_values_reaches_the_client(client: Client, stream: bool) -> None:
    """Its exec is too much to decode; the model's own text of it was told before."""
    values = ",".join(["1"] * 20_000)
    messages = [user('sim: call lookup {"key": [' + values + "]}\nsim: result")]
    first = await client.chat(messages, tools=TOOLS, stream=stream)
    assert first.finish == "tool_calls", first.error
    assert msgspec.json.decode(first.calls[0]["function"]["arguments"]) == {"key": [1] * 20_000}
    answer = await client.chat([*messages, first.message, result(first.calls[0], "ONE")], tools=TOOLS, stream=stream)
    assert (answer.session, answer.text) == ("resumed", "ONE")


async def test_a_built_in_call_that_is_too_large_is_answered_and_the_turn_goes_on(client: Client) -> None:
    content = "x" * 600_000
    answer = await client.chat('sim: exec write {"path": "a", "content": "' + content + '"}\nsim: say went on')
    assert (answer.status, answer.finish) == (200, "stop"), answer.error
    assert answer.text.endswith("went on")


@pytest.mark.seed("F28", "N03")
async def test_session_gone_in_between_still_succeeds(transport: str, stream: bool, manners: Manners) -> None:
    """N03: expired in between, one extra bootstrap, the answer is the same."""
    async with gateway(transport, manners=manners, parked_timeout=0.05) as client:
        messages = [user('sim: call lookup {"key": "a"}\nsim: say After\nsim: result')]
        first = await client.chat(messages, stream=stream, tools=TOOLS)
        async with asyncio.timeout(60):
            while client.simulator.open_runs:
                await asyncio.sleep(0.01)
        second = await client.chat(
            [*messages, first.message, result(first.calls[0], "ONE")], stream=stream, tools=TOOLS
        )
        assert second.session == "replayed"
        assert second.text.split() == ["After", "ONE"]
        assert client.stats()["runs_opened"] == 2


@pytest.mark.seed("J10")
async def test_a_foreign_ticket_is_replayed(client: Client) -> None:
    call = {
        "id": "call_of_another_provider",
        "type": "function",
        "function": {"name": "lookup", "arguments": '{"key":"z"}'},
    }
    messages = [
        user('sim: call lookup {"key": "z"}\nsim: result'),
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    answer = await client.chat([*messages, result(call, "FOREIGN")], tools=TOOLS)
    assert (answer.session, answer.text) == ("replayed", "FOREIGN")


async def test_upstream_lost_while_parked_is_replayed(client: Client, transport: str) -> None:
    """N06 and worse: the run dies while the client works; its results still get their answer."""
    messages = [user('sim: call lookup {"key": "a"}\nsim: result')]
    first = await client.chat(messages, tools=TOOLS)
    client.simulator.break_connections()
    async with asyncio.timeout(60):
        while client.simulator.open_runs:
            await asyncio.sleep(0.01)
    answer = await client.chat([*messages, first.message, result(first.calls[0], "ONE")], tools=TOOLS)
    assert (answer.session, answer.text) == ("replayed", "ONE")


@pytest.mark.seed("N06")
async def test_heartbeats_only_after_a_result_is_found_out(transport: str, manners: Manners) -> None:
    """N06: completed and heartbeats only. The history is told to a fresh run; when that leads nowhere either, there is
    one retry, then an error that says so."""
    async with gateway(
        transport, manners=manners, progress_timeout=0.3, client_heartbeat=0.1, exec_heartbeat=0.1
    ) as client:
        messages = [user('sim: call lookup {"key": "a"}\nsim: hang')]
        first = await client.chat(messages, tools=TOOLS)
        answer = await client.chat([*messages, first.message, result(first.calls[0], "ONE")], tools=TOOLS)
        assert (answer.status, answer.error and answer.error["code"]) == (504, "upstream_timeout")
        assert answer.headers["x-should-retry"] == "true"
        assert client.stats()["runs_opened"] == 3, "one, and two reopened"


async def test_a_hundred_parked_turns_resumed_in_random_order(transport: str, manners: Manners) -> None:
    async with gateway(transport, manners=manners) as client:
        prompt = 'sim: call lookup {"key": "same"}\nsim: result'
        parked = await asyncio.gather(*(client.chat([user(prompt)], tools=TOOLS) for _ in range(100)))
        assert client.simulator.open_runs == 100
        order = list(range(100))
        random.Random(7).shuffle(order)

        async def resume(number: int) -> Answer:
            first = parked[number]
            return await client.chat(
                [user(prompt), first.message, result(first.calls[0], f"mine-{number}")], tools=TOOLS
            )

        answers = await asyncio.gather(*(resume(number) for number in order))
        assert [answer.text for answer in answers] == [f"mine-{number}" for number in order]
        assert {answer.session for answer in answers} == {"resumed"}
        assert client.stats()["runs_opened"] == 100


async def test_two_requests_race_for_one_ticket(client: Client) -> None:
    messages = [user('sim: call lookup {"key": "a"}\nsim: wait 50\nsim: result')]
    first = await client.chat(messages, tools=TOOLS)
    again = [*messages, first.message, result(first.calls[0], "ONE")]
    answers = await asyncio.gather(*(client.chat(again, tools=TOOLS) for _ in range(3)))
    assert sorted(answer.status for answer in answers) == [200, 409, 409]
    assert {answer.text for answer in answers if answer.status == 200} == {"ONE"}
    assert client.stats()["runs_opened"] == 1


async def test_required_session_refuses_a_replay(client: Client) -> None:
    call = {"id": "sess_gone__call_1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    messages = [user("x"), {"role": "assistant", "tool_calls": [call]}, result(call, "late")]
    answer = await client.chat(messages, tools=TOOLS, headers={"x-caretway-session": "required"})
    assert (answer.status, answer.error and answer.error["code"]) == (409, "turn_gone")


async def test_the_oldest_parked_turn_is_let_go_first(manners: Manners) -> None:
    async with gateway(manners=manners, max_parked=2) as client:
        prompt = 'sim: call lookup {"key": "same"}\nsim: result'
        parked = [await client.chat([user(prompt)], tools=TOOLS) for _ in range(3)]
        sessions = []
        for number, first in enumerate(parked):
            again = [user(prompt), first.message, result(first.calls[0], f"r{number}")]
            answer = await client.chat(again, tools=TOOLS)
            assert answer.text == f"r{number}"
            sessions.append(answer.session)
        assert sessions == ["replayed", "resumed", "resumed"]


@pytest.mark.seed("F15")
async def test_tool_choice_none_offers_nothing(client: Client, stream: bool) -> None:
    prompt = 'sim: call lookup {"key": "a"}\nsim: say done'
    answer = await client.chat(prompt, stream=stream, tools=TOOLS, tool_choice="none")
    assert not answer.calls
    assert "lookup" in answer.text
    assert answer.text.endswith("done")


@pytest.mark.seed("F15")
async def test_tool_choice_none_beside_results_offers_nothing(client: Client, stream: bool) -> None:
    """Agents forbid calls in the last step that they allow."""
    talk = [user('sim: call lookup {"key": "a"}\nsim: call lookup {"key": "b"}\nsim: say done')]
    first = await client.chat(talk, stream=stream, tools=TOOLS)
    talk += [first.message, result(first.calls[0], "FOUND")]
    last = await client.chat(talk, stream=stream, tools=TOOLS, tool_choice="none")
    assert (last.status, last.calls, last.session) == (200, (), "replayed")
    assert last.text.endswith("done")
    assert client.gateway.tenants.parked == 0
    talk += [last.message, user("sim: say next")]
    assert (await client.chat(talk, stream=stream, tools=TOOLS)).session == "continued"


@pytest.mark.seed("F14")
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "lookup"}}], ids=["any", "named"]
)
async def test_a_demanded_call_gets_one_retry_then_what_there_is(client: Client, stream: bool, choice: Any) -> None:
    prompt = 'sim: say Thinking aloud.\nsim: call lookup {"key": "a"}'
    answer = await client.chat(prompt, stream=stream, tools=TOOLS, tool_choice=choice)
    assert [call["function"]["name"] for call in answer.calls] == ["lookup"]
    assert answer.text == "Thinking aloud."
    before = client.stats()["runs_opened"]
    answer = await client.chat("sim: say no tool today", stream=stream, tools=TOOLS, tool_choice=choice)
    assert (answer.status, answer.text, answer.error) == (200, "no tool today", None)
    assert "the model answered in words twice" in answer.headers["x-caretway-tool-choice"]
    assert answer.headers["x-should-retry"] == "false"
    assert client.stats()["runs_opened"] == before + 2


NAMED = {"type": "function", "function": {"name": "lookup"}}
OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}


@pytest.mark.seed("F14")
async def test_another_call_than_the_named_one_is_rejected_in_the_same_run(client: Client, stream: bool) -> None:
    before = client.stats()["runs_opened"]
    prompt = 'sim: call other {}\nsim: result\nsim: call lookup {"key": "a"}\nsim: result'
    history = [user(prompt)]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER], tool_choice=NAMED)
    assert [call["function"]["name"] for call in answer.calls] == ["lookup"]
    assert "`lookup`" in answer.text, "what the model was told names the tool"
    assert "x-caretway-tool-choice" not in answer.headers
    history += [answer.message, result(answer.calls[0], "FOUND")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER])
    assert (answer.text, answer.session, client.stats()["runs_opened"]) == ("FOUND", "resumed", before + 1)


@pytest.mark.seed("F14")
@pytest.mark.parametrize(
    "tail", ["", "\nsim: call other {}\nsim: call other {}\nsim: say never"], ids=["words", "calls"]
)
async def test_a_model_that_never_calls_the_named_tool(client: Client, stream: bool, tail: str) -> None:
    """It is told twice; then the client gets the text with a note, and never the other call."""
    before = client.stats()["runs_opened"]
    history = [user(f"sim: say Some words.\nsim: call other {{}}{tail}")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER], tool_choice=NAMED)
    assert (answer.status, answer.text.strip(), answer.calls) == (200, "Some words.", ())
    assert (answer.finish, answer.error) == ("stop", None)
    times = "3 times" if tail else "once"
    assert answer.headers["x-caretway-tool-choice"].endswith(
        f"demands a call of the tool `lookup`; the model called others {times}"
    )
    assert answer.headers["x-should-retry"] == "false"
    assert (client.stats()["runs_opened"], client.gateway.tenants.parked) == (before + 1, 0)
    history += [answer.message, user("sim: say next")]
    assert (await client.chat(history, stream=stream, tools=[*TOOLS, OTHER])).text == "next"
    await client.gateway.tenants.end_turns()
    assert client.gateway.tenants.parked == 0


@pytest.mark.seed("F14")
@pytest.mark.parametrize(
    "order",
    [
        'other {} & lookup {"key": "a"}',
        'lookup {"key": "a"} & other {}',
        'other {} & other {"n": 1} & other {"n": 2} & lookup {"key": "a"}',
    ],
)
async def test_the_named_call_beside_another_reaches_the_client(client: Client, stream: bool, order: str) -> None:
    history = [user(f"sim: call {order}\nsim: say done")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER], tool_choice=NAMED)
    assert [call["function"]["name"] for call in answer.calls] == ["lookup"]
    history += [answer.message, result(answer.calls[0], "FOUND")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER])
    assert (answer.text, answer.session, client.gateway.tenants.parked) == ("done", "resumed", 0)


@pytest.mark.seed("F14")
async def test_no_other_call_than_the_named_one_in_any_dialect(client: Client) -> None:
    schema = {"type": "object"}
    prompt = "sim: say Words.\n" + "\n".join(["sim: call other {}"] * 3)
    messages = {
        "model": "sim-auto",
        "max_tokens": 100,
        "messages": [user(prompt)],
        "tools": [{"name": name, "input_schema": schema} for name in ("lookup", "other")],
        "tool_choice": {"type": "tool", "name": "lookup"},
    }
    responses = {
        "model": "sim-auto",
        "input": prompt,
        "tools": [{"type": "function", "name": name, "parameters": schema} for name in ("lookup", "other")],
        "tool_choice": {"type": "function", "name": "lookup"},
    }
    before = client.stats()["runs_opened"]
    said = await client.http.post("/v1/messages", json=messages)
    assert (said.status_code, said.json()["stop_reason"]) == (200, "end_turn")
    assert [(block["type"], block.get("text", "").strip()) for block in said.json()["content"]] == [("text", "Words.")]
    answered = await client.http.post("/v1/responses", json=responses)
    assert [item["type"] for item in answered.json()["output"]] == ["message"]
    for answer in (said, answered):
        assert "demands a call of the tool `lookup`" in answer.headers["x-caretway-tool-choice"]
    assert (client.stats()["runs_opened"], client.gateway.tenants.parked) == (before + 2, 0)


@pytest.mark.seed("F14")
async def test_a_tool_that_is_demanded_at_each_step_costs_one_run(client: Client, stream: bool) -> None:
    """The model hears of the demand beside the results, and calls of other tools are rejected as in the first step."""
    script = (
        'sim: call lookup {"key": "a"}\nsim: result\nsim: call other {}\nsim: call lookup {"key": "b"}\nsim: result'
    )
    history = [user(script)]
    answers = []
    for choice in (NAMED, NAMED, "auto"):
        answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER], tool_choice=choice)
        answers.append(answer)
        history += [answer.message, *(result(call, "FOUND") for call in answer.calls)]
    assert [call["function"]["name"] for answer in answers for call in answer.calls] == ["lookup", "lookup"]
    assert [answer.session for answer in answers] == ["fresh", "resumed", "resumed"]
    assert "You must call the tool `lookup`" in answers[1].text, "what the model was told beside the result"
    assert (answers[2].text, client.stats()["runs_opened"], client.gateway.tenants.parked) == ("FOUND", 1, 0)


@pytest.mark.seed("F14")
async def test_another_tool_than_the_one_before_may_be_demanded_beside_results(client: Client, stream: bool) -> None:
    history = [user('sim: call other {}\nsim: call note {"text": "a"}\nsim: call lookup {"key": "b"}\nsim: say end')]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER])
    history += [answer.message, result(answer.calls[0], "FOUND")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER], tool_choice=NAMED)
    assert [call["function"]["name"] for call in answer.calls] == ["lookup"]
    assert (answer.session, client.stats()["runs_opened"]) == ("resumed", 1)


@pytest.mark.seed("F14")
async def test_a_resumed_run_that_never_calls_the_named_tool(client: Client, stream: bool) -> None:
    """Given up after two rejections, as in a first step."""
    history = [user("sim: call other {}" + "\nsim: call other {}" * 4)]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER])
    history += [answer.message, result(answer.calls[0], "FOUND")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER], tool_choice=NAMED)
    assert (answer.status, answer.calls, answer.session) == (200, (), "resumed")
    assert answer.headers["x-caretway-tool-choice"].endswith("the model called others 3 times")
    assert (client.stats()["runs_opened"], client.gateway.tenants.parked) == (1, 0)


@pytest.mark.seed("F14")
async def test_a_resumed_run_that_ends_in_words_is_tried_once_more(client: Client, stream: bool) -> None:
    history = [user("sim: call other {}\nsim: say done")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER])
    history += [answer.message, result(answer.calls[0], "FOUND")]
    answer = await client.chat(history, stream=stream, tools=[*TOOLS, OTHER], tool_choice=NAMED)
    assert (answer.status, answer.calls, answer.session, answer.text) == (200, (), "replayed", "done")
    assert answer.headers["x-caretway-tool-choice"].endswith("the model answered in words twice")
    assert (client.stats()["runs_opened"], client.gateway.tenants.parked) == (2, 0)


@pytest.mark.seed("F14")
async def test_a_demanded_tool_that_the_run_was_not_offered_is_demanded_of_a_new_run(client: Client) -> None:
    history = [user('sim: call note {"text": "a"}\nsim: call other {}\nsim: say end')]
    answer = await client.chat(history, tools=TOOLS)
    history += [answer.message, result(answer.calls[0], "FOUND")]
    other = {"type": "function", "function": {"name": "other"}}
    answer = await client.chat(history, tools=[*TOOLS, OTHER], tool_choice=other)
    assert [call["function"]["name"] for call in answer.calls] == ["other"]
    assert answer.session == "replayed"


@pytest.mark.seed("F27")
async def test_drop_after_a_tool_result_runs_the_tool_once(client: Client, stream: bool) -> None:
    messages = [user('sim: call lookup {"key": "card"}\nsim: drop 1\nsim: result\nsim: say end')]
    answer, requests = await loop(client, messages, stream)
    assert requests == 2
    assert answer.text.split() == ['R<{"key":', '"card"}>', "end"] or answer.text.split() == [
        'R<{"key":"card"}>',
        "end",
    ]


async def test_a_client_that_leaves_after_its_calls_can_come_back(client: Client) -> None:
    messages = [user('sim: call lookup {"key": "a"}\nsim: result')]
    body = {"model": "sim-auto", "stream": True, "tools": TOOLS, "messages": messages}
    async with client.http.stream("POST", "/v1/chat/completions", json=body) as response:
        seen = ""
        async for text in response.aiter_text():
            seen += text
            if "tool_calls" in seen:
                break
    ticket = seen[seen.index("call_0") :].split('"')[0]
    call = {"id": ticket, "type": "function", "function": {"name": "lookup", "arguments": '{"key":"a"}'}}
    again = [*messages, {"role": "assistant", "tool_calls": [call]}, result(call, "BACK")]
    async with asyncio.timeout(60):
        while client.gateway.tenants.parked != 1:
            await asyncio.sleep(0.01)
    answer = await client.chat(again, tools=TOOLS)
    assert (answer.session, answer.text) == ("resumed", "BACK")


@pytest.mark.seed("F25", "L03")
async def test_a_loop_is_corrected_then_stopped(client: Client, stream: bool) -> None:
    """The same call with the same result: told at the second repeat, ended at the third, and upstream is closed."""
    messages = [user('sim: loop note {"text": "again"}')]
    for _ in range(4):
        answer = await client.chat(messages, stream=stream, tools=TOOLS)
        assert answer.status == 200, answer.error
        messages += [answer.message, result(answer.calls[0], "nothing new")]
    answer = await client.chat(messages, stream=stream, tools=TOOLS)
    assert (answer.status, answer.error and answer.error["code"]) == (502, "tool_loop_detected")
    assert client.stats()["runs_opened"] == 1
    async with asyncio.timeout(60):
        while client.simulator.open_runs:
            await asyncio.sleep(0.01)
