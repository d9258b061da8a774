"""The simulator from outside, on real sockets: runs over both carriers, re-sequencing, blobs, sign-in, model lists.

This is the profile `classic`, to which a peer may say little: no model, no whole request. What `live` does that it does
not is in `test_live.py`.
"""

import asyncio
import gzip
import itertools
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import h2.exceptions
import msgspec
import pytest

from caretway.cursor.wire import blobs, paths
from caretway.cursor.wire.embedding import AppendWriter
from caretway.cursor.wire.envelope import End, EnvelopeReader, read_unary
from caretway.cursor.wire.messages import ai, pb
from caretway_sim import Simulator
from caretway_sim.manners import CLASSIC
from caretway_sim.model_input import PREAMBLE_TOKENS
from caretway_sim.proxy import throw_away_ca
from contract.sim_peer import (
    H2,
    JSON,
    PROTO,
    STREAM,
    TOKEN,
    Cut,
    Peer,
    append,
    call,
    closed,
    frames,
    offer,
    request_id_body,
    run_h1,
    say,
    thrown,
)

Play = Callable[[pb.AgentRunRequest, Peer], Awaitable[None]]


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    simulator = Simulator(heartbeat_s=0.05, manners=CLASSIC)
    yield simulator
    await simulator.aclose()


@pytest.fixture
async def port(simulator: Simulator) -> int:
    return await simulator.listen("127.0.0.1", 0)


@pytest.fixture(params=["h1", "h2", "sse over h2"])
async def play(request: pytest.FixtureRequest, port: int) -> AsyncIterator[Play]:
    """Plays a run over one of the carriers."""
    numbers = itertools.count()
    if request.param == "h1":
        yield lambda run, peer: run_h1(port, run, peer, f"request-{next(numbers)}")
        return
    async with H2.open(port) as connection:
        if request.param == "h2":
            yield connection.run
        else:
            yield lambda run, peer: sse_over_h2(connection, run, peer, f"request-{next(numbers)}")


async def sse_over_h2(connection: H2, request: pb.AgentRunRequest, peer: Peer, request_id: str) -> None:
    numbered = AppendWriter(request_id)
    stream = connection.start("POST", paths.RUN_SSE, STREAM)
    connection.send(stream, request_id_body(request_id), end=True)
    first = pb.AgentClientMessage(run_request=request).SerializeToString()
    assert (await connection.call("POST", paths.BIDI_APPEND, PROTO, numbered.write(first)))[0] == 200
    reader = EnvelopeReader()
    async for data in connection.body(stream):
        for frame in reader.feed(data):
            for answer in peer.take(frame):
                body = numbered.write(answer.SerializeToString())
                assert (await connection.call("POST", paths.BIDI_APPEND, PROTO, body))[0] == 200


# ---------------------------------------------------------------------------------------------- runs


async def test_a_text_turn(play: Play, simulator: Simulator) -> None:
    peer = Peer()
    await play(say("sim: think first\\nthen\nsim: say one two\nsim: say three"), peer)
    assert peer.finished
    assert peer.error is None
    assert peer.text == "one two\nthree"
    assert peer.deltas == ["one ", "two", "\nthree"]
    assert peer.thinking == "first\nthen"
    assert peer.ended is not None
    assert peer.ended.output_tokens == peer.tokens > 0
    assert peer.ended.reasoning_tokens > 0
    assert peer.ended.input_tokens > PREAMBLE_TOKENS, "which no client sees"
    assert peer.ended.cache_read_tokens == peer.ended.cache_write_tokens == 0
    order = [kind for kind, _ in itertools.groupby(peer.seen) if kind != "token_delta"]
    assert [kind for kind, _ in itertools.groupby(order)] == [
        "request_context_args",
        "set_blob",
        "thinking_delta",
        "thinking_completed",
        "text_delta",
        "set_blob",
        "checkpoint",
        "turn_ended",
    ]
    assert simulator.stats.runs_opened == 1
    assert simulator.stats.tokens_out == peer.tokens


