#!/usr/bin/env python3
"""Judge a simulated Cursor backend with the official `cursor-sdk` package.

    python sdk_oracle.py --base-url http://127.0.0.1:18900 [--only NAME] [--slow] [--list] [--timeout S]

Every check sends prompts with `sim:` lines through the SDK and looks at what the SDK hands to its user. One line per
check: `ok NAME` or `FAIL NAME: why`; exit code 0 when all passed. It needs cursor-sdk and the standard library.

Provenance: our own program, written from the outside and first passed by an independent stand-in server, before the
simulator existed. It drives the SDK and contains nothing of it.
"""

# A judge is not bent to the house style: the types of the SDK's objects are the SDK's business.
# mypy: ignore-errors
import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from dataclasses import dataclass, field

CHECKS = {}
SLOW = ("slow_tool",)  # left out unless --slow or --only asks for them
sdk = None  # the cursor_sdk module, imported once the environment is prepared


class Wrong(Exception):
    """A check failed: what was expected, what came, where to read on."""

    def __init__(self, expected, got, hint=""):
        super().__init__(f"expected {expected}; got {got}" + (f". {hint}" if hint else ""))


def check(read):
    """Register a check; `read` names the part of the protocol that it is about."""

    def register(function):
        CHECKS[function.__name__.removeprefix("check_")] = (function, read)
        return function

    return register


# ---------------------------------------------------------------------------------------------------- the laboratory


class Lab:
    """Private HOME, working directory and state, and one SDK bridge that is started on demand."""

    def __init__(self, base_url):
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="sdk-oracle-"))
        self.home, self.cwd, self.state = (os.path.join(self.root, name) for name in ("home", "ws", "state"))
        for path in (self.home, self.cwd, self.state):
            os.mkdir(path)
        for name in [n for n in os.environ if n.startswith(("CURSOR_", "NODE_")) or n.lower().endswith("_proxy")]:
            del os.environ[name]
        os.environ.update(
            HOME=self.home,
            CURSOR_BACKEND_URL=base_url,
            CURSOR_WEBSITE_URL=base_url,
            CURSOR_API_KEY="key_oracle",
            XDG_CONFIG_HOME=os.path.join(self.home, ".config"),
        )
        os.chdir(self.cwd)
        self.client, self.agents, self.model = None, [], None

    def bridge(self):
        if self.client is None:
            vendor = os.path.join(os.path.dirname(sdk.__file__), "_vendor", "bridge")
            command = [os.path.join(vendor, "bin", "node"), os.path.join(vendor, "dist", "bin", "cursor-sdk-bridge.js")]
            # node itself, not the shell wrapper: close() during a run would leave node behind
            self.client = sdk.Client.launch_bridge(
                command if all(map(os.path.exists, command)) else None,
                workspace=self.cwd,
                state_root=self.state,
                timeout=60,
            )
        return self.client

    def options(self, tools):
        if self.model is None:
            models = self.bridge().list_models()
            if not models:
                raise Wrong(
                    "at least one model", "none", 'GET /v1/models must answer {"items": [{"id", "displayName", ...}]}'
                )
            self.model = models[0].id
        custom = {
            name: sdk.CustomTool(
                execute=run,
                description=f"{name} (test tool)",
                input_schema={"type": "object", "additionalProperties": True},
            )
            for name, run in (tools or {}).items()
        }
        return sdk.AgentOptions(
            model=self.model,
            tools=["mcp"] if custom else None,
            local=sdk.LocalAgentOptions(cwd=self.cwd, **({"custom_tools": custom} if custom else {})),
        )

    def agent(self, tools=None, resume=None):
        options = self.options(tools)
        agent = self.bridge().resume_agent(resume, options) if resume else self.bridge().create_agent(options)
        self.agents.append(agent)
        return agent

    def file(self, name, text):
        path = os.path.join(self.cwd, name)
        with open(path, "w") as out:
            out.write(text)
        return path

    def stop_bridge(self):
        client, self.client, agents, self.agents = self.client, None, self.agents, []
        if client is None:
            return
        process = getattr(getattr(client, "_owned_bridge", None), "process", None)
        closer = threading.Thread(
            target=lambda: [quietly(a.close) for a in agents] + [quietly(client.close)], daemon=True
        )
        closer.start()
        closer.join(10)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait(5)

    def close(self):
        self.stop_bridge()
        os.chdir("/")
        for _ in range(5):  # node may still be writing its last file
            shutil.rmtree(self.root, ignore_errors=True)
            if not os.path.exists(self.root):
                return
            time.sleep(0.2)


