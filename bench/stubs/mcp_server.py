"""An MCP server over stdio with one tool: `python -m bench.stubs.mcp_server CALLS`. By hand, so that it starts at once
and answers at once. Its results tell the stand-in for Cursor to call it again; every CALLS-th one, to end the turn. No
two are alike."""

import itertools
import json
import sys
from typing import Any, Final

from ..script import Order

SERVER: Final = "bench"
AGAIN: Final = Order(park=True, tool=f"mcp__{SERVER}__step")
LAST: Final = Order(1)


def result(asked: dict[str, Any], numbers: "itertools.count[int]", calls: int) -> dict[str, Any] | None:
    match asked["method"]:
        case "initialize":
            about = {"name": SERVER, "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": "step", "description": "One step.", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            number = next(numbers)
            said = f"{(AGAIN if number % calls else LAST).prompt()} ({number})"
            return {"content": [{"type": "text", "text": said}]}
    return None


def main() -> None:
    numbers, calls = itertools.count(1), int(sys.argv[1])
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        found = result(asked, numbers, calls)
        told = {"error": {"code": -32601, "message": "no such method"}} if found is None else {"result": found}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
