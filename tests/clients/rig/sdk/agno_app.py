"""agno: agents on chat and on responses; streams, and loops with two calls at once."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat, OpenAIResponses
from checks import BASE, KEY, MODE, MODEL, both, check, finish, pong, prompt, shell, two_prompt

KINDS = {"chat": OpenAIChat, "responses": OpenAIResponses}


def bash(command: str) -> str:
    """Run a shell command.

    Args:
        command: the command
    """
    return shell(command)


def ask(kind, stream, text):
    model = KINDS[kind](id=MODEL, base_url=BASE + "/v1", api_key=KEY, max_retries=0)
    agent = Agent(model=model, tools=[bash] if MODE != "text" else None, telemetry=False)
    if not stream:
        return agent.run(text).content
    return "".join(str(event.content) for event in agent.run(text, stream=True) if event.event == "RunContent" and event.content)


for kind in KINDS:
    for stream in (True, False):
        how = f"{kind}, {'stream' if stream else 'whole'}"
        if MODE == "text":
            check(how, lambda k=kind, s=stream: pong(ask(k, s, prompt("sim: say PONG"))))
        else:
            check(f"two calls at once: {how}", lambda k=kind, s=stream: both(ask(k, s, two_prompt("bash"))))
finish()
