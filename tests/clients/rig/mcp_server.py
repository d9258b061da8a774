"""An MCP server on stdio with one tool, which reads out nonce.txt. Standard library only."""

import json
import sys
from pathlib import Path

SCHEMA = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
TOOL = {"name": "reveal", "description": "Reveals what a file holds.", "inputSchema": SCHEMA}


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        about = {"name": "vault", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": Path(params["arguments"]["file"]).read_text()}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        # Newer clients ask `server/discover` first, and begin with `initialize` only where that is an error.
        said = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
