"""The cursor-agent stand-in's tool loop over MCP: a prompt calls tools, waits for all their results and continues, as
often as its script says. Calls that no rule allows are rejected."""

import glob
import hashlib
import itertools
import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .. import text_model
from ..model_input import InputCall, InputMessage, InputResult, InputText, Role, Tool
from ..script import Exec, ScriptCall, ToolUse

if TYPE_CHECKING:
    from .acp import Doing

# ---- mcp client

# The MCP client: uses only the servers of a session that the project's approvals file lists, and calls only the tools
# that the rules in the project's `.cursor/cli.json` allow. Plain HTTP.

CALL_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class ReachedServer:
    name: str
    url: str
    tools: tuple[Tool, ...]
    numbers: Iterator[int]
    """Message numbers, counted up as MCP clients do."""


def approved(home: str, cwd: str, name: str, config: Mapping[str, Any]) -> bool:
    """True if `~/.cursor/projects/<path>/mcp-approvals.json` lists this server with exactly this path and
    configuration."""
    path = os.path.realpath(cwd)
    slug = re.sub("[^A-Za-z0-9]+", "-", path).strip("-")
    text = json.dumps({"path": path, "server": config}, separators=(",", ":"), ensure_ascii=False)
    try:
        with open(os.path.join(home, ".cursor", "projects", slug, "mcp-approvals.json")) as file:
            known = json.load(file)
    except (OSError, ValueError):
        return False
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}" in known


def allowed(cwd: str, server: str, tool: str) -> bool:
    """True if a rule `Mcp(server:tool)` or `Mcp(server:*)` allows the call; a rule that denies it wins."""
    try:
        with open(os.path.join(cwd, ".cursor", "cli.json")) as file:
            rules = json.load(file)["permissions"]
    except (OSError, ValueError, KeyError):
        return False
    fitting = {f"Mcp({server}:{tool})", f"Mcp({server}:*)"}
    return bool(fitting & set(rules.get("allow", ()))) and not fitting & set(rules.get("deny", ()))


