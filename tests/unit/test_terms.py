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
    ("request smuggling", "web/head.py"),
    ("slowloris", "web/deadlines.py"),
    ("graceful shutdown", "web/server.py"),
    ("token bucket", "web/admission.py"),
    ("path traversal", "builtin_tools/local/confine.py"),
    ("prompt injection", "text_protocol/quoting.py"),
    ("backoff", "mcp_bridge/servers.py"),
    ("backpressure", "core/turn.py"),
    ("backpressure", "backends/agent_api/turn.py"),
    ("backpressure", "processes/child.py"),
    ("exit code", "processes/nursery.py"),
    ("retry budget", "core/recovery.py"),
    ("loop guard", "loop_guard/__init__.py"),
    ("server-sent events", "dialects/sse.py"),
]


@pytest.mark.parametrize(("term", "path"), DONE_IN)
def test_the_module_that_does_it_says_the_word(term: str, path: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
    assert term.lower() in " ".join(docstring.lower().split())
