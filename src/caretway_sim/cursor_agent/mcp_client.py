"""The cursor-agent stand-in's MCP half: which servers of a session it uses (only those that the approvals file of the
project has), which calls it may make (the allow rule in the project's `.cursor/cli.json`), a plain client over HTTP.

Written after descriptions of the real program, apart from the gateway's own code, of which it imports nothing.
"""

import hashlib
import itertools
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model_input import Tool

CALL_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class ReachedServer:
    name: str
    url: str
    tools: tuple[Tool, ...]
    numbers: Iterator[int]
    """Of its messages, counted up as MCP clients do."""


def approved(home: str, cwd: str, name: str, config: Mapping[str, Any]) -> bool:
    """`~/.cursor/projects/<path>/mcp-approvals.json` has it, for this very path and configuration."""
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
    """`Mcp(server:tool)`, with `*` for any; a rule that denies wins."""
    try:
        with open(os.path.join(cwd, ".cursor", "cli.json")) as file:
            rules = json.load(file)["permissions"]
    except (OSError, ValueError, KeyError):
        return False
    fitting = {f"Mcp({server}:{tool})", f"Mcp({server}:*)"}
    return bool(fitting & set(rules.get("allow", ()))) and not fitting & set(rules.get("deny", ()))


def connected(home: str, cwd: str, servers: Sequence[Mapping[str, Any]]) -> list[ReachedServer]:
    """Those that may be used and can be reached. Nothing is said of the others."""
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
    """(the text of the result, whether it is an error)"""
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
    """The answer: one message, or the last of a stream of events."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)  # noqa: S310 - a server of the session
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=CALL_TIMEOUT_S) as response:
        body = response.read().decode()
        if response.headers.get_content_type() == "text/event-stream":
            messages = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]
            return next((one for one in messages if "id" in one), None)
        return json.loads(body) if body else None