async def test_tools_are_called_and_waited_for(play: Play) -> None:
    peer = Peer(tools={"add": lambda args: f"sum {args['a'] + args['b']:g}", "echo": lambda args: args["text"]})
    script = (
        'sim: say Now.\nsim: call add {"a": 1, "b": 2}\nsim: result\n'
        'sim: call add {"a": 3, "b": 4} & echo {"text": "hi"}\nsim: result\nsim: call gone {}\nsim: say end'
    )
    await play(offer(say(script), "add", "echo"), peer)
    assert peer.calls == [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), ("echo", {"text": "hi"})]
    assert peer.text == "Now.sum 3sum 7\nhi\n[tool gone was not offered]\nend"
    assert peer.seen.count("tool_call_started") == peer.seen.count("tool_call_completed") == 3
    assert peer.seen.count("checkpoint") == 3, "after each batch of results, and at the end"
    assert peer.seen.count("tool_requests_listed") == 1
    assert peer.seen.index("tool_call_started") < peer.seen.index("partial_tool_call") < peer.seen.index("mcp_args")


async def test_a_second_turn_pulls_its_blobs(play: Play, simulator: Simulator) -> None:
    first = Peer(tools={"add": lambda _: "3"})
    await play(offer(say("sim: call add {}\nsim: result"), "add"), first)
    simulator.stats.reset()
    second = Peer(blobs=first.blobs)
    request = offer(say("sim: recall"), "add")
    assert first.checkpoint is not None
    request.conversation_state.CopyFrom(first.checkpoint)
    await play(request, second)
    assert second.text.startswith("1 earlier user turn and 1 tool result. First user text: sim: call add")
    assert second.seen[0] == "get_blob"
    stats = simulator.stats
    assert stats.blobs_got == second.seen.count("get_blob") >= 6
    assert stats.tokens_in_cached > stats.tokens_in_uncached > 0
    assert second.ended is not None
    assert second.ended.cache_read_tokens == stats.tokens_in_cached


async def test_a_missing_blob_ends_the_run(play: Play, simulator: Simulator) -> None:
    first = Peer()
    await play(say("sim: say hello"), first)
    request = say("sim: recall")
    assert first.checkpoint is not None
    request.conversation_state.CopyFrom(first.checkpoint)
    forgetful = Peer()
    await play(request, forgetful)
    assert forgetful.error is not None
    assert (forgetful.error.code, forgetful.error.message) == ("internal", "Blob not found")
    assert simulator.stats.blobs_missing == 1
    assert not forgetful.text


async def test_blobs_that_come_along_are_not_asked_for(play: Play) -> None:
    history = [blobs.write_message("user", "first words"), blobs.write_message("assistant", "well")]
    request = say("sim: recall")
    request.conversation_state.root_prompt_messages_json.extend(blobs.blob_id(data) for data in history)
    for data in history:
        request.pre_fetched_blobs.add(id=blobs.blob_id(data), value=data)
    peer = Peer()
    await play(request, peer)
    assert "get_blob" not in peer.seen
    assert peer.text == "1 earlier user turn and 0 tool results. First user text: first words"


async def test_a_replayed_history_goes_on_where_it_stops(play: Play) -> None:
    """Root prompts written by another client: the call was made and answered in a run that is gone."""
    history = [
        blobs.write_message("system", "be brief"),
        blobs.write_message("user", "sim: say Now.\nsim: call add {}\nsim: result\nsim: say end"),
        blobs.write_message("assistant", [blobs.text_part("Now."), blobs.tool_call_part("x", "add", {})]),
        blobs.write_message("tool", [blobs.tool_result_part("x", "add", "forty two")]),
    ]
    request = offer(say(""), "add")
    request.action.resume_action.SetInParent()
    request.conversation_state.root_prompt_messages_json.extend(blobs.blob_id(data) for data in history)
    peer = Peer(blobs={blobs.blob_id(data): data for data in history})
    await play(request, peer)
    assert peer.text == "forty two\nend"
    assert peer.calls == []


async def test_typed_history_and_inline_context(play: Play) -> None:
    request = say("")
    action = request.action.user_message_action
    action.request_context.cloud_rule = "speak softly"
    action.conversation_history.messages.add().user.content.add().text.text = "sim: call add {}\nsim: result"
    tool_call = action.conversation_history.messages.add().assistant.content.add().tool_call
    tool_call.tool_call_id, tool_call.tool_name, tool_call.args_json = "c", "add", "{}"
    tool = action.conversation_history.messages.add().tool
    tool.tool_call_id, tool.tool_name = "c", "add"
    tool.content.add().text.text = "42"
    peer = Peer()
    await play(offer(request, "add"), peer)
    assert peer.text == "42"
    assert not peer.asked_context
    assert b"speak softly" in b"".join(peer.blobs.values())


