"""The profile `live` on real sockets: what it does that the classic one does not, and what the gateway makes of it."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from caretway.backends.builtin_tools.queries import NO_WEB
from caretway.cursor.wire import paths
from caretway.cursor.wire.blobs import blob_id, write_message
from caretway.cursor.wire.messages import ai, pb
from caretway_sim import Simulator
from caretway_sim.catalogue import BASES
from caretway_sim.manners import LIVE, Manners
from caretway_sim.script import EXEC_KINDS
from contract.gateways import gateway, result, simulated, tool
from contract.sim_peer import H2, PROTO, STREAM, Peer, offer, say

MODEL = pb.RequestedModel(model_id="sim-auto")
TOOLS = [tool("lookup", "key")]


@pytest.fixture
async def live() -> AsyncIterator[tuple[Simulator, int]]:
    async with simulated(replace(LIVE, lingers_ms=0)) as running:
        yield running


async def played(port: int, request: pb.AgentRunRequest, peer: Peer | None = None) -> Peer:
    seen = peer or Peer()
    async with H2.open(port) as connection:
        await connection.run(request, seen)
    return seen


async def test_m2_base_models_are_served(live: tuple[Simulator, int]) -> None:
    async with H2.open(live[1]) as connection:
        status, body = (await connection.call("POST", paths.AVAILABLE_MODELS, PROTO, b"\x28\x01\x38\x01"))[:2]
        assert status == 200
        assert len(ai.AvailableModelsResponse.FromString(body).models) == len(BASES)
        assert (await connection.call("POST", paths.USABLE_MODELS, STREAM, b""))[0] == 415


async def test_m4_a_lonely_slug_is_an_empty_turn(live: tuple[Simulator, int]) -> None:
    peer = await played(live[1], say("sim: say hi", requested_model=pb.RequestedModel(model_id="gpt-5.1-low")))
    assert (peer.text, peer.error) == ("", None)
    assert peer.ended == pb.TurnEndedUpdate()


async def test_r10_three_checkpoints_of_a_turn_with_a_call(live: tuple[Simulator, int]) -> None:
    peer = Peer(tools={"add": lambda _: "three"})
    await played(live[1], offer(say('sim: call add {"a": 1}\nsim: result', requested_model=MODEL), "add"), peer)
    assert peer.text == "three"
    assert peer.seen.count("checkpoint") == 3
    assert "tool_requests_listed" not in peer.seen


async def test_r11_system_roots_are_dropped(live: tuple[Simulator, int]) -> None:
    request = say("sim: instructions", requested_model=MODEL)
    request.action.user_message_action.request_context.cloud_rule = "from the rule"
    root = write_message("system", "from a root")
    request.conversation_state.root_prompt_messages_json.append(blob_id(root))
    peer = await played(live[1], request, Peer(blobs={blob_id(root): root}))
    assert "from the rule" in peer.text
    assert "from a root" not in peer.text


@pytest.mark.parametrize("both", [False, True])
async def test_r17_a_tool_in_one_place_is_hidden_where_both_are_read(both: bool) -> None:
    request = offer(say("sim: call add {}\nsim: result", requested_model=MODEL), "add")
    async with simulated(replace(LIVE, lingers_ms=0, tools_in_both_places=both)) as (_, port):
        peer = await played(port, request, Peer(tools={"add": lambda _: "3"}))
    assert peer.text.split("\n")[0] == ("[tool add was not offered]" if both else "3")


async def test_r16_a_refused_conversation_stays_refused(live: tuple[Simulator, int]) -> None:
    first = await played(live[1], say("sim: fail bare", requested_model=MODEL))
    again = await played(live[1], say("sim: say hi", requested_model=MODEL))
    fresh = say("sim: say hi", requested_model=MODEL)
    fresh.conversation_id = "another"
    assert first.error == again.error
    assert again.error is not None
    assert (await played(live[1], fresh)).text == "hi"


async def test_a3_a_stream_that_ends_without_a_frame(live: tuple[Simulator, int]) -> None:
    peer = await played(live[1], say("sim: fail eof", requested_model=MODEL))
    assert (peer.finished, peer.seen, peer.heartbeats) == (False, [], 0)


async def test_a4_u5_t2_over_http1(live: tuple[Simulator, int]) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{live[1]}", trust_env=False, verify=False) as http:
        assert (await http.post(paths.RUN, headers=STREAM)).status_code == 464
        key = {"authorization": "Bearer key spent=80"}
        pair = (await http.post(paths.EXCHANGE_KEY, headers=key, json={})).json()
        told = await http.post(paths.PERIOD_USAGE, headers={"authorization": f"Bearer {pair['accessToken']}"}, json={})
        assert told.json()["planUsage"]["apiPercentUsed"] == 80
        refresh = {"authorization": f"Bearer {pair['refreshToken']}"}
        assert (await http.post(paths.REFRESH, headers=refresh, json={})).status_code == 401
        assert (await http.post("/auth/token", json={"refreshToken": pair["refreshToken"]})).status_code == 401
        assert (await http.post(paths.EXCHANGE_KEY, headers=refresh, json={})).status_code == 401
        grant = {"grant_type": "refresh_token", "client_id": "any", "refresh_token": pair["refreshToken"]}
        assert (await http.post("/oauth/token", json=grant)).json()["shouldLogout"] is False
        over = (await http.post("/oauth/token", json=grant | {"refresh_token": "bad"})).json()
        assert over == {"access_token": "", "id_token": "", "shouldLogout": True}


FLIPPED: list[tuple[str, dict[str, Any]]] = [
    ("R2 two ids", {"two_ids": True}),
    ("R1 arguments in pieces", {"argument_text": "pieces"}),
    ("R5 no tokens in the gaps", {"tokens_in_gaps": False}),
    ("R6 calls are listed", {"lists_calls": True}),
    ("R17 tools in both places", {"tools_in_both_places": True}),
    ("U2 absurd cache reads", {"absurd_cache_reads": True}),
]


@pytest.mark.parametrize(("name", "flip"), FLIPPED, ids=[row[0] for row in FLIPPED])
async def test_a_tool_loop_with_one_switch_flipped(name: str, flip: dict[str, Any], transport: str) -> None:
    manners: Manners = replace(LIVE, **flip)
    messages = [{"role": "user", "content": f'sim: call lookup {{"key": "{"k" * 80}"}}\nsim: result'}]
    async with gateway(transport, manners=manners) as client:
        first = await client.chat(messages, tools=TOOLS)
        assert len(first.calls) == 1
        second = await client.chat([*messages, first.message, result(first.calls[0], "VALUE")], tools=TOOLS)
        assert (second.session, second.text) == ("resumed", "VALUE")
        assert client.stats()["runs_opened"] == 1


async def test_r9_an_end_without_turn_ended_is_a_cut(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        assert (await client.chat("sim: say a\nsim: leave\nsim: say b")).text == "a\nb"


QUESTIONS = {
    "setup_vm": "success",
    "pull_request": "rejected: Nobody can be asked",
    "mcp_auth": "rejected: Nobody can be asked",
    "generate_image": "rejected: Nobody can be asked",
    "kind_13": "failure: Nobody can be asked",
    "connect_scm": "rejected: Nobody can be asked",
    "web_search": "rejected: Web search is turned off",
    "web_fetch": "rejected: Web search is turned off",
    "ask_question": "rejected: Nobody can be asked",
    "switch_mode": "rejected: Nobody can be asked",
    "create_plan": "\n\nSimulated plan\n\n1. Answer.\n\nsuccess",
}


async def test_s9_every_question_gets_a_typed_answer(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        for kind, wanted in QUESTIONS.items():
            assert (await client.chat(f"sim: query {kind}\nsim: result")).text.startswith(wanted), kind
        assert client.stats()["queries_answered"] == len(QUESTIONS)


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("before", ["", "well"])
async def test_s9_a_plan_is_taken_and_shown_once(transport: str, stream: bool, before: str, cut: bool) -> None:
    """Also when the run is cut behind it."""
    plan = 'sim: query create_plan {"name": "N", "overview": "O", "plan": "1. P"}'
    lines = [f"sim: say {before}", plan, *["sim: drop"] * cut, "sim: result"]
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat("\n".join(lines), stream=stream)
        assert answer.text == f"{before}\n\nN\n\nO\n\n1. P\n\nsuccess"
        assert client.stats()["runs_opened"] == 1 + cut


@pytest.mark.parametrize(
    ("by", "wanted"), [("off", NO_WEB), ("client", "Call one of these tools: WebSearch."), ("cursor", "approved")]
)
async def test_s9_web_search_is_a_choice(by: str, wanted: str) -> None:
    async with gateway(manners=LIVE, web_search=by) as client:
        for kind in ("web_search", "web_fetch"):
            answer = await client.chat(f"sim: query {kind}\nsim: result", tools=[*TOOLS, tool("WebSearch", "query")])
            assert answer.text.endswith(wanted)
            assert not answer.calls


EXECS = {
    "subagent": "answered in field 28",
    "shell_precheck": "answered in field 41",
    "mcp_precheck": "answered in field 42",
    "web_fetch_precheck": "answered in field 43",
    "git_diff": "error: this client cannot do that",
}


async def test_s9_every_exec_gets_an_answer(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        for kind in sorted(EXEC_KINDS):
            answer = await client.chat(f"sim: exec {kind}\nsim: result", tools=TOOLS)
            assert answer.text.startswith(EXECS.get(kind, "")), kind
            assert (answer.finish, answer.calls) == ("stop", ()), kind
        stats = client.stats()
        assert stats["execs_answered"] == stats["execs_asked"]


async def test_s9_mcp_state_tells_of_the_tools(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat("sim: exec mcp_state\nsim: result", tools=TOOLS)
        (server,) = json.loads(answer.text.removeprefix("success "))["servers"]
        assert (server["server_name"], server["status"]) == ("caretway", "connected")
        (offered,) = server["tools"]
        assert (offered["tool_name"], offered["provider_identifier"]) == ("lookup", "caretway")
        assert "key" in offered["input_schema"]["properties"]
        asked = 'sim: exec mcp_state {"server_identifiers": ["other"]}\nsim: result'
        assert (await client.chat(asked, tools=TOOLS)).text == "success {}"
        assert (await client.chat("sim: exec mcp_state\nsim: result")).text == "success {}"


async def test_r23_an_approval_probe_runs_nothing(transport: str, stream: bool) -> None:
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat('sim: probe lookup {"key": "k"}\nsim: result', tools=TOOLS, stream=stream)
        assert (answer.text, answer.finish, answer.calls) == ("approved", "stop", ())
        messages = [
            {"role": "user", "content": 'sim: probe lookup {"key": "k"}\nsim: call lookup {"key": "k"}\nsim: result'}
        ]
        first = await client.chat(messages, tools=TOOLS, stream=stream)
        assert len(first.calls) == 1, "the call that follows the probe runs once"
        second = await client.chat([*messages, first.message, result(first.calls[0], "VALUE")], tools=TOOLS)
        assert (second.session, second.text) == ("resumed", "VALUE")


async def test_s9_a_picture_that_cursor_made_is_not_written(transport: str) -> None:
    """It comes as bytes to be written; without a workspace nobody writes them."""
    made = base64.b64encode(bytes(range(256))).decode()
    script = f'sim: exec write {{"path": "/w/a.png", "fileBytes": "{made}"}}\nsim: result'
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat(script, tools=TOOLS)
        assert answer.text.startswith("rejected:") and not answer.calls


async def test_s9_an_edit_is_a_read_and_a_write_under_one_id(transport: str, stream: bool) -> None:
    """Each becomes a call of the client's own tools, with an id of its own, and the file is read byte for byte."""
    content = "\tone\r\ntwo  \n\n"
    written = json.dumps({"path": "/w/a", "fileText": content + "three", "toolCallId": "edit-1"})
    read = 'sim: exec read {"path": "/w/a", "toolCallId": "edit-1"}'
    script = f"{read}\nsim: result\nsim: exec write {written}\nsim: say done"
    messages: list[dict[str, Any]] = [{"role": "user", "content": script}]
    tools = [tool("Read", "file_path"), tool("Write", "file_path", "content")]
    async with gateway(transport, manners=LIVE) as client:
        begun = await client.chat(messages, tools=tools, stream=stream)
        (first,) = begun.calls
        messages += [begun.message, result(first, content)]
        write = await client.chat(messages, tools=tools, stream=stream)
        (second,) = write.calls
        assert (first["function"]["name"], second["function"]["name"]) == ("Read", "Write")
        assert first["id"] != second["id"]
        assert json.loads(second["function"]["arguments"]) == {"file_path": "/w/a", "content": content + "three"}
        assert write.text == content, "what the model reads is what the client read"
        messages += [write.message, result(second, "written")]
        assert (await client.chat(messages, tools=tools, stream=stream)).text == "done"
        assert client.stats()["runs_opened"] == 1
