"""A gateway is found by other commands of its user, whatever its port and key, and no longer when it has ended."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caretway.cli.running import RunningGateway, answers, ask, noted_gateways


@contextmanager
def serving(home: Path, *flags: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """`caretway serve` on a free port; it serves when this begins, and has ended after it."""
    with subprocess.Popen(
        [sys.executable, "-m", "caretway", "serve", "--port", "0", "--data-dir", str(home / "data"), *flags],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home)} | environ,
    ) as process:
        try:
            assert process.stdout is not None
            assert any(re.search("SIMULATED", line) for line in process.stdout)
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=30)


def only_one(home: Path) -> RunningGateway:
    (found,) = noted_gateways(home / "data")
    return found


def test_port_and_key_are_found(tmp_path: Path) -> None:
    with serving(tmp_path, CARETWAY_API_KEY="a-key-of-the-users-own") as process:
        found = only_one(tmp_path)
        assert (found.pid, found.backend, found.passthrough) == (process.pid, "simulator", False)
        assert answers(found.url)
        assert ask(found.url, "/v1/models").status == 401
        assert ask(found.url, "/v1/models", "cw-" + "x" * 40).status == 401
        for key in (found.key, "a-key-of-the-users-own"):
            listed = ask(found.url, "/v1/models", key)
            assert listed.status == 200 and listed.ours and listed.body["data"]
    assert noted_gateways(tmp_path / "data") == []
    assert not answers(found.url)


def test_a_killed_one_is_forgotten(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        assert answers(only_one(tmp_path).url)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert noted_gateways(tmp_path / "data") == []