def quietly(function):
    with contextlib.suppress(Exception):
        function()


@dataclass
class Talk:
    """What one run gave back."""

    status: str = ""
    text: str = ""  # all text deltas, joined
    result: str = ""  # the SDK's final text (what follows the last tool call)
    error: str = ""
    usage: object = None
    deltas: list = field(default_factory=list)  # (seconds since send, text)
    thinking: str = ""
    tool_calls: list = field(default_factory=list)
    seconds: float = 0.0

    def brief(self):
        return f"status={self.status!r} text={cut(self.text)} error={self.error!r} after {self.seconds:.1f} s"


def cut(text, limit=300):
    return repr(text if len(text) <= limit else text[:limit] + f"... ({len(text)} characters)")


def talk(agent, *lines, on_message=None):
    """Send `sim:` lines as one prompt and collect everything until the run ends."""
    outcome, started = Talk(), time.monotonic()
    run = agent.send("\n".join("sim: " + line for line in lines))
    for message in run.messages():
        now = time.monotonic() - started
        if message.type == "assistant":
            for block in message.message.content:
                outcome.deltas.append((now, getattr(block, "text", "")))
        elif message.type == "thinking":
            outcome.thinking += message.text or ""
        elif message.type == "tool_call":
            outcome.tool_calls.append((message.name, message.status))
        if on_message:
            on_message(run, message)
    final = run.wait()
    outcome.seconds = time.monotonic() - started
    outcome.status, outcome.result, outcome.usage = final.status, final.result or "", final.usage
    outcome.error = final.error_message or ""
    outcome.text = "".join(text for _, text in outcome.deltas)
    return outcome


def finished(agent, *lines):
    outcome = talk(agent, *lines)
    if outcome.status != "finished":
        raise Wrong(
            "the run to finish",
            outcome.brief(),
            f"Prompt lines: {list(lines)}. A run ends well only with turn_ended and then the end-of-stream frame {{}}",
        )
    return outcome


def same_text(got, expected, hint=""):
    if got.split() != expected.split():  # how lines are joined is the simulator's choice, words are not
        raise Wrong(f"the text {cut(expected)}", cut(got), hint)


class Tool:
    """A recording custom tool."""

    def __init__(self, answer=lambda args: "done", delay=0.0):
        self.answer, self.delay, self.calls, self.lock = answer, delay, [], threading.Lock()

    def __call__(self, args, context=None):
        entry = {"args": dict(args), "start": time.monotonic(), "id": getattr(context, "tool_call_id", None)}
        with self.lock:
            self.calls.append(entry)
        time.sleep(self.delay)
        entry["end"] = time.monotonic()
        return self.answer(args)

    def expect(
        self,
        *arguments,
        hint="McpArgs.args is a map of google.protobuf.Value; an exec is sent once and matched by its id",
    ):
        got = [entry["args"] for entry in self.calls]
        if got != list(arguments):
            raise Wrong(
                f"the callback to be called {len(arguments)} time(s), with {list(arguments)}",
                f"{len(got)} call(s): {got}",
                hint,
            )


# ---------------------------------------------------------------------------------------------------------- the checks


@check("public REST")
def check_models(lab):
    models = lab.bridge().list_models()
    if not models or not all(m.id and m.display_name for m in models):
        raise Wrong(
            "models that have an id and a display name",
            [(m.id, m.display_name) for m in models],
            'GET /v1/models -> {"items": [...]}',
        )


@check("public REST")
def check_me(lab):
    me = lab.bridge().me()
    if not me.api_key_name:
        raise Wrong("an apiKeyName", me, 'GET /v1/me -> {"apiKeyName", "userId", "userEmail", "createdAt"}')


@check("a text turn, and turn_ended")
def check_text(lab):
    sentence = 'The quick brown fox jumps over the lazy dog, äöü ✓ and 12 "quotes".'
    outcome = finished(lab.agent(), "say " + sentence)
    if outcome.text.strip() != sentence or outcome.result.strip() != sentence:
        raise Wrong(f"exactly {sentence!r}", f"deltas {outcome.text!r}, result {outcome.result!r}")
    if len(outcome.deltas) < 4:
        raise Wrong(
            "the text in several deltas, word by word", f"{len(outcome.deltas)} delta(s)", "One text_delta per word"
        )
    usage = outcome.usage
    if usage is None or not usage.input_tokens or not usage.output_tokens:
        raise Wrong("usage with input and output tokens", usage, "Set turn_ended fields 1 to 4")