def connected(home: str, cwd: str, servers: Sequence[Mapping[str, Any]]) -> list[ReachedServer]:
    """The approved servers that can be reached; the rest is skipped silently."""
    found = []
    for server in servers:
        name, url = str(server.get("name")), str(server.get("url"))
        headers = {one["name"]: one["value"] for one in server.get("headers", ())}
        config = {"url": url, **({"headers": headers} if headers else {})}
        if server.get("type") not in ("http", "sse") or not approved(home, cwd, name, config):
            continue
        try:
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "sim"}}
            numbers = itertools.count(0)
            _ask(url, "initialize", hello, next(numbers))
            _post(url, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            listed = _ask(url, "tools/list", {}, next(numbers))["tools"]
        except (OSError, ValueError, KeyError):
            continue
        tools = [Tool(one["name"], one["name"], name, one.get("description", ""), one["inputSchema"]) for one in listed]
        found.append(ReachedServer(name, url, tuple(tools), numbers))
    return found


def call(server: ReachedServer, tool: str, arguments: Mapping[str, Any], number: int) -> tuple[str, bool]:
    """Returns the text of the result, and whether it is an error."""
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
    try:
        given = _ask(server.url, "tools/call", params, number)
    except (OSError, ValueError, KeyError) as broken:
        return f"MCP error: {broken}", True
    texts = [part.get("text", f"[{part.get('type')}]") for part in given["content"]]
    return "\n".join(texts), bool(given.get("isError"))


def _ask(url: str, method: str, params: Mapping[str, Any], number: int) -> Any:
    answer = _post(url, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    if answer is None or "error" in answer:
        raise ValueError(f"{method} was refused: {answer}")
    return answer["result"]


def _post(url: str, message: Mapping[str, Any]) -> Any:
    """The response: one message, or the last message of an event stream."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)  # noqa: S310 - a server of the session
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=CALL_TIMEOUT_S) as response:
        body = response.read().decode()
        if response.headers.get_content_type() == "text/event-stream":
            messages = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]
            return next((one for one in messages if "id" in one), None)
        return json.loads(body) if body else None


# ---- native loop


class Abandoned(Exception):
    """The prompt was cancelled during a tool call."""


def follow(doing: "Doing", blocks: Sequence[tuple[Role, str]], *, thinks: bool) -> None:
    tools = [tool for server in doing.session.servers for tool in server.tools]
    history = list(text_model.read(blocks).history)
    while True:
        uses: Sequence[ToolUse] = ()
        for step in text_model.native_steps(history, tools, thinks=thinks):
            if isinstance(step, ScriptCall):
                uses = step.uses
            elif (use := doing.step(step)) is not None:
                uses = (use,)
            if uses:
                break
        if not uses:
            return
        spoken = "".join(doing.said)
        made = [InputCall(f"call_{doing.calls + n}", use.name, json.dumps(use.args)) for n, use in enumerate(uses, 1)]
        given = _call_all(doing, uses, [one.call_id for one in made])
        words = (InputText(spoken),) if spoken else ()
        history += [InputMessage("assistant", (*words, *made)), InputMessage("tool", tuple(given))]
        lines = "".join(f"\n[Called tool: {one.name}({one.args})]" for one in made)
        doing.earlier.append(("assistant", spoken + lines))
        doing.earlier += [("user", f"[Tool result for {one.call_id}]: {one.text}") for one in given]
        doing.said.clear()


def _call_all(doing: "Doing", uses: Sequence[ToolUse], ids: Sequence[str]) -> list[InputResult]:
    """Make all calls at once, as the real program does: announced and numbered in the model's order, each on its own
    connection, so that they arrive in any order."""
    doing.calls += len(uses)
    tell = partial(doing.server.update, doing.session)
    found: dict[str, InputResult] = {}

    def one(call_id: str, use: ToolUse, server: ReachedServer, number: int) -> None:
        rejects, force = doing.server.mcp == "rejected", doing.server.force
        if not rejects and (force or allowed(doing.session.cwd, server.name, use.name)):
            text, failed = call(server, use.name, use.args, number)
        else:
            text, failed = "MCP tool call rejected: it is not in the allow list", True
        tell("tool_call_update", toolCallId=_odd(call_id), status="failed" if failed else "completed")
        found[call_id] = InputResult(call_id, use.name, text, failed)

    threads = []
    for call_id, use in zip(ids, uses, strict=True):
        server = next(s for s in doing.session.servers if any(tool.shown == use.name for tool in s.tools))
        about = {"title": f"{server.name}-{use.name}: {use.name}", "kind": "other", "rawInput": dict(use.args)}
        tell("tool_call", toolCallId=_odd(call_id), status="pending", **about)
        numbered = (call_id, use, server, next(server.numbers))
        threads.append(threading.Thread(target=one, args=numbered, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.02)
            if doing.session.cancelled.is_set():
                raise Abandoned
    return [found[call_id] for call_id in ids]


def _odd(call_id: str) -> str:
    """A call id with a line break, as recorded from the real program."""
    return f"{call_id}\nfc_{call_id}"


# ---- project

# What the stand-in reads in a project: rules that deny its own tools, rules for the model, and the MCP tool that
# replaces one of its own.

DENIALS: Final[Mapping[str, str]] = {"execute": "Shell(*)", "edit": "Write(**)"}
"""Kind of a built-in tool -> the rule that denies all tools of the kind."""
_SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "shell": ("command",),
    "read": ("path", "filePath", "file_path", "absolute_path"),
}


def denied(cwd: str, kind: str) -> bool:
    try:
        with open(os.path.join(cwd, ".cursor", "cli.json")) as file:
            return DENIALS.get(kind) in json.load(file)["permissions"].get("deny", ())
    except (OSError, ValueError, KeyError):
        return False


def rules(cwd: str) -> str:
    """The texts of the rules that always apply."""
    found = []
    for path in sorted(glob.glob(os.path.join(cwd, ".cursor", "rules", "*.mdc"))):
        with open(path) as file:
            _, head, text = file.read().split("---", 2)
        if "alwaysApply: true" in head:
            found.append(text)
    return "".join(found)


def instead(step: Exec, cwd: str, servers: Sequence[ReachedServer]) -> ToolUse | None:
    """The MCP call in place of a rejected tool; None if the rules name no server or no tool of the server fits."""
    rule_text, subjects = rules(cwd), _SUBJECTS.get(step.kind, ())
    wanted = str(next(iter(step.args.values()), ""))
    for server in servers:
        for tool in server.tools if f"MCP server `{server.name}`" in rule_text else ():
            if taken := next((name for name in subjects if name in tool.schema.get("properties", ())), None):
                return ToolUse(tool.shown, _filled(tool) | {taken: wanted})
    return None


def _filled(tool: Tool) -> dict[str, Any]:
    """A value for every required argument."""
    properties = tool.schema.get("properties", {})
    kinds = {name: properties.get(name, {}).get("type") for name in tool.schema.get("required", ())}
    return {
        name: {"integer": 1, "number": 1, "boolean": False}.get(str(kind), "simulated") for name, kind in kinds.items()
    }