async def test_drop_in_mid_text_resumes_from_the_checkpoint(play: Play, simulator: Simulator) -> None:
    script = "sim: say alpha\nsim: drop 2\nsim: say omega"
    peer = Peer()
    request = say(script)
    for _ in range(2):
        with pytest.raises(Cut):
            await play(request, peer)
        assert peer.checkpoint is not None
        assert not peer.finished
        request = say("")
        request.action.resume_action.SetInParent()
        request.conversation_state.CopyFrom(peer.checkpoint)
    await play(request, peer)
    assert peer.text == "alpha\nomega"
    assert peer.checkpoint is not None
    assert len(peer.checkpoint.turns) == 1
    assert (simulator.stats.runs_opened, simulator.stats.runs_resumed) == (3, 2)


async def test_drop_before_text_leaves_no_checkpoint(play: Play) -> None:
    peer = Peer()
    with pytest.raises(Cut):
        await play(say("sim: drop\nsim: say late"), peer)
    assert peer.checkpoint is None
    await play(say("sim: drop\nsim: say late"), peer)
    assert peer.text == "late"


FAILURES: list[tuple[str, str, str]] = [
    ("unauthenticated", "unauthenticated", "NOT_LOGGED_IN"),
    ("usage_limit", "resource_exhausted", "PRO_USER_USAGE_LIMIT"),
    ("rate_limit", "resource_exhausted", "RATE_LIMITED"),
    ("overflow", "invalid_argument", "CONVERSATION_TOO_LONG"),
    ("bad_model", "invalid_argument", "BAD_MODEL_NAME"),
    ("deprecated", "failed_precondition", "DEPRECATED"),
    ("unavailable", "unavailable", ""),
    ("internal", "internal", "INTERNAL"),
]


@pytest.mark.parametrize(("fault", "code", "name"), FAILURES)
@pytest.mark.parametrize(("when", "text"), [("", "before "), (" before", ""), (" after", "before ")])
async def test_failures(port: int, fault: str, code: str, name: str, when: str, text: str) -> None:
    peer = Peer()
    async with H2.open(port) as connection:
        await connection.run(say(f"sim: say before \nsim: fail {fault}{when}"), peer)
    assert peer.error is not None
    assert (peer.error.code, peer.error.name) == (code, name)
    assert peer.error.retryable is (fault == "unavailable")
    assert peer.text == text.strip()
    assert peer.ended is None


async def test_fail_after_says_something_first(port: int) -> None:
    peer = Peer()
    async with H2.open(port) as connection:
        await connection.run(say("sim: fail internal after"), peer)
    assert peer.text
    assert peer.error is not None


def native(message: pb.ExecServerMessage) -> list[pb.AgentClientMessage]:
    """A client that reads files, streams a shell, and throws at everything else."""
    number = message.id
    match message.WhichOneof("message"):
        case "read_args":
            read = pb.ExecClientMessage(id=number)
            read.read_result.success.content = f"content of {message.read_args.path}"
            return [pb.AgentClientMessage(exec_client_message=read)]
        case "shell_stream_args":
            events = [
                pb.ShellStream(start=pb.ShellStreamStart()),
                pb.ShellStream(stdout=pb.ShellStreamStdout(data="out ")),
                pb.ShellStream(exit=pb.ShellStreamExit()),
            ]
            streamed = [pb.ExecClientMessage(id=number, shell_stream=event) for event in events]
            return [*(pb.AgentClientMessage(exec_client_message=one) for one in streamed), closed(number)]
        case kind:
            return [thrown(number, f"cannot do {kind}"), closed(number)]


async def test_builtin_execs_and_queries(play: Play) -> None:
    peer = Peer(native=native)
    lines = [
        'exec read {"path": "/x"}',
        'exec shell_stream {"command": "ls"}',
        "exec unknown",
        'exec delete {"path": "/x"}',
        "query web_search",
        'exec read {"nonsense": 1}',
    ]
    await play(say("\n".join(f"sim: {line}\nsim: result" for line in lines[:-1]) + f"\nsim: {lines[-1]}"), peer)
    said = peer.text
    for expected in [
        "content of /x",
        "out ",
        "error: cannot do None",
        "error: cannot do delete_args",
        "rejected: not here",
    ]:
        assert expected in said
        said = said.partition(expected)[2]
    assert "nonsense" in said