@check("Connect framing")
def check_streaming(lab):
    outcome = finished(lab.agent(), "stream 10 20 80")
    if len(outcome.deltas) < 10 or len(outcome.text.rstrip("\n")) != 200:
        raise Wrong("10 deltas of 20 characters", f"{len(outcome.deltas)} deltas, {len(outcome.text)} characters")
    spread = outcome.deltas[-1][0] - outcome.deltas[0][0]
    if spread < 0.4:
        raise Wrong(
            "deltas spread over about 0.7 s",
            f"all within {spread:.2f} s",
            "Flush each envelope as it is made; do not collect the body",
        )


@check("InteractionUpdate 4 and 5")
def check_thinking(lab):
    outcome = finished(lab.agent(), "think First I weigh the options.", "say Done weighing.")
    same_text(outcome.thinking, "First I weigh the options.", "thinking_delta*, then thinking_completed")
    same_text(outcome.text, "Done weighing.", "Thinking must not leak into the text")


@check("a tool turn; exec channel, mcp")
def check_tool_call(lab):
    tool = Tool(lambda args: f"the sum is {args['a'] + args['b']} for {args['who']['name']}")
    arguments = {"a": 2, "b": 40, "who": {"name": "Zoë", "tags": ["x", None, True, 1.5]}}
    outcome = finished(lab.agent({"add": tool}), "say Calling now.", f"call add {dumps(arguments)}", "result")
    tool.expect(arguments)
    if "the sum is 42 for Zoë" not in outcome.text:
        raise Wrong(
            "the callback's result in the text",
            cut(outcome.text),
            "After mcp_result and stream_close go on in the same stream",
        )
    if ("mcp", "completed") not in outcome.tool_calls:
        raise Wrong(
            "a completed tool_call message",
            outcome.tool_calls,
            "Send tool_call_started before the exec and tool_call_completed after it, same call_id",
        )


@check("a tool turn: several execs may be in flight")
def check_parallel_tools(lab):
    left, right = Tool(lambda a: "LEFT-" + a["k"], 0.8), Tool(lambda a: "RIGHT-" + a["k"], 0.8)
    outcome = finished(
        lab.agent({"left": left, "right": right}), 'call left {"k": "one"} & right {"k": "two"}', "result"
    )
    left.expect({"k": "one"})
    right.expect({"k": "two"})
    if "LEFT-one" not in outcome.text or "RIGHT-two" not in outcome.text:
        raise Wrong(
            "both results in the text", cut(outcome.text), "`result` says the results of all calls of the last line"
        )
    a, b = left.calls[0], right.calls[0]
    if a["start"] >= b["end"] or b["start"] >= a["end"]:
        raise Wrong(
            "the two callbacks to overlap", "one after the other", "Send both execs before waiting for a result"
        )


@check("a tool turn")
def check_sequential_tools(lab):
    tool = Tool(lambda args: f"step {args['n']} ok")
    lines = [part for n in (1, 2, 3) for part in (f"say before {n}", f"call step {dumps({'n': n})}", "result")]
    outcome = finished(lab.agent({"step": tool}), *lines)
    tool.expect({"n": 1}, {"n": 2}, {"n": 3})
    same_text(
        outcome.text.replace("before", " before").replace("step", " step"),
        " ".join(f"before {n} step {n} ok" for n in (1, 2, 3)),
        "Lines run in order, each call waits for its result",
    )


@check("ConversationStateStructure and KV; a second user turn")
def check_second_turn(lab):
    tool = Tool(lambda args: "noted")
    agent = lab.agent({"note": tool})
    finished(agent, "say The codeword is PELICAN")
    recalls(finished(agent, "recall"), 1, 0, "PELICAN")
    finished(agent, 'call note {"x": "y"}', "result")
    recalls(finished(agent, "recall"), 3, 1, "PELICAN")


@check("blobs; a second user turn")
def check_resume_new_bridge(lab):
    agent = lab.agent()
    finished(agent, "say The codeword is HERON")
    ident = agent.agent_id
    lab.stop_bridge()
    recalls(finished(lab.agent(resume=ident), "recall"), 1, 0, "HERON")


