"""`caretway top` beside a running gateway: on a real terminal of 80x24 during ten loops, kept as a file, and on a pipe.

`CARETWAY_TEST_RENEW=1` writes tests/data/top-80x24.txt anew; look at it before you commit it.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from msgspec.structs import asdict

from caretway import __version__
from caretway.cli.running import FOLDER, RunningGateway, announced_gateway
from caretway.config import Settings
from caretway.gateway import Gateway
from contract.gateways import CHAT

GOLDEN: Final = Path(__file__).parents[1] / "data" / "top-80x24.txt"
KEY: Final = "cw-a-key-for-this-test"
LOOPS: Final = (
    ("opencode/1.0", "sim-auto", "call", "read"),
    ("claude-cli/2.0 (external)", "sim-think", "call", "Bash"),
    ("codex_cli_rs/0.9", "sim-auto", "call", "shell"),
    ("opencode/1.0", "sim-fast", "call", "grep"),
    ("aider/0.80", "sim-auto", "say", ""),
    ("claude-cli/2.0 (external)", "sim-think", "say", ""),
    ("OpenAI/Python 2.0", "sim-auto", "call", "a_tool_whose_name_is_rather_long"),
    ("", "sim-auto", "call", "read"),
    ("goose/1.0", "sim-fast", "call", "list_directory"),
    ("qwencode/0.1", "sim-auto", "say", ""),
)


@asynccontextmanager
async def ten_loops(data_dir: Path) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    """Seven wait for a tool, three are being told something."""
    settings = Settings(data_dir=data_dir, backend="simulator", port=0, gateway_key=KEY)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(announced_gateway(settings))
        known = {"authorization": f"Bearer {KEY}"}
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=gateway.base_url, headers=known, timeout=60))
        for agent, model, does, tool in LOOPS:
            said = f"sim: call {tool} {{}}" if does == "call" else "sim: say some words\nsim: hang"
            tools = [{"type": "function", "function": {"name": tool, "parameters": {}}}] if tool else []
            messages = [{"role": "user", "content": said}]
            body = {"model": model, "messages": messages, "tools": tools, "stream": True}
            opened = await stack.enter_async_context(
                http.stream("POST", CHAT, json=body, headers={"user-agent": agent})
            )
            if tool:
                await opened.aread()
        yield gateway, http


class Pane:
    """The command on a terminal of its own."""

    def __init__(self, data_dir: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(data_dir), "TERM": "xterm", "TZ": "UTC"}
        self.process = subprocess.Popen(command(data_dir), stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
        os.close(theirs)
        self._changed = asyncio.Event()
        self.data = b""
        os.set_blocking(self._ours, False)
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def _read(self) -> None:
        try:
            more = os.read(self._ours, 65536)
        except BlockingIOError:
            return
        except OSError:  # Linux says so when the other side is closed
            more = b""
        if not more:
            asyncio.get_running_loop().remove_reader(self._ours)
        self.data += more
        self._changed.set()

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    @property
    def frame(self) -> list[str]:
        """The newest whole screen, without colours."""
        whole, _, _ = self.data.decode(errors="replace").rpartition("\x1b[J")
        return re.sub(r"\x1b\[[0-9;]*m|\x1b\[K|\r", "", whole.rpartition("\x1b[H")[2]).split("\n")

    async def until(self, shows: str) -> list[str]:
        """A screen in which this is found."""
        async with asyncio.timeout(60):
            while not re.search(shows, "\n".join(self.frame)):
                self._changed.clear()
                await self._changed.wait()
        return self.frame

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 60)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(30)
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)


def command(data_dir: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "caretway", "top", "--data-dir", str(data_dir), *more]


def masked(lines: list[str]) -> str:
    """Without what differs from run to run; nothing moves."""
    head = next(line for line in lines if line.startswith("STATE"))
    since, tokens = head.index("SINCE"), head.index("TOKENS")
    told = []
    for line in lines:
        if line.startswith(("running", "waiting")):
            count = "    NN" if line[tokens : tokens + 6].strip() else line[tokens : tokens + 6]
            line = line[:since] + "  NNs" + line[since + 5 : tokens] + count + line[tokens + 6 :]
        line = line.replace(__version__, "VERSION")
        line = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:NNNNN", line)
        line = re.sub(r" +up \S+$", "  up NN", line)
        line = re.sub(r"[\d.]+ tokens/s", "N tokens/s", line)
        line = re.sub(r"^(answers|tokens|first token|errors) .*", r"\1 ...", line)
        told.append(line.rstrip())
    return "\n".join(told) + "\n"


async def test_ten_loops_on_a_terminal(tmp_path: Path) -> None:
    async with ten_loops(tmp_path) as (gateway, _):
        pane = Pane(tmp_path)
        try:
            lines = await pane.until(r"3 running  7 waiting for a tool")
            assert len(lines) == 24
            assert max(map(len, lines)) <= 80
            if os.environ.get("CARETWAY_TEST_RENEW"):
                GOLDEN.write_text(masked(lines))
            assert masked(lines) == GOLDEN.read_text()
            pane.press("s")
            lines = await pane.until("sort: state")
            states = [line.split()[0] for line in lines if line.startswith(("running", "waiting"))]
            assert states == ["waiting"] * 7 + ["running"] * 3
            pane.press("sr")
            lines = await pane.until(r"sort: model \(reversed\)")
            assert next(line for line in lines if line.startswith(("running", "waiting"))).split()[1] == "sim-think"
            pane.press("jc")
            await pane.until("Cancel the chosen turn")
            pane.press("n")
            await pane.until("q quit")
            assert gateway.tenants.live == 10
            pane.press("c")
            await pane.until("Cancel the chosen turn")
            pane.press("y")
            await pane.until("9 running|2 running|6 waiting")
            assert gateway.tenants.live == 9
            pane.press("q")
            assert await pane.ended() == 0
            assert pane.data.endswith(b"\x1b[?25h\x1b[?1049l")
        finally:
            pane.close()


async def test_on_a_pipe_it_is_told_once(tmp_path: Path) -> None:
    def shown(*more: str) -> str:
        done = subprocess.run(command(tmp_path, *more), capture_output=True, text=True, timeout=60, check=True)
        assert "\x1b" not in done.stdout
        return done.stdout

    async with ten_loops(tmp_path):
        plain, once = await asyncio.to_thread(shown), await asyncio.to_thread(shown, "--once")
        for text in (plain, once):
            assert "3 running  7 waiting for a tool" in text
            assert len([line for line in text.splitlines() if line.startswith(("running", "waiting"))]) == 10
        assert "answers" in plain and "in 60 minutes" in plain
        told: dict[str, Any] = json.loads(await asyncio.to_thread(shown, "--json"))
        assert [turn["waiting_for"] for turn in told["turns"]][:2] == [["read"], ["Bash"]]


def test_without_a_gateway_it_says_what_to_type(tmp_path: Path) -> None:
    words = [*command(tmp_path), "--port", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "caretway serve" in done.stderr) == (1, True)


def test_a_gateway_with_tls_is_named_and_not_watched(tmp_path: Path) -> None:
    note = RunningGateway("https://127.0.0.1:1", os.getpid(), "0", "simulator", False, "", 1.0)
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / f"{note.pid}-1.json").write_text(json.dumps(asdict(note)))
    words = [*command(tmp_path), "--port", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "TLS" in done.stderr and "open https://127.0.0.1:1 in a browser" in done.stderr


@pytest.mark.parametrize("size", [(1, 1), (10, 5), (60, 20), (80, 24), (200, 60)])
def test_every_size_is_filled_and_not_exceeded(size: tuple[int, int]) -> None:
    from caretway.cli.terminal import BLOCKS, Style
    from caretway.cli.top_view import TopState, listing, screen

    turn = {
        "id": "t",
        "state": "parked",
        "model": "m\x1b[2J" * 30,
        "client": "\u202eevil" * 9,
        "session": "fresh",
        "since": 0.0,
        "tokens": 10**9,
        "waiting_for": ["<script>\r\n"] * 9,
    }
    now = {
        "at": 1e6,
        "version": "0.1.0",
        "address": "http://127.0.0.1:32124",
        "started_at": 0.0,
        "signed_in": True,
        "detail": "",
        "backend": {"name": "agent", "standing": "unofficial"},
        "account": None,
        "running": 0,
        "parked": 300,
        "tokens_per_second": 1.5,
        "turns": [turn | {"id": str(n)} for n in range(100)],
        "turns_left_off": 200,
        "last_error": {"at": 0.0, "status": 402, "code": "x", "message": "\x1b]0;evil\x07" * 99, "hint": "y"},
    }
    minute = {"answers": 10**9, "failed": 3, "refused": 2, "first_p95": 1e7, "first_p50": 1.0}
    minute |= dict.fromkeys(("input", "cache_read", "cache_write", "output"), 10**12)
    overview = {
        "minutes": [minute] * 60,
        "errors": [{"code": "\x1b[2Jcode" * 9, "count": 9}],
        "today": {"total": {"cents": 1e6}, "clients": [{"group": "\u202eevil" * 9, "cents": 1e6}]},
    }
    width, height = size
    lines = screen(now, overview, TopState(chosen="99"), Style(), width, height, BLOCKS)
    assert len(lines) <= height
    assert "\x1b" not in "".join(lines)
    assert max(map(len, lines)) <= width
    assert max(map(len, listing(now, overview, Style(), width, BLOCKS))) <= max(width, 60)