async def test_stream_gives_every_delta_once(play: Play) -> None:
    peer = Peer()
    await play(say("sim: stream 300 50"), peer)
    assert [len(delta) for delta in peer.deltas] == [50] * 300
    assert [int(delta.split()[0]) for delta in peer.deltas] == list(range(300))


async def test_a_plain_prompt_gets_a_plain_answer(play: Play) -> None:
    peer = Peer(tools={"bash": lambda args: f"ran {args['command']}"})
    await play(offer(say("please run `uptime`"), "bash"), peer)
    assert peer.calls == [("bash", {"command": "uptime"})]
    assert "ran uptime" in peer.text
    other = Peer()
    await play(say("hello there"), other)
    assert "simulated" in other.text
    assert "1 message and no tools" in other.text


async def test_bad_requests_are_refused_clearly(play: Play) -> None:
    stateless = say("sim: say x")
    stateless.ClearField("conversation_state")
    peer = Peer()
    await play(stateless, peer)
    assert peer.error is not None
    assert (peer.error.code, peer.error.message) == ("invalid_argument", "Conversation state is required")
    inactive = say("x")
    inactive.ClearField("action")
    await play(inactive, peer)
    assert peer.error.code == "invalid_argument"
    junk = say("x")
    junk.conversation_state.root_prompt_messages_json.append(blobs.blob_id(b"junk"))
    peer.blobs[blobs.blob_id(b"junk")] = b"junk"
    await play(junk, peer)
    assert "not JSON" in peer.error.message


# ---------------------------------------------------------------------------------------------- HTTP/2


async def test_hang_beats_and_half_close_ends_it(port: int, simulator: Simulator) -> None:
    peer = Peer()
    async with H2.open(port) as connection:
        stream = connection.start("POST", paths.RUN, STREAM)
        running = asyncio.create_task(connection.run(say("sim: say Holding.\nsim: hang"), peer, stream=stream))
        await peer.until(lambda: peer.heartbeats >= 3)
        assert peer.text == "Holding."
        connection.connection.end_stream(stream.number)
        connection.flush()
        with pytest.raises(h2.exceptions.ProtocolError):  # our own client ends its half once more
            await running
        assert peer.finished
        assert peer.error is not None
        assert peer.error.code == "canceled"
        await connection.run(say("sim: say still here"), peer)
        assert peer.text.endswith("still here")


async def test_mute_says_nothing(port: int) -> None:
    peer = Peer()
    async with H2.open(port) as connection:
        stream = connection.start("POST", paths.RUN, STREAM)
        running = asyncio.create_task(connection.run(say("sim: say x\nsim: mute"), peer, stream=stream))
        await peer.until(lambda: peer.text)
        seen = peer.heartbeats
        await asyncio.sleep(0.3)  # six heartbeats would fit in here
        assert peer.heartbeats == seen
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_data_after_the_end_hurts_nobody(port: int) -> None:
    """The official client heartbeats a moment longer than the run lasts."""
    async with H2.open(port) as connection:
        stream = connection.start("POST", paths.RUN, {**STREAM, "authorization": "Bearer bad"})
        body = b"".join([data async for data in connection.body(stream)])
        assert b"unauthenticated" in body
        for _ in range(5):
            connection.send(stream, b"\x00\x00\x00\x00\x02\x3a\x00")
        peer = Peer()
        await connection.run(say("sim: say fine"), peer)
        assert peer.text == "fine"


async def test_a_stuck_reader_stalls_nobody_else(port: int) -> None:
    async with H2.open(port) as connection:
        stuck = Peer()
        stream = connection.start("POST", paths.RUN, STREAM)
        connection.stuck.add(stream.number)
        slow = asyncio.create_task(connection.run(say("sim: stream 5000 1000"), stuck, stream=stream))
        await stuck.until(lambda: stuck.deltas)
        others = [Peer() for _ in range(20)]
        await asyncio.gather(*[connection.run(say("sim: stream 200 100"), peer) for peer in others])
        assert all(len(peer.deltas) == 200 for peer in others)
        assert len(stuck.deltas) < 100, "one window of 64 KB and no more"
        connection.stuck.clear()
        connection.connection.increment_flow_control_window(2**24, stream.number)
        connection.flush()
        await slow
        assert len(stuck.deltas) == 5000


