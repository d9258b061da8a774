"""Cursor's errors and limits, row by row, gateway against the profile `live` on real sockets.

Each row has the name that it has in the table of errors (`cursor_transport/refusals.py`): what the client is told, and
how many runs were opened for it.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from caretway.backends.agent_api.backend import AgentBackend
from caretway.core.errors import ErrorKind, GatewayError
from caretway.simulator.manners import LIVE
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
        ("no such model", "caretway models", "new conversation"),
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
        assert "refused to go on with the kept conversation" in second.headers["x-caretway-session-reason"]
        assert client.stats()["runs_opened"] == spent + 2
        assert 'caretway_recoveries_total{rung="fresh run",cause="stale"} 2' in await metrics(client)
        # What answered is the conversation from now on.
        talk += [*user("sim: say two"), second.message]
        third = await client.chat([*talk, *user("sim: say three")], model=model)
        assert (third.text, third.session) == ("three", "continued")
        assert client.stats()["runs_opened"] == spent + 3


@pytest.mark.parametrize("spent", [True, False])
async def test_r16_the_quota_is_asked_first(spent: bool) -> None:
    async def quota() -> GatewayError | None:
        return GatewayError(ErrorKind.QUOTA, "The pool is empty.") if spent else None

    async with gateway(manners=LIVE) as client:
        backend = client.gateway.backend
        assert isinstance(backend, AgentBackend)
        backend._setup = replace(backend._setup, quota=quota)
        first = await client.chat("sim: say one")
        refused = await client.chat([*user("sim: say one"), first.message, *user("sim: fail bare")])
        if spent:
            told(refused, 402, "insufficient_quota")
            assert client.stats()["runs_opened"] == 2
        else:
            told(refused, 403, "refused_without_reason")
            assert client.stats()["runs_opened"] == 4


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
    async with gateway(transport, manners=LIVE, agent_check_limits=False) as client:
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