def recalls(outcome, turns, answers, word):
    before, found, _ = outcome.text.partition(word)
    numbers = [int(n) for n in re.findall(r"\b\d+\b", before)]
    if not found or numbers[:2] != [turns, answers]:
        raise Wrong(
            f"recall to name {turns} earlier user turn(s), {answers} tool result(s) and the first user text, {word}",
            cut(outcome.text),
            "Set every blob of the turn, send a checkpoint before turn_ended, pull its blobs at the next run_request",
        )


@check("exec channel, read")
def check_native_read(lab):
    path = lab.file("poem.txt", "first line\nsecond line with ✓\n")
    outcome = finished(lab.agent(), f"exec read {dumps({'path': path})}", "result")
    same_text(
        outcome.text,
        "first line second line with ✓",
        "The SDK answers native execs only when the two GetTeam...OrEmptyIfNotInTeam calls answer 200",
    )


@check("exec channel, shell stream")
def check_native_shell_stream(lab):
    lab.file("marker.txt", "x")
    outcome = finished(
        lab.agent(),
        "exec shell_stream "
        + dumps({"command": "echo from-$((40+2)); ls", "working_directory": lab.cwd, "timeout": 10000}),
        "result",
    )
    if "from-42" not in outcome.text or "marker.txt" not in outcome.text:
        raise Wrong(
            "the command's output (from-42, marker.txt)", cut(outcome.text), "Join ShellStream.stdout events until exit"
        )


@check("exec channel, shell")
def check_native_shell(lab):
    outcome = finished(
        lab.agent(),
        f"exec shell {dumps({'command': 'echo plain-$((40+2))', 'working_directory': lab.cwd, 'timeout': 10000})}",
        "result",
    )
    if "plain-42" not in outcome.text:
        raise Wrong(
            "the command's output (plain-42)",
            cut(outcome.text),
            "For the plain shell the SDK insists on ShellArgs field 8 (parsing_result, "
            "a message {1 parsing_failed, 2 executable_commands, ...}); present but empty is enough",
        )


@check("error details")
def check_usage_limit(lab):
    agent = lab.agent()
    finished(agent, "say warm")
    outcome = talk(agent, "fail usage_limit")
    if outcome.status != "error" or not outcome.error:
        raise Wrong(
            "status error and a message",
            outcome.brief(),
            'End-of-stream JSON {"error": {code, message, details}} with ErrorDetails',
        )
    if outcome.seconds > 5:
        raise Wrong(
            "the error within 5 s",
            f"{outcome.seconds:.1f} s",
            "Set details.is_retryable explicitly to false, or the SDK retries for 15 s",
        )
    if "limit" not in outcome.error.lower():
        raise Wrong(
            "a message that speaks of the limit", repr(outcome.error), "The SDK shows details.title and details.detail"
        )


@check("a connection that drops in mid-turn")
def check_drop_before_text(lab):
    same_text(
        finished(lab.agent(), "drop", "say after the cut").text,
        "after the cut",
        "Cut attempts are counted per run_id (= x-original-request-id), which stays the same across retries",
    )


@check("a connection that drops in mid-turn")
def check_drop_mid_text(lab):
    outcome = finished(lab.agent(), "say alpha beta", "drop", "say gamma delta")
    same_text(
        outcome.text.replace("gamma", " gamma"),
        "alpha beta gamma delta",
        "Send a checkpoint that holds what was said, then cut; the SDK resumes from that checkpoint. "
        "Without one it repeats the action and keeps the text of both attempts",
    )


@check("a connection that drops in mid-turn")
def check_drop_after_tool(lab):
    tool = Tool(lambda args: "once only")
    outcome = finished(lab.agent({"charge": tool}), 'call charge {"card": 7}', "drop", "result", "say end")
    hint = "Send a checkpoint after each tool result: without one the SDK repeats the action and the tool runs again"
    tool.expect({"card": 7}, hint=hint)
    same_text(outcome.text.replace("end", " end"), "once only end", hint)


