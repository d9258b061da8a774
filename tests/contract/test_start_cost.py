"""What a start costs, counted in modules that are imported, as Python itself tells it (`-X importtime`): seconds would
depend on the machine. A count that grows here is a start that takes longer and a gateway that is larger when idle.
"""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+")
_IMPORTED: Final = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
SERVE: Final = 320
"""Modules of ours until `serve` has answered once: 315, and a few for files that are split."""
DATACLASSES: Final = 10
"""Of ours that `serve` loads. Each compiles its methods at every start, as long as importing two modules; a Struct does
not."""
COMMAND: Final = 40
"""The same for a command that only says how it is used."""
NOT_AT_START: Final = {
    "caretway.backends.cli": "only with --backend cli",
    "caretway.backends.sdk": "only with --backend sdk",
    "caretway.backends.builtin_tools.local.tools": "only for requests in a workspace",
    "caretway.cli.doctor": "another command",
    "caretway.cli.clients.table": "only for `setup`, `launch` and a tab of the page",
    "caretway.config.editing": "only for changes in the page",
    "caretway.cursor.transport.http1_transport": "only where HTTP/2 is not spoken",
    "caretway.cursor.transport.tracing": "only with --trace",
    "caretway.usage.hooks": "only with --hook",
    "caretway.usage.conversations": "only for the page",
    "caretway.dashboard.health": "only for the page",
    "caretway.mcp": "only with MCP servers",
    "caretway.dashboard.tabs": "only for the page",
    "caretway.processes.child": "only to start programs",
    "caretway.prove.cases": "only for `prove`",
    "caretway_sim": "only with --backend simulator",
    "caretway.backends.text_protocol.backend": "only for backends that speak text",
    "caretway.api.openapi": "only for /openapi.json",
    "caretway.api.passthrough": "only with --auth-mode passthrough",
    "ctypes": "only with --local-tools all",
    "cursor_sdk": "only with --backend sdk",
    "difflib": "only after a mistake",
    "email.utils": "only for dates in Retry-After",
    "fractions": "only for schemas with multipleOf",
    "h11": "only for HTTP/1.1 and proxies",
    "html": "only for model names with markup",
    "http.client": "only to ask another gateway",
    "http.cookies": "only for the page",
    "logging.handlers": "only with --log-file",
    "mcp": "only with MCP servers",
    "redis": "only in a cluster",
    "tempfile": "only for Gateway.simulated",
}
ASKER: Final = 34
"""Modules of ours that a command needs to find a running gateway and to ask it."""
_COMPILED: Final = """
import sys, caretway.gateway, caretway.cli.serve
of = {kind for name, module in list(sys.modules.items()) if name.startswith("caretway")
      for kind in vars(module).values() if isinstance(kind, type) and "__dataclass_fields__" in vars(kind)}
print(len(of))
"""
_ASKING: Final = """
import sys, caretway.cli.client_gateway
print(sum(name.partition(".")[0] == "caretway" for name in sys.modules))
"""


@contextmanager
def caretway(*words: str, home: Path, told: Path) -> Iterator[subprocess.Popen[str]]:
    """The command with an empty environment; killed at the end if it is still there."""
    with (
        told.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "caretway", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "CARETWAY_ACCESS_TOKEN": "a-token"},
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def imported(told: Path) -> frozenset[str]:
    return frozenset(_IMPORTED.findall(told.read_text()))


def ours(modules: frozenset[str]) -> int:
    return sum(name.partition(".")[0] == "caretway" for name in modules)


def test_serve_imports_what_it_needs_to_answer(tmp_path: Path) -> None:
    """Nobody is there at the other end, and nobody has to be."""
    told = tmp_path / "told"
    reach = ("--backend", "agent", "--agent-url", "http://127.0.0.1:9", "--api-url", "http://127.0.0.1:9")
    with caretway("serve", "--port", "0", *reach, home=tmp_path, told=told) as process:
        assert process.stdout is not None
        url = next(found[0] for line in process.stdout if (found := ADDRESS.search(line)))
        with pytest.raises(urllib.error.HTTPError, match="503") as answer:
            urllib.request.urlopen(f"{url}/health", timeout=60)
        answer.value.close()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    modules = imported(told)
    assert not {name: why for name, why in NOT_AT_START.items() if name in modules}
    assert ours(modules) <= SERVE


@pytest.mark.parametrize("command", ["serve", "ask", "status", "models"])
def test_a_command_does_not_import_the_others(command: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with caretway(command, "--help", home=tmp_path, told=told) as process:
        said, _ = process.communicate(timeout=60)
    assert said.startswith(f"usage: caretway {command}")
    modules = imported(told)
    assert "caretway.cli.doctor" not in modules
    assert ours(modules) <= COMMAND


def counted(program: str) -> int:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


def test_few_classes_of_serve_are_compiled() -> None:
    assert counted(_COMPILED) <= DATACLASSES


def test_a_command_that_asks_a_gateway_does_not_import_one() -> None:
    assert counted(_ASKING) <= ASKER