async def test_many_runs_on_one_connection(port: int) -> None:
    async with H2.open(port) as connection:
        peers = [Peer(tools={"mine": lambda args: f"owner {args['n']:g}"}) for _ in range(100)]
        runs = [
            connection.run(offer(say(f'sim: call mine {{"n": {n}}}\nsim: result'), "mine"), peer)
            for n, peer in enumerate(peers)
        ]
        await asyncio.gather(*runs)
    assert [peer.text for peer in peers] == [f"owner {n}" for n in range(100)]


async def test_compressed_envelopes_are_accepted(port: int) -> None:
    message = pb.AgentClientMessage(run_request=say("sim: say packed"))
    message.run_request.action.user_message_action.request_context.SetInParent()
    packed = gzip.compress(message.SerializeToString())
    peer = Peer()
    async with H2.open(port) as connection:
        stream = connection.start("POST", paths.RUN, STREAM)
        connection.send(stream, struct.pack(">BI", 1, len(packed)) + packed)
        await connection.run(say("ignored: a run has one request"), peer, stream=stream)
    assert peer.text == "packed"


async def test_a_broken_envelope_ends_the_run_only(port: int) -> None:
    async with H2.open(port) as connection:
        stream = connection.start("POST", paths.RUN, STREAM)
        connection.send(stream, b"\xff\x00\x00\x00\x00")
        body = b"".join([data async for data in connection.body(stream)])
        assert b"invalid_argument" in body
        status, _ = await connection.call("GET", "/_sim/stats", {})
        assert status == 200


async def test_a_broken_preface_closes_the_connection(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))  # DATA on stream 0
    await asyncio.wait_for(reader.read(), 60)
    writer.close()
    await writer.wait_closed()


async def test_the_loopback_is_a_connection_like_any_other(simulator: Simulator) -> None:
    peer = Peer()
    async with H2.open(sock=await simulator.connect()) as connection:
        await connection.run(say("sim: say inside"), peer)
    assert peer.text == "inside"
    await simulator.aclose()
    with pytest.raises(ConnectionRefusedError):
        await simulator.connect()


def test_the_loopback_works_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop has no wheel for this platform")

    async def talk() -> str:
        simulator, peer = Simulator(manners=CLASSIC), Peer()
        async with H2.open(sock=await simulator.connect()) as connection:
            await connection.run(say("sim: say inside"), peer)
        await simulator.aclose()
        return peer.text

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(talk()) == "inside"


async def test_tls_with_a_throw_away_authority(simulator: Simulator, tmp_path: Path) -> None:
    context, authority = throw_away_ca(tmp_path)
    port = await simulator.listen("127.0.0.1", 0, ssl_context=context)
    trusting = ssl.create_default_context(cafile=str(authority))
    trusting.set_alpn_protocols(["h2"])
    peer = Peer()
    async with H2.open(port, tls=trusting) as connection:
        await connection.run(say("sim: say sealed"), peer)
    assert peer.text == "sealed"
    with pytest.raises(ssl.SSLCertVerificationError):
        async with H2.open(port, tls=ssl.create_default_context()):
            pass


# ---------------------------------------------------------------------------------------------- RunSSE + BidiAppend


def first_append(numbered: AppendWriter, text: str) -> bytes:
    request = say(text)
    request.action.user_message_action.request_context.SetInParent()
    return numbered.write(pb.AgentClientMessage(run_request=request).SerializeToString())


async def test_appends_are_put_in_order(port: int, simulator: Simulator) -> None:
    """Every answer is sent after the heartbeat that has the next number, and each one twice."""
    numbered = AppendWriter("r")
    heartbeat = pb.AgentClientMessage(client_heartbeat=pb.ClientHeartbeat()).SerializeToString()
    assert await append(port, first_append(numbered, "sim: say in order")) == 200  # before its RunSSE
    peer = Peer()
    async for frame in frames(port, "r"):
        for answer in peer.take(frame):
            mine, next_one = numbered.write(answer.SerializeToString()), numbered.write(heartbeat)
            for body in (next_one, mine, mine):
                assert await append(port, body) == 200
    assert peer.text == "in order"
    assert peer.ended is not None
    stats, answers = simulator.stats, peer.seen.count("set_blob")
    assert stats.appends == 1 + 3 * answers
    assert stats.appends_out_of_order == answers
    assert stats.appends_duplicate <= answers, "the last repetition may come after the run"
    assert stats.appends_duplicate >= answers - 1


