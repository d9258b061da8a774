"""The contract of every public API: dialect x transport x stream/whole x scenario, on real sockets."""

import pytest

from contract.gateways import Client
from contract.speakers import SPEAKERS, Speaker, ask

pytestmark = pytest.mark.both_profiles


@pytest.fixture(params=SPEAKERS, ids=[speaker.name for speaker in SPEAKERS])
def speaker(request: pytest.FixtureRequest) -> Speaker:
    found: Speaker = request.param
    return found


@pytest.mark.seed("A02")
async def test_text_and_thinking(client: Client, speaker: Speaker, stream: bool) -> None:
    prompt = "sim: think Let me see.\nsim: say Grüße, “world” ✓"
    heard = await ask(speaker, client.http, speaker.body(prompt, [], stream))
    assert (heard.status, heard.text, heard.reasoning) == (200, "Grüße, “world” ✓", "Let me see.")
    assert (heard.finish, heard.complete) == ("stop", True)
    assert heard.usage
    assert heard.headers["x-caretway-session"] == "fresh"


@pytest.mark.seed("B29")
async def test_a_tool_loop_is_one_run(client: Client, speaker: Speaker, stream: bool) -> None:
    prompt = 'sim: say Looking.\nsim: call look {"key": "a"} & find {"key": "b"}\nsim: say Found:\nsim: result'
    body = speaker.body(prompt, ["look", "find"], stream)
    heard = await ask(speaker, client.http, body)
    assert [(call.name, call.arguments) for call in heard.calls] == [("look", {"key": "a"}), ("find", {"key": "b"})]
    assert (heard.text, heard.finish, heard.complete) == ("Looking.", "tools", True)
    results = {call.id: f"{call.name}-result" for call in heard.calls}
    last = await ask(speaker, client.http, speaker.follow_up(body, heard, results))
    assert last.text.split() == ["Found:", "look-result", "find-result"]
    assert last.headers["x-caretway-session"] == "resumed"
    assert client.stats()["runs_opened"] == 1


async def test_a_builtin_without_equivalent_is_refused_by_name(client: Client, speaker: Speaker, stream: bool) -> None:
    body = speaker.body('sim: exec shell {"command": "date"}\nsim: result', ["unrelated"], stream)
    heard = await ask(speaker, client.http, body)
    assert "unrelated" in heard.text, "refused, with the tools that exist"


async def test_a_drop_is_not_noticed(client: Client, speaker: Speaker, stream: bool) -> None:
    prompt = "sim: say alpha beta\nsim: drop 1\nsim: say gamma delta"
    heard = await ask(speaker, client.http, speaker.body(prompt, [], stream))
    assert heard.text.split() == ["alpha", "beta", "gamma", "delta"]
    assert heard.complete


STATUS = {
    "unauthenticated": 401,
    "usage_limit": 402,
    "rate_limit": 429,
    "overflow": 400,
    "bad_model": 400,
    "deprecated": 502,
    "internal": 502,
}


async def test_failure_before_and_after_the_first_byte(client: Client, speaker: Speaker, stream: bool) -> None:
    for code, status in STATUS.items():
        heard = await ask(speaker, client.http, speaker.body(f"sim: fail {code}", [], stream))
        assert (code, heard.status) == (code, status)
        assert heard.error
        if stream:
            heard = await ask(speaker, client.http, speaker.body(f"sim: say PART\nsim: fail {code}", [], True))
            assert (code, heard.status, heard.text, heard.complete) == (code, 200, "PART", True)
            assert heard.error


async def test_a_conversation_changes_its_language(client: Client, stream: bool) -> None:
    """Begun on one API, answered on another: the same transcript, the same conversation."""
    chat, messages, responses = SPEAKERS
    body = chat.body('sim: call look {"key": "a"}\nsim: result', ["look"], stream)
    heard = await ask(chat, client.http, body)
    results = {heard.calls[0].id: "HERON"}
    other = messages.body('sim: call look {"key": "a"}\nsim: result', ["look"], stream)
    second = await ask(messages, client.http, messages.follow_up(other, heard, results))
    assert (second.text, second.headers["x-caretway-session"]) == ("HERON", "resumed")
    third = responses.body('sim: call look {"key": "a"}\nsim: result', ["look"], stream)
    third = responses.follow_up(third, heard, results)
    third["input"] += [{"role": "assistant", "content": second.text}, {"role": "user", "content": "sim: recall"}]
    last = await ask(responses, client.http, third)
    assert last.headers["x-caretway-session"] == "continued"
    assert "look" in last.text
