"""An MCP server over stdio, by hand and with the standard library only, that misbehaves as it is told.

    python odd_server.py MODE [ARGUMENT]

Its own spelling of the protocol is a second opinion on our transport: newline-delimited JSON-RPC, version 2025-06-18.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

VERSION = "2025-06-18"
MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
ARGUMENT = sys.argv[2] if len(sys.argv) > 2 else ""
LOCK = threading.Lock()
FLIPPED = threading.Event()


def send(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


QUESTIONS: dict[str, dict[str, Any]] = {
    "elicit": {
        "method": "elicitation/create",
        "params": {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}},
    },
    "sample": {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5},
    },
}
ANSWERS: queue.Queue[dict[str, Any]] = queue.Queue()


def tool(name: str, read_only: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"{name} (odd)",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": read_only},
    }


def tools() -> list[dict[str, Any]]:
    if MODE == "many":
        return [tool(f"tool_{number}") for number in range(int(ARGUMENT or 500))]
    if MODE == "verbose":
        return [tool(f"tool_{number}") | {"description": "words " * 1000} for number in range(500)]
    if MODE == "misspelt":
        wrong: list[dict[str, Any]] = [{"inputSchema": None}, {"inputSchema": {"type": "array"}}, {"description": 7}]
        return [tool("echo"), *(tool(f"wrong_{number}") | each for number, each in enumerate(wrong)), tool("last")]
    if MODE == "changing":
        return [tool("flip"), *([tool("late")] if FLIPPED.is_set() else [])]
    if MODE == "asks":
        return [tool(name) for name in QUESTIONS]
    plain = ("write", "slow", "die", "big", "env", "sum", "meet")
    return [tool("echo", read_only=True), *map(tool, plain)]


def content(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def call(request: dict[str, Any]) -> None:
    params = request["params"]
    name, given = params["name"], params.get("arguments") or {}
    if name == "die":
        sys.stderr.write("odd server: I was told to die\n")
        sys.stderr.flush()
        os._exit(7)
    if name == "slow":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(int(given.get("text") or 5)):
            time.sleep(0.15)
            if MODE != "mute":
                told = {"progressToken": token, "progress": step}
                send({"method": "notifications/progress", "params": told})
    if name == "meet":
        open(os.path.join(given["text"], ARGUMENT), "w").close()
        while len(os.listdir(given["text"])) < 2:
            time.sleep(0.01)
    if name in QUESTIONS:
        send({"id": f"question {name}", **QUESTIONS[name]})
        send({"id": request["id"], "result": content(json.dumps(ANSWERS.get()))})
        return
    if name == "flip":
        FLIPPED.set()
        send({"method": "notifications/tools/list_changed"})
    if MODE == "hang":
        return
    replies: dict[str, Callable[[], dict[str, Any]]] = {
        "echo": lambda: content(f"{ARGUMENT or MODE} says {given.get('text', '')}"),
        "big": lambda: content("x" * int(given.get("text") or 1_000_000)),
        "env": lambda: content(json.dumps(dict(os.environ))),
        "sum": lambda: {"content": [], "structuredContent": {"sum": 7}},
        "write": lambda: content("no such file") | {"isError": True},
    }
    result = replies.get(name, lambda: content(f"{name} done"))()
    send({"id": request["id"], "result": result})


def answer(request: dict[str, Any]) -> None:
    match request.get("method"):
        case "initialize" if MODE != "silent":
            capabilities = {"tools": {"listChanged": True}}
            told = {
                "protocolVersion": VERSION,
                "capabilities": capabilities,
                "serverInfo": {"name": "odd", "version": "1"},
            }
            send({"id": request["id"], "result": told})
        case "tools/list":
            send({"id": request["id"], "result": {"tools": tools()}})
        case "tools/call":
            threading.Thread(target=call, args=(request,), daemon=True).start()
        case None:
            ANSWERS.put(request)
        case _ if "id" in request and "method" in request and MODE != "silent":
            send({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    if MODE == "crash":
        sys.exit(f"odd server: cannot start, key is {os.environ.get('ODD_SECRET', '')}")
    if MODE == "flood":
        while True:
            sys.stdout.write("this is no message\n" * 1000)
    if MODE == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if MODE in ("deluge", "babble"):  # ignores SIGTERM, and writes without end
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(ARGUMENT, "a") as file:
            file.write(f"{os.getpid()} ")
        said = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        line = (json.dumps(said) if MODE == "deluge" else "this is no message") + "\n"
        while True:
            try:
                os.write(1, line.encode() * 100)
            except OSError:  # nobody reads it any more, and it stays all the same
                time.sleep(0.1)
    if MODE == "stubborn":  # ignores every polite request, and so does its child
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        running = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.DEVNULL)
        if ARGUMENT:
            with open(ARGUMENT, "w") as file:
                file.write(f"{os.getpid()} {running.pid}")
    if MODE == "noisy":
        sys.stdout.write("Welcome to the odd server!\n")
    for line in sys.stdin:
        answer(json.loads(line))
    if MODE == "stubborn":
        time.sleep(600)


main()