async def test_a_number_used_twice_loses_the_answer(port: int) -> None:
    """The bug that made earlier gateways hang: two counters on one run. Only heartbeats come, until the answer does."""
    numbered = AppendWriter("r")
    heartbeat = pb.AgentClientMessage(client_heartbeat=pb.ClientHeartbeat()).SerializeToString()
    assert await append(port, first_append(numbered, "sim: say stuck")) == 200
    assert await append(port, numbered.write(heartbeat)) == 200  # number 1
    second = AppendWriter("r")
    second.write(b"")
    peer = Peer()
    lost: list[pb.AgentClientMessage] = []
    async for frame in frames(port, "r"):
        for answer in peer.take(frame):
            writer = numbered if lost else second
            if not lost:
                lost.append(answer)
            assert await append(port, writer.write(answer.SerializeToString())) == 200
        if lost and peer.heartbeats == 3:
            assert not peer.text
            peer.heartbeats += 1
            assert await append(port, numbered.write(lost[0].SerializeToString())) == 200
    assert peer.text == "stuck"


async def test_appends_that_cannot_be_used(port: int) -> None:
    far = ai.BidiAppendRequest(append_seqno=10**9, request_id=ai.BidiRequestId(request_id="far"))
    assert await append(port, far.SerializeToString()) == 400
    assert await append(port, ai.BidiAppendRequest(data="xyz").SerializeToString()) == 400
    assert await append(port, b"\xff\xff") == 400
    assert await append(port, b"", {**PROTO, "authorization": "Bearer expired"}) == 401


async def test_a_request_id_is_good_for_one_run(port: int) -> None:
    peer = Peer()
    await run_h1(port, say("sim: say once"), peer, "same")
    again = [frame async for frame in frames(port, "same")]
    assert b"used before" in again[0]
    (refused,) = [frame async for frame in frames(port, "")]
    assert isinstance(refused, End)
    late = AppendWriter("same").write(b"")
    assert await append(port, late) == 200, "a late heartbeat is nobody's fault"


async def test_hanging_up_ends_the_run(port: int, simulator: Simulator) -> None:
    assert await append(port, first_append(AppendWriter("r"), "sim: hang")) == 200
    async for frame in frames(port, "r"):
        assert not isinstance(frame, End)
        break
    runs = [run.task for run in simulator._service.runs]
    await asyncio.wait(runs)
    assert all(run.cancelled() for run in runs)


# ---------------------------------------------------------------------------------------------- calls


async def test_runs_need_a_token(port: int) -> None:
    for token in ("", "Bearer", "Bearer bad", "Bearer expired-1", "Basic x"):
        headers = {**STREAM, "authorization": token}
        (frame,) = [frame async for frame in frames(port, f"r{token}", headers)]
        assert b'"unauthenticated"' in frame
        status, body = await call(port, "POST", paths.USABLE_MODELS, {**PROTO, "authorization": token})
        assert status == 401
        error = read_unary(body)
        assert error is not None
        assert (error.code, error.name) == ("unauthenticated", "NOT_LOGGED_IN")


async def test_sign_in(port: int, simulator: Simulator) -> None:
    async def ask(method: str, path: str, token: str = "key", body: bytes = b"{}") -> tuple[int, dict[str, Any]]:
        status, answer = await call(port, method, path, {"authorization": f"Bearer {token}"}, body)
        return status, msgspec.json.decode(answer) if answer.startswith(b"{") else {}

    status, tokens = await ask("POST", paths.EXCHANGE_KEY)
    assert status == 200
    assert tokens["accessToken"].count(".") == 2
    assert (await ask("POST", paths.EXCHANGE_KEY, "bad_key"))[0] == 401
    assert (await ask("POST", paths.EXCHANGE_KEY, tokens["refreshToken"]))[0] == 200
    assert (await ask("POST", paths.REFRESH, tokens["refreshToken"]))[0] == 200
    assert (simulator.stats.token_exchanges, simulator.stats.token_refreshes) == (1, 2)
    poll = b'{"uuid": "u", "verifier": "v"}'
    assert (await ask("POST", paths.POLL, body=poll))[0] == 404
    assert set((await ask("POST", paths.POLL, body=poll))[1]) >= {"accessToken", "refreshToken"}
    assert (await ask("GET", f"{paths.POLL}?uuid=w&verifier=v", body=b""))[0] == 404
    assert (await ask("GET", f"{paths.POLL}?uuid=w&verifier=v", body=b""))[0] == 200
    assert (await ask("POST", paths.POLL, body=b"["))[0] == 400


