"""A wheel built from the repository installs and runs outside the checkout."""

import os
import re
import subprocess
import sys
import time
import urllib.request
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.all
@pytest.mark.timeout(600)
def test_the_wheel_serves_outside_the_checkout(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    ours = sorted(path.name for path in python.parent.glob("caretway*"))
    assert ours == ["caretway"], "the stand-in for cursor-agent is a module, not a command on everybody's PATH"
    run(str(python), "-m", "caretway_sim.cursor_agent", "--version")
    command = [str(tmp_path / "env" / "bin" / "caretway"), "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=clean, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = address(process)
            with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
                assert b'"backend":{"name":"simulator"' in answer.read()
            page = urllib.request.Request(url, headers={"accept": "text/html"})
            with urllib.request.urlopen(page, timeout=10) as answer:
                assert b'src="/page/app.js"' in answer.read()
            with urllib.request.urlopen(f"{url}/page/app.js", timeout=10) as answer:
                assert answer.headers["content-type"].startswith("text/javascript")
            body = (
                b'{"model":"sim-auto","stream":true,"messages":[{"role":"user","content":"sim: say from the wheel"}]}'
            )
            request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                text = answer.read().decode()
            assert '"content":"wheel"' in text
            assert text.endswith("data: [DONE]\n\n")
        finally:
            process.terminate()
            assert process.wait(20) == 0


def run(*command: str) -> None:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    until = time.monotonic() + 30
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found.group()
        assert time.monotonic() < until
    raise AssertionError("serve ended without an address")
