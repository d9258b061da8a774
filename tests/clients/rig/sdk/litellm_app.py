"""litellm: Anthropic's and OpenAI's APIs through one function; streams, and loops with two calls at once."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import json

import litellm
from checks import BASE, KEY, MODE, MODEL, both, check, finish, pong, prompt, shell, two_prompt

ROUTES = {
    "messages": {"model": "anthropic/" + MODEL, "api_base": BASE},
    "chat": {"model": "openai/" + MODEL, "api_base": BASE + "/v1"},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "run a shell command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def ask(route, messages, stream, **more):
    answer = litellm.completion(messages=messages, stream=stream, api_key=KEY, max_tokens=1000, num_retries=0, **ROUTES[route], **more)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer.choices[0].message


def loop(route, stream, text):
    messages = [{"role": "user", "content": text}]
    for _ in range(5):
        answer = ask(route, messages, stream, tools=[TOOL])
        messages.append(answer.model_dump(exclude_none=True))
        if not answer.tool_calls:
            return answer.content
        assert len(answer.tool_calls) == 2, answer.tool_calls
        for call in answer.tool_calls:
            out = shell(json.loads(call.function.arguments)["command"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": out})
    raise AssertionError("no end after 5 turns")


for route in ROUTES:
    for stream in (True, False):
        how = f"{route}, {'stream' if stream else 'whole'}"
        if MODE == "text":
            say = [{"role": "user", "content": prompt("sim: say PONG")}]
            check(how, lambda r=route, s=stream: pong(ask(r, say, s).content))
        else:
            check(f"two calls at once: {how}", lambda r=route, s=stream: both(loop(r, s, two_prompt("bash"))))
finish()