@pytest.mark.parametrize("path", [paths.USABLE_MODELS, paths.USABLE_MODELS_OLD])
async def test_models_in_protobuf_and_json(port: int, path: str) -> None:
    status, body = await call(port, "POST", path, PROTO)
    assert status == 200
    models = pb.GetUsableModelsResponse.FromString(body).models
    assert [model.model_id for model in models] == ["sim-auto", "sim-fast", "sim-think"]
    assert [model.HasField("thinking_details") for model in models] == [False, False, True]
    status, body = await call(port, "POST", path, JSON, b"{}")
    assert [model["modelId"] for model in msgspec.json.decode(body)["models"]] == ["sim-auto", "sim-fast", "sim-think"]


async def test_the_calls_around_a_run(port: int) -> None:
    _, body = await call(port, "POST", paths.DEFAULT_MODEL, PROTO)
    assert pb.GetDefaultModelForCliResponse.FromString(body).model.model_id == "sim-auto"
    _, body = await call(port, "POST", paths.NAME_AGENT, JSON, b'{"userMessage": "fix the login page please"}')
    assert msgspec.json.decode(body) == {"name": "fix the login page"}
    _, body = await call(port, "GET", "/v1/models")
    items = msgspec.json.decode(body)["items"]
    assert [value["value"] for value in items[2]["parameters"][0]["values"]] == ["low", "medium", "high"]
    _, body = await call(port, "GET", "/v1/me")
    assert msgspec.json.decode(body)["apiKeyName"]
    for path in (paths.PRIVACY_MODE, paths.TEAM_SETTINGS, paths.TEAM_REPOS, "/aiserver.v1.AnalyticsService/Batch"):
        assert (await call(port, "POST", path, PROTO))[0] == 200
    assert (await call(port, "GET", "/nowhere"))[0] == 404
    status, body = await call(port, "POST", "/agent.v1.AgentService/Dance", PROTO)
    error = read_unary(body)
    assert error is not None
    assert (status, error.code) == (404, "unimplemented")
    assert (await call(port, "HEAD", "/_sim/stats"))[0] == 404


@pytest.mark.parametrize(("prefer", "config"), [("h1", 0), ("h2", 4)])
async def test_the_server_config_names_the_carrier(prefer: Any, config: int) -> None:
    simulator = Simulator(prefer=prefer, manners=CLASSIC)
    port = await simulator.listen("127.0.0.1", 0)
    _, body = await call(port, "POST", paths.SERVER_CONFIG, PROTO)
    assert ai.GetServerConfigResponse.FromString(body).http2_config == config
    await simulator.aclose()


async def test_stats_and_reset(play: Play, port: int, simulator: Simulator) -> None:
    await play(say("sim: say counted"), Peer())
    _, body = await call(port, "GET", "/_sim/stats", {})
    stats = msgspec.json.decode(body)
    assert stats == simulator.stats.as_dict()
    assert stats["runs_opened"] == 1
    assert stats["blobs_set"] > 0
    assert (await call(port, "POST", "/_sim/reset", {}))[0] == 200
    assert set(simulator.stats.as_dict().values()) == {0}


async def test_keep_alive_and_pipelining(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = b"GET /_sim/stats HTTP/1.1\r\nhost: sim\r\n\r\n"
    writer.write(request * 3 + request[: len(request) - 2] + b"connection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.count(b"HTTP/1.1 200") == 4
    writer.close()
    await writer.wait_closed()


async def test_closing_ends_open_runs() -> None:
    simulator, peer = Simulator(heartbeat_s=0.02, manners=CLASSIC), Peer()
    port = await simulator.listen("127.0.0.1", 0)
    async with H2.open(port) as connection:
        running = asyncio.create_task(connection.run(say("sim: hang"), peer))
        await peer.until(lambda: peer.heartbeats)
        await simulator.aclose()
        await simulator.aclose()
        with pytest.raises(Cut):
            await running
    with pytest.raises(OSError):
        await call(port, "GET", "/_sim/stats", TOKEN)
