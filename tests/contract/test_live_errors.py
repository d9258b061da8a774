"""Cursor's errors and limits, row by row, gateway against the profile `live` on real sockets.

Each row has the name that it has in the table of errors (`cursor/transport/refusals.py`): what the client is told, and
how many runs were opened for it.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from caretway_sim.manners import LIVE
from contract.gateways import Answer, Client, gateway, result, tool

MODEL = "gpt-5.4"
TOOLS = [tool("lookup", "key")]
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    script: str
    """The word of the simulator's script."""
    status: int
    code: str
    says: tuple[str, ...]
    """What the message has in this order."""
    runs: int = 1
    again: str = "false"
    model: str = "sim-auto"


ROWS = [
    Row(
        "resource_exhausted bare: the other shape, then the causes that are left, in order",
        "bare",
        403,
        "refused_without_reason",
        (
            "no reason",
            "fields that name the model",
            "client version",
            "plan",
            "capacity",
            "To tell them apart",
            "--agent-client-version",
        ),
        runs=2,
    ),
    Row(
        "resource_exhausted bare on a model of another maker: more causes",
        "bare",
        403,
        "refused_without_reason",
        ("region", "fields that name the model", "client version", "Other Models", "plan", "capacity", "composer-2.5"),
        runs=2,
        model=MODEL,
    ),
    Row("resource_exhausted with words: quota", "quota", 402, "insufficient_quota", ("usage limit", "dashboard")),
    Row("outdated client", "outdated", 502, "upstream_deprecated", ("Update Required", "--agent-client-version")),
    Row(
        "PROVIDER_ERROR 400: a refused schema",
        "schema",
        400,
        "tool_schema_refused",
        ("the model's maker refused", "anyOf", "without tools"),
    ),
    Row(
        "MODEL_BLOCKED: the data policy",
        "policy",
        403,
        "model_blocked",
        ("Review Data Policy", "https://cursor.com/dashboard/restricted_models/sim-auto"),
    ),
    Row(
        "failed_precondition with words: plan",
        "not_in_plan",
        403,
        "plan_or_team_refused",
        ("not included", "caretway models"),
    ),
    Row("failed_precondition bare: plan", "plan", 403, "plan_or_team_refused", ("caretway models", "--run-url")),
    Row(
        "failed_precondition with words: the region of a team",
        "team_region",
        403,
        "team_region_refused",
        ("region is not yet available for your team", "--run-url"),
    ),
    Row(
        "not_found before text: the other shape, then the model is unknown",
        "gone",
        400,
        "model_not_found",
        ("no such model", "caretway models"),
        runs=2,
    ),
    Row("invalid_argument bare: never repeated", "late", 400, "refused_as_invalid", ("1 MiB", "330 tools")),
    Row("UNSUPPORTED_REGION", "region", 403, "region_refused", ("not served in your region", "proxy")),
    Row("MAX_MODE_REQUIRED", "max_mode", 403, "max_mode_required", ("Max mode", "sim-auto@max")),
    Row("permission_denied bare", "denied", 403, "forbidden", ("caretway login",)),
    Row("internal: No exec result", "no_exec", 502, "no_exec_result", ("No exec result", "--trace"), again="true"),
    Row("internal: Unable to parse image", "picture", 400, "picture_refused", ("Unable to parse", "256 KiB")),
    Row(
        "200 and the end, without a frame: host or region",
        "eof",
        503,
        "empty_stream",
        ("without a word", "--run-url", "proxy"),
        runs=2,
    ),
    Row("unavailable: repeated", "unavailable", 503, "upstream_unavailable", ("try again",), runs=3, again="true"),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_s5(row: Row, transport: str, stream: bool) -> None:
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat(f"sim: fail {row.script}", model=row.model, stream=stream)
        message = told(answer, row.status, row.code)
        places = [message.index(words) for words in row.says]
        assert places == sorted(places), message
        assert answer.headers["x-should-retry"] == row.again
        assert client.stats()["runs_opened"] == row.runs
        if row.again == "false":  # some clients repeat whatever has these words in it
            assert "exhausted" not in message and "unavailable" not in message


def told(answer: Answer, status: int, code: str) -> str:
    assert answer.error is not None, answer
    assert (answer.status, answer.error["code"]) == (status, code), answer.error
    message: str = answer.error["message"]
    return message


async def test_s5_a_bare_refusal_names_tools_history_and_conversation_when_there_are_any(transport: str) -> None:
    talk = [*user("sim: say one"), {"role": "assistant", "content": "other words"}, *user("sim: fail bare")]
    async with gateway(transport, manners=LIVE) as client:
        message = told(await client.chat(talk, model=MODEL, tools=TOOLS), 403, "refused_without_reason")
        assert message.index("schema of a tool") < message.index("call ids in the history")
        assert "without tools" in message and "new conversation" in message


async def test_s5_a_bare_refusal_of_a_prompt_that_fills_the_window(transport: str, stream: bool) -> None:
    """Half of the window is enough for it to be told as an overflow: clients compact, and nobody tries again."""
    words = "sim: fail bare before\n" + "word " * 90_000
    async with gateway(transport, manners=LIVE) as client:
        told(await client.chat(words, model=MODEL, stream=stream), 400, "context_length_exceeded")


async def test_s5_an_expired_token_is_renewed_once(transport: str) -> None:
    """`unauthenticated`: with a key there can be a new token, and a run is asked for once more."""
    async with gateway(transport, manners=LIVE, access_token=None, api_key="key") as client:
        told(await client.chat("sim: fail unauthenticated", model=MODEL), 401, "not_authenticated")
        assert client.stats()["runs_opened"] == 2
    async with gateway(transport, manners=LIVE) as client:
        told(await client.chat("sim: fail unauthenticated", model=MODEL), 401, "not_authenticated")
        assert client.stats()["runs_opened"] == 1, "a token of the user's own cannot be renewed"


async def test_s5_a_bare_refusal_of_the_legacy_call(transport: str, stream: bool) -> None:
    """The causes that are left there, and nothing to type that is about another backend."""
    async with gateway(transport, manners=LIVE, backend="legacy-chat") as client:
        answer = await client.chat("sim: fail bare", model=MODEL, stream=stream)
        message = told(answer, 403, "refused_without_reason")
        assert message.index("region") < message.index("client version") < message.index("plan")
        assert "--agent-quirks" not in message and "schema" not in message


async def test_s5_a_bare_refusal_in_the_middle_of_an_answer(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat("sim: say so far\nsim: fail bare", model=MODEL, stream=True)
        assert answer.text == "so far"
        assert answer.error is not None
        assert "Other Models" in answer.error["message"] and "region" not in answer.error["message"]
        assert client.stats()["runs_opened"] == 1


async def test_a1_a_version_that_cursor_did_not_ship(transport: str) -> None:
    async with gateway(transport, manners=replace(LIVE, known_versions_only=True)) as client:
        message = told(await client.chat("sim: say hi"), 403, "refused_without_reason")
        assert "(2) the client version" in message
    async with gateway(
        transport, manners=replace(LIVE, known_versions_only=True), agent_client_version="sdk-python-1.1.0"
    ) as client:
        assert (await client.chat("sim: say hi")).text == "hi"


# ---- a kept conversation


def user(words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": words}]


@pytest.mark.parametrize("model", ["sim-auto", MODEL])
async def test_r16_a_poisoned_conversation_is_replayed_under_a_new_id_once(transport: str, model: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        first = await client.chat("sim: say one", model=model)
        talk = [*user("sim: say one"), first.message]
        # The refusal stays: for the kept conversation, for its replay, and for the other shape.
        told(await client.chat([*talk, *user("sim: fail bare")], model=model), 403, "refused_without_reason")
        spent = client.stats()["runs_opened"]
        assert spent == 4
        # The kept conversation is poisoned now; the user goes on with other words.
        second = await client.chat([*talk, *user("sim: say two")], model=model)
        assert (second.text, second.session) == ("two", "replayed")
        assert "refused to continue the stored conversation" in second.headers["x-caretway-session-reason"]
        assert client.stats()["runs_opened"] == spent + 2
        assert 'caretway_recoveries_total{rung="fresh run",cause="stale"} 2' in await metrics(client)
        # What answered is the conversation from now on.
        talk += [*user("sim: say two"), second.message]
        third = await client.chat([*talk, *user("sim: say three")], model=model)
        assert (third.text, third.session) == ("three", "continued")
        assert client.stats()["runs_opened"] == spent + 3


# ---- the account's usage, which is asked for first

SPENT = "spent=100"
"""A token of the simulator's: the pool of other makers' models is empty, that of Cursor's own is half full."""


@pytest.mark.parametrize(("token", "model"), [(SPENT, MODEL), ("spent=200", "sim-auto"), (f"{SPENT}.team=7", MODEL)])
async def test_u5_an_empty_pool_is_told_as_such(transport: str, stream: bool, token: str, model: str) -> None:
    async with gateway(transport, manners=LIVE, access_token=token) as client:
        answer = await client.chat("sim: fail bare", model=model, stream=stream)
        message = told(answer, 402, "insufficient_quota")
        assert "It resets on 20" in message and "cursor.com/dashboard" in message
        assert "retry-after" not in answer.headers, "Codex would wait for weeks, without a word"
        assert answer.headers["x-should-retry"] == "false"
        assert (client.stats()["runs_opened"], client.stats()["usage_asked"]) == (1, 2 if "team" in token else 1)


@pytest.mark.parametrize("code", ["usage_limit", "quota"])
async def test_u5_a_refusal_for_quota_says_when_it_comes_back(transport: str, code: str) -> None:
    """Also where no pool looks empty: Cursor has limits that it does not tell."""
    async with gateway(transport, manners=LIVE, access_token="spent=40") as client:
        answer = await client.chat(f"sim: fail {code}", model=MODEL)
        assert "Your usage resets on 20" in told(answer, 402, "insufficient_quota")
        assert "retry-after" not in answer.headers, "Codex would wait for weeks, without a word"
        assert answer.headers["x-should-retry"] == "false"
        assert (client.stats()["runs_opened"], client.stats()["usage_asked"]) == (1, 1)


@pytest.mark.parametrize(("token", "model"), [("spent=99", MODEL), (SPENT, "sim-auto")])
async def test_u5_with_usage_left_the_other_causes_are_tried(transport: str, token: str, model: str) -> None:
    async with gateway(transport, manners=LIVE, access_token=token) as client:
        told(await client.chat("sim: fail bare", model=model), 403, "refused_without_reason")
        assert (client.stats()["runs_opened"], client.stats()["usage_asked"]) == (2, 1)


async def test_u5_an_empty_pool_is_told_in_the_middle_of_an_answer(transport: str) -> None:
    async with gateway(transport, manners=LIVE, access_token=SPENT) as client:
        answer = await client.chat("sim: say so far\nsim: fail bare", model=MODEL, stream=True)
        assert (answer.text, answer.error and answer.error["code"]) == ("so far", "insufficient_quota")


async def test_u5_r16_a_kept_conversation_is_not_replayed_for_it(transport: str) -> None:
    async with gateway(transport, manners=LIVE, access_token="spent=200") as client:
        first = await client.chat("sim: say one")
        talk = [*user("sim: say one"), first.message, *user("sim: fail bare")]
        told(await client.chat(talk), 402, "insufficient_quota")
        assert client.stats()["runs_opened"] == 2


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_u5_what_cannot_be_learned_costs_no_turn(transport: str, how: Any) -> None:
    """The call that is never answered is given up after seconds, and not made again for the next refusal."""
    async with gateway(transport, manners=replace(LIVE, period_usage=how), access_token=SPENT) as client:
        for _ in range(2):
            told(await client.chat("sim: fail bare", model=MODEL), 403, "refused_without_reason")
        assert (client.stats()["runs_opened"], client.stats()["usage_asked"]) == (4, 1)
        assert (await client.chat("sim: say hi", model=MODEL)).text == "hi"


async def test_u5_many_refusals_make_one_call(transport: str) -> None:
    async with gateway(transport, manners=LIVE, access_token=SPENT) as client:
        answers = await asyncio.gather(*(client.chat("sim: fail bare", model=MODEL) for _ in range(20)))
        assert {answer.status for answer in answers} == {402}
        assert client.stats()["usage_asked"] == 1


async def test_u5_each_account_has_its_own_usage(transport: str) -> None:
    async with gateway(transport, manners=LIVE, auth_mode="passthrough", access_token=None) as client:
        for key, status in (("one-spent=100", 402), ("two-spent=1", 403), ("three-spent=100", 402)):
            answer = await client.chat("sim: fail bare", model=MODEL, headers={"authorization": f"Bearer {key}"})
            assert answer.status == status, key


async def test_r16_a_stale_conversation_is_replayed_once(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        first = await client.chat("sim: say one")
        talk = [*user("sim: say one"), first.message, *user("sim: fail gone")]
        told(await client.chat(talk), 400, "model_not_found")
        assert client.stats()["runs_opened"] == 4


async def test_r16_nothing_is_replayed_when_the_session_must_be_kept(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        first = await client.chat("sim: say one")
        talk = [*user("sim: say one"), first.message, *user("sim: fail bare")]
        refused = await client.chat(talk, headers={"x-caretway-session": "required"})
        assert "no reason" in told(refused, 409, "turn_gone")
        assert client.stats()["runs_opened"] == 2


async def test_r16_no_call_runs_twice(transport: str, stream: bool) -> None:
    """A continued conversation whose model called a tool is not replayed: it was heard of."""
    async with gateway(transport, manners=LIVE) as client:
        first = await client.chat("sim: say one")
        talk = [*user("sim: say one"), first.message, *user('sim: call lookup {"key": "k"}\nsim: fail bare')]
        asked = await client.chat(talk, tools=TOOLS, stream=stream)
        assert len(asked.calls) == 1
        done = await client.chat([*talk, asked.message, result(asked.calls[0], "V")], tools=TOOLS, stream=stream)
        assert "capacity" in told(done, 403, "refused_without_reason")
        assert client.stats()["runs_opened"] == 2


# ---- limits


async def test_l2_too_many_tools(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        few = [tool(f"tool_{number}") for number in range(330)]
        assert (await client.chat("sim: say hi", tools=few)).text == "hi"
        message = told(await client.chat("sim: say hi", tools=[*few, tool("more")]), 400, "too_many_tools")
        assert "331 tools" in message and "330" in message
        large = [tool("t") | {"function": {"name": "t", "description": "d" * 120_000}}]
        assert "120,000 bytes" in told(await client.chat("sim: say hi", tools=large), 400, "too_many_tools")
        assert client.stats()["runs_opened"] == 1


async def test_l3_a_user_message_that_is_too_large(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        script = "sim: say hi\n"
        fits = script + "a" * (MIB - len(script))
        assert (await client.chat(fits, model=MODEL)).text == "hi"
        message = told(await client.chat(fits + "a", model=MODEL), 413, "message_too_large")
        assert "1048577 bytes" in message and "1048576" in message
        assert client.stats()["runs_opened"] == 1


def long_history(count: int) -> list[dict[str, Any]]:
    return [{"role": "assistant" if number % 2 else "user", "content": f"message {number}"} for number in range(count)]


async def test_l4_a_long_history_is_told_in_fewer_messages(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        talk = [*long_history(500), *user("sim: say hi")]
        first = await client.chat(talk, model=MODEL)
        assert (first.text, client.stats()["runs_opened"]) == ("hi", 1)
        second = await client.chat([*talk, first.message, *user("sim: say more")], model=MODEL)
        assert (second.text, second.session) == ("more", "continued")


async def test_l4_a_conversation_that_grew_past_the_limit_is_replayed(transport: str) -> None:
    """Cursor's own checkpoint has one message more than it takes. Its history fits when it is told anew."""
    async with gateway(transport, manners=LIVE) as client:
        talk = [*long_history(190), *user("sim: say 0")]
        for turn in range(12):
            answer = await client.chat(talk, model=MODEL)
            assert answer.text == f"{turn}"
            talk += [answer.message, *user(f"sim: say {turn + 1}")]
        assert client.stats()["runs_opened"] == 13
        assert 'caretway_recoveries_total{rung="fresh run",cause="stale"} 1' in await metrics(client)


async def test_l2_l3_l4_without_the_check_cursor_refuses_and_the_limits_are_named(transport: str) -> None:
    async with gateway(transport, manners=LIVE, agent_quirks={"limits": False}) as client:
        asked: list[tuple[str | list[dict[str, Any]], list[dict[str, Any]]]] = [
            ("sim: say hi", [tool(f"tool_{number}") for number in range(331)]),
            ("sim: say hi\n" + "a" * MIB, []),
            ([*long_history(300), *user("sim: say hi")], []),
        ]
        for number, (messages, tools) in enumerate(asked, 1):
            more: dict[str, Any] = {"tools": tools} if tools else {}
            answer = await client.chat(messages, model=MODEL, **more)
            assert "120,000 bytes" in told(answer, 400, "refused_as_invalid")
            assert client.stats()["runs_opened"] == number


async def metrics(client: Client) -> str:
    return (await client.http.get("/metrics")).text
