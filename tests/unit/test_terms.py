"""The words that a newcomer searches for stand in the docstring of the module that does the thing."""

import ast
from pathlib import Path
from typing import Final

import pytest

import caretway

ROOT: Final = Path(caretway.__file__).parent

DONE_IN: Final = [
    ("OAuth", "auth/login.py"),
    ("PKCE", "auth/login.py"),
    ("SSRF", "web/images.py"),
    ("SSRF", "web/addresses.py"),
    ("DNS rebinding", "web/access.py"),
    ("DNS rebinding", "web/fetching.py"),
    ("CORS", "web/access.py"),
    ("request smuggling", "web/head.py"),
    ("slowloris", "web/deadlines.py"),
    ("decompression bomb", "web/body.py"),
    ("keep-alives", "web/answer.py"),
    ("backpressure", "web/answer.py"),
    ("retry-after", "web/errors.py"),
    ("graceful shutdown", "app.py"),
    ("graceful shutdown", "web/server.py"),
    ("token bucket", "web/admission.py"),
    ("path traversal", "builtin_tools/local/confine.py"),
    ("prompt injection", "text_protocol/quoting.py"),
    ("backoff", "mcp_bridge/servers.py"),
    ("backoff", "backends/agent_api/run_life.py"),
    ("backoff", "auth/login.py"),
    ("refresh token", "auth/tokens.py"),
    ("log injection", "observe/log.py"),
    ("repeated request", "sessions/plan.py"),
    ("`$ref`", "core/json_schema/run.py"),
    ("mistyped setting", "config/row.py"),
    ("stop sequences", "stages/stop_sequences.py"),
    ("ReDoS", "builtin_tools/local/search.py"),
    ("backpressure", "core/turn.py"),
    ("backpressure", "backends/agent_api/turn.py"),
    ("backpressure", "processes/child.py"),
    ("exit code", "processes/nursery.py"),
    ("retry budget", "core/recovery.py"),
    ("loop guard", "loop_guard/__init__.py"),
    ("server-sent events", "dialects/sse.py"),
    ("backoff", "backends/agent_api/run_life.py"),
    ("GOAWAY", "cursor_transport/h2_dispatch.py"),
    ("prompt injection", "backends/cursor_cli/prompt.py"),
    ("prompt injection", "backends/cursor_cli/prompt.py"),
    ("stdin", "backends/cursor_cli/print_turn.py"),
    ("ReDoS", "builtin_tools/local/grep.py"),
    ("zip bomb", "wire/envelope.py"),
    ("tools/list_changed", "mcp_bridge/servers.py"),
    ("grandchild", "processes/child.py"),
    ("backpressure", "cursor_transport/run_reader.py"),
]


@pytest.mark.parametrize(("term", "path"), DONE_IN)
def test_the_module_that_does_it_says_the_word(term: str, path: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
    assert term.lower() in " ".join(docstring.lower().split())