@check("cancelling")
def check_cancel_hang(lab):
    agent, when = lab.agent(), {}

    def on_message(run, message):
        if message.type == "assistant" and "start" not in when:
            when["start"] = time.monotonic()
            run.cancel()

    outcome = talk(agent, "say Holding.", "hang", on_message=on_message)
    if "start" not in when:
        raise Wrong("the text before the hang", outcome.brief(), "`hang` keeps the stream open with heartbeats")
    took = time.monotonic() - when["start"]
    if outcome.status != "cancelled" or took > 5:
        raise Wrong(
            "status cancelled within 5 s",
            f"{outcome.status!r} after {took:.1f} s",
            "Over h2 the client half-closes: end the stream then",
        )
    same_text(finished(agent, "say still alive").text, "still alive", "The agent must be usable after a cancel")


@check("ids of execs and KV messages are per stream")
def check_eight_agents(lab):
    count, faults = 8, []
    barrier = threading.Barrier(count)
    lab.options(None)

    def one(number):
        try:
            tool = Tool(lambda args: f"owner{number}-{args['n']}", 0.05 * (number % 3))
            agent = lab.agent({"mine": tool})
            barrier.wait(30)
            for turn in (1, 2):
                lines = [part for n in (1, 2, 3) for part in (f"call mine {dumps({'n': f'{turn}.{n}'})}", "result")]
                outcome = finished(agent, *lines)
                got = re.findall(r"owner\d-\d\.\d", outcome.text)
                expected = [f"owner{number}-{turn}.{n}" for n in (1, 2, 3)]
                if got != expected:
                    raise Wrong(f"agent {number} to see {expected}", got)
            recalls(finished(agent, "recall"), 2, 6, "mine")
        except Exception as error:
            faults.append(f"agent {number}: {error}")

    threads = [threading.Thread(target=one, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise Wrong(f"{count} agents that see only their own results", f"{len(faults)} fault(s), first: {faults[0]}")


@check("the stall rule")
def check_slow_tool(lab):
    calls = []

    def wait(args, context=None):
        calls.append(args)
        time.sleep(34 if len(calls) == 1 else 0)
        return "finally"

    outcome = finished(lab.agent({"wait": wait}), 'call wait {"s": 34}', "result")
    if len(calls) != 1:
        raise Wrong(
            "one call of a tool that takes 34 s",
            f"{len(calls)} calls",
            "Send a heartbeat update every 5 s: after 30 s of silence the SDK starts again",
        )
    same_text(outcome.text, "finally")


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


# -------------------------------------------------------------------------------------------------------------- running


def perform(lab, name, timeout):
    """None when the check passed, else why not."""
    function, read = CHECKS[name]
    outcome = []

    def body():
        try:
            function(lab)
            outcome.append(None)
        except Wrong as wrong:
            outcome.append(f"{wrong} [about: {read}]")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.append(
                f"{type(error).__name__}: {str(error)[:400]} "
                f"({os.path.basename(where.filename)}:{where.lineno}) [about: {read}]"
            )

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        lab.stop_bridge()  # unblocks the thread; the next check starts a new bridge
        thread.join(5)
        return (
            f"no end within {timeout:g} s: the run never got what it waits for "
            f"(turn_ended? an answer to a KV or exec message?) [about: {read}]"
        )
    for agent in lab.agents:
        quietly(agent.close)
    lab.agents.clear()
    return outcome[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", help="http://127.0.0.1:PORT of the simulator")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="run only this check (may be given several times)"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and stop")
    parser.add_argument("--slow", action="store_true", help=f"also run: {', '.join(SLOW)}")
    parser.add_argument("--timeout", type=float, default=60, metavar="S", help="seconds per check (default 60)")
    options = parser.parse_args()
    if options.list:
        for name, (_, read) in CHECKS.items():
            print(f"{name:20} {read}")
        return 0
    if not options.base_url:
        parser.error("--base-url is required")
    names = options.only or [name for name in CHECKS if options.slow or name not in SLOW]
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        parser.error(f"no such check: {', '.join(unknown)} (see --list)")
    base_url = options.base_url.rstrip("/")
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(
            urllib.request.Request(base_url + "/v1/models", headers={"Authorization": "Bearer key_oracle"}), timeout=10
        ).close()
    except OSError as error:
        print(f"FAIL connect: GET {base_url}/v1/models: {error}\n0 passed, 1 failed")
        return 1

    global sdk
    lab, failed = Lab(base_url), 0
    try:
        import cursor_sdk

        sdk = cursor_sdk
        for name in names:
            why = perform(lab, name, options.timeout)
            failed += why is not None
            print(f"FAIL {name}: {why}" if why else f"ok {name}", flush=True)
    finally:
        lab.close()
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a stuck callback thread must not keep the process alive
