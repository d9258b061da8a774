"""The official Cursor SDK as a foreign judge of the simulator: one case per profile, check and transport.

Both transports are judged at the same time, each by one run of `tests/oracle/sdk_oracle.py` against one `caretway
simulate`. The cases then read the lines that the judge printed. The slow check (a tool that takes longer than the SDK's
patience) runs once.
"""

import importlib.util
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from caretway_sim.manners import CLASSIC, LIVE

ORACLE: Final = Path(__file__).parent.parent / "oracle" / "sdk_oracle.py"
MODES: Final = ("h1", "h2")
SLOW: Final = "slow_tool"
CHECKS: Final = re.findall(r"^def check_(\w+)", ORACLE.read_text(encoding="utf-8"), re.MULTILINE)
LIMIT_S: Final = 240

WHEELS: Final = {
    ("linux", "x86_64"),
    ("linux", "aarch64"),
    ("darwin", "x86_64"),
    ("darwin", "arm64"),
}
"""Where the SDK can be installed: there its absence is a fault of the set-up and not a reason to skip."""

pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def serve(mode: str, profile: str, stack: ExitStack) -> str:
    """A simulator of its own process; its address."""
    command = [sys.executable, "-m", "caretway", "simulate", "--port", "0", "--prefer", mode, "--profile", profile]
    server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    stack.callback(server.terminate)
    assert server.stdout is not None
    first = server.stdout.readline()
    found = re.search(r"http://[\d.]+:\d+", first)
    assert found, f"the simulator did not start: {first}{server.stdout.read() if server.poll() is not None else ''}"
    return found[0]


@pytest.fixture(scope="module", params=[LIVE.name, pytest.param(CLASSIC.name, marks=pytest.mark.all)])
def verdicts(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What the judge printed about one profile, by mode."""
    if importlib.util.find_spec("cursor_sdk") is None:
        here = (sys.platform, platform.machine().lower())
        if here in WHEELS:
            pytest.fail("cursor-sdk is not installed: pip install --group oracle")
        pytest.skip(f"cursor-sdk has no wheel for {here[0]} on {here[1]}")
    with ExitStack() as stack:
        judges = {}
        for mode in MODES:
            output = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            command = [sys.executable, str(ORACLE), "--base-url", serve(mode, request.param, stack)]
            command += ["--slow"] if mode == MODES[0] else []
            judge = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(judge.wait)
            stack.callback(judge.kill)
            judges[mode] = (judge, output)
        printed = {}
        for mode, (judge, output) in judges.items():
            judge.wait(LIMIT_S)
            output.seek(0)
            printed[mode] = output.read()
        yield printed


@pytest.mark.parametrize("mode", MODES)
def test_the_official_sdk_is_satisfied(verdicts: dict[str, str], mode: str) -> None:
    for check in CHECKS:
        if check != SLOW or mode == MODES[0]:
            lines = [line for line in verdicts[mode].splitlines() if re.match(rf"(ok|FAIL) {check}\b", line)]
            assert lines == [f"ok {check}"], verdicts[mode]
