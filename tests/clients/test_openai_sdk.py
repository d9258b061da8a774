"""The real `openai` package against a running gateway on the simulator, on both of OpenAI's APIs: real sockets, its own
stream helpers, parsers and exceptions."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from caretway.config import Settings
from caretway.gateway import Gateway

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SHELL: Any = {
    "type": "function",
    "name": "shell",
    "description": "runs a command",
    "parameters": SCHEMA,
    "strict": False,
}
CHAT_SHELL: Any = {"type": "function", "function": {key: value for key, value in SHELL.items() if key != "type"}}
PATCH: Any = {"type": "custom", "name": "patch", "description": "changes files"}
ONE_CALL = 'sim: call shell {"command": "ls -l"}'
TWO_CALLS = 'sim: call shell {"command": "a"} & shell {"command": "b"}'
MODEL = "sim-auto"


class Event(BaseModel):
    name: str
    n: int


@asynccontextmanager
async def connected(**settings: Any) -> AsyncIterator[AsyncOpenAI]:
    async with (
        Gateway(Settings(port=0, backend="simulator", **settings)) as gateway,
        AsyncOpenAI(base_url=f"{gateway.base_url}/v1", api_key="sk-test", max_retries=0, timeout=30) as sdk,
    ):
        yield sdk


@pytest.fixture
async def client() -> AsyncIterator[AsyncOpenAI]:
    async with connected() as sdk:
        yield sdk


def script(*lines: str) -> str:
    return "\n".join(["Please do this.", *lines, "Thank you."])


def user(*lines: str) -> Any:
    return {"role": "user", "content": script(*lines)}


async def streamed(client: AsyncOpenAI, **request: Any) -> Any:
    async with client.responses.stream(model=MODEL, **request) as stream:
        async for _event in stream:
            pass
        return await stream.get_final_response()


def told(response: Any) -> list[Any]:
    """The output without what differs from run to run."""
    items = json.loads(response.model_dump_json(exclude_unset=True, warnings=False))["output"]
    own = ("id", "call_id", "parsed_arguments")
    for item in items:
        for part in item.get("content", ()):
            part.pop("parsed", None)
    return [{key: value for key, value in item.items() if key not in own} for item in items]


def outputs(response: Any, *texts: str) -> list[Any]:
    calls = [item for item in response.output if item.type == "function_call"]
    assert len(calls) == len(texts)
    return [
        {"type": "function_call_output", "call_id": call.call_id, "output": text}
        for call, text in zip(calls, texts, strict=True)
    ]


# ---- streams and whole answers


@pytest.mark.parametrize(
    ("lines", "more", "kinds"),
    [
        (["sim: say PONG and more"], {}, ["message"]),
        (["sim: think hm hm", "sim: say PONG"], {"reasoning": {"summary": "auto"}}, ["reasoning", "message"]),
        (["sim: think hm hm", "sim: say PONG"], {}, ["message"]),
        (["sim: say wait", ONE_CALL], {"tools": [SHELL]}, ["message", "function_call"]),
        ([TWO_CALLS], {"tools": [SHELL]}, ["function_call", "function_call"]),
        (['sim: call patch {"input": "a\\nb"}'], {"tools": [PATCH]}, ["custom_tool_call"]),
    ],
    ids=["text", "reasoning", "reasoning nobody asked for", "one call", "two calls", "a custom tool"],
)
async def test_the_stream_helper_ends_with_the_whole_answer(
    client: AsyncOpenAI, lines: list[str], more: dict[str, Any], kinds: list[str]
) -> None:
    whole = await client.responses.create(model=MODEL, input=script(*lines), **more)
    helped = await streamed(client, input=script(*lines), **more)
    assert [item.type for item in whole.output] == kinds
    assert told(helped) == told(whole)
    assert (helped.status, helped.model) == (whole.status, whole.model) == ("completed", MODEL)
    assert whole.usage is not None and helped.usage is not None
    assert helped.usage.output_tokens == whole.usage.output_tokens > 0


async def test_chat_streams_and_whole_answers(client: AsyncOpenAI) -> None:
    messages: Any = [user("sim: say wait", ONE_CALL)]
    whole = (await client.chat.completions.create(model=MODEL, messages=messages, tools=[CHAT_SHELL])).choices[0]
    async with client.chat.completions.stream(model=MODEL, messages=messages, tools=[CHAT_SHELL]) as stream:
        async for _event in stream:
            pass
        helped = (await stream.get_final_completion()).choices[0]
    assert helped.finish_reason == whole.finish_reason == "tool_calls"
    assert helped.message.content == whole.message.content == "wait"
    for message in (whole.message, helped.message):
        (call,) = message.tool_calls or []
        assert call.type == "function"
        assert (call.function.name, json.loads(call.function.arguments)) == ("shell", {"command": "ls -l"})


async def test_parsed_answers(client: AsyncOpenAI) -> None:
    text = script('sim: say {"name": "party", "n": 3}')
    response = await client.responses.parse(model=MODEL, input=text, text_format=Event)
    assert response.output_parsed == Event(name="party", n=3)
    messages: Any = [{"role": "user", "content": text}]
    chat = await client.chat.completions.parse(model=MODEL, messages=messages, response_format=Event)
    assert chat.choices[0].message.parsed == Event(name="party", n=3)


# ---- tools, sessions, and what is remembered


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_with_the_whole_history(client: AsyncOpenAI, stream: bool) -> None:
    items: list[Any] = [user(TWO_CALLS, "sim: say FINAL", "sim: result")]
    given: dict[str, Any] = {"tools": [SHELL], "store": False}

    async def step() -> Any:
        if stream:
            return await streamed(client, input=items, **given)
        return await client.responses.create(model=MODEL, input=items, **given)

    response = await step()
    own = {"parsed_arguments"}
    items += [item.model_dump(exclude_none=True, exclude=own) for item in response.output]
    items += outputs(response, "first", "second")
    assert (await step()).output_text == "FINAL\nfirst\nsecond"


async def test_a_tool_loop_by_the_name_of_the_last_response(client: AsyncOpenAI) -> None:
    asked = await client.responses.create(model=MODEL, input=script(ONE_CALL, "sim: result"), tools=[SHELL])
    raw = await client.responses.with_raw_response.create(
        model=MODEL, input=outputs(asked, "files"), previous_response_id=asked.id, tools=[SHELL]
    )
    assert raw.headers["x-caretway-session"] == "resumed"
    answered = raw.parse()
    assert answered.output_text == "files"
    assert answered.previous_response_id == asked.id
    raw = await client.responses.with_raw_response.create(
        model=MODEL, input=script("sim: recall"), previous_response_id=answered.id, tools=[SHELL]
    )
    assert raw.headers["x-caretway-session"] == "continued"
    assert raw.parse().output_text.startswith("1 earlier user turn and 1 tool result.")


async def test_begun_on_chat_and_continued_here_and_back(client: AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "be brief"}, user("sim: say ONE")]
    begun = await client.chat.completions.create(model=MODEL, messages=messages)
    messages += [{"role": "assistant", "content": begun.choices[0].message.content}, user("sim: recall")]
    raw = await client.responses.with_raw_response.create(model=MODEL, instructions="be brief", input=messages[1:])
    assert raw.headers["x-caretway-session"] == "continued"
    told_here = raw.parse().output_text
    assert told_here.startswith("1 earlier user turn")
    messages += [{"role": "assistant", "content": told_here}, user("sim: recall", "sim: say BACK")]
    back = await client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
    assert back.headers["x-caretway-session"] == "continued"
    assert str(back.parse().choices[0].message.content).startswith("2 earlier user turns")


async def test_a_call_made_on_chat_is_answered_here(client: AsyncOpenAI) -> None:
    messages: Any = [user(ONE_CALL, "sim: result")]
    begun = await client.chat.completions.create(model=MODEL, messages=messages, tools=[CHAT_SHELL])
    (call,) = begun.choices[0].message.tool_calls or []
    assert call.type == "function"
    items: Any = [
        *messages,
        {"type": "function_call", "call_id": call.id, "name": "shell", "arguments": call.function.arguments},
        {"type": "function_call_output", "call_id": call.id, "output": "files"},
    ]
    raw = await client.responses.with_raw_response.create(model=MODEL, input=items, tools=[SHELL])
    assert raw.headers["x-caretway-session"] == "resumed"
    assert raw.parse().output_text == "files"


async def test_responses_are_kept_listed_and_forgotten(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model=MODEL, input=script("sim: say ONE"), metadata={"k": "v"})
    assert (await client.responses.retrieve(made.id)).to_dict() == made.to_dict()
    listed = [item async for item in client.responses.input_items.list(made.id)]
    assert [item.type for item in listed] == ["message"]
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model=MODEL, input="x", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"


# ---- failures and silence


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("unauthenticated", openai.AuthenticationError),
        ("rate_limit", openai.RateLimitError),
        ("overflow", openai.BadRequestError),
        ("internal", openai.InternalServerError),
    ],
)
async def test_a_failure_before_the_first_byte_is_a_status(
    client: AsyncOpenAI, code: str, error: type[openai.APIStatusError], stream: bool
) -> None:
    with pytest.raises(error):
        await client.responses.create(model=MODEL, input=script(f"sim: fail {code}"), stream=stream)


async def test_a_failure_after_text_ends_the_stream(client: AsyncOpenAI) -> None:
    lines = script("sim: say PART", "sim: fail rate_limit")
    seen: list[Any] = []
    async with client.responses.stream(model=MODEL, input=lines) as stream:
        seen += [event async for event in stream]
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == "PART"
    assert seen[-1].type == "response.failed"
    assert seen[-1].response.error.code == "rate_limit_exceeded"


async def test_keep_alives_do_not_disturb_the_helper() -> None:
    async with connected(keep_alive=0.05) as client:
        seen: list[Any] = []
        async with client.responses.stream(model=MODEL, input=script("sim: stream 3 4 200")) as stream:
            seen += [event async for event in stream]
            final = await stream.get_final_response()
    assert sum(event.type == "response.in_progress" for event in seen) > 2
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert len(final.output_text) == 12
