"""sd_notify on a real socket: ready when it serves, stopping before it stops; and the rotated log file."""

import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path


def test_the_manager_hears_when_it_serves_and_when_it_stops(tmp_path: Path) -> None:
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        manager.settimeout(60)
        log = tmp_path / "logs" / "gateway.log"
        command = ["serve", "--port", "0", "--backend", "simulator", "--data-dir", str(tmp_path / "data")]
        with subprocess.Popen(
            [sys.executable, "-m", "caretway", *command, "--log-file", str(log)],
            env={**os.environ, "NOTIFY_SOCKET": str(place)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as gateway:
            try:
                ready = manager.recv(1000).decode().splitlines()
                assert ready[0] == "READY=1"
                url = ready[1].removeprefix("STATUS=serving ").partition(" ")[0]
                body = b'{"model":"sim-auto","messages":[{"role":"user","content":"sim: say hello"}]}'
                asked = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
                with urllib.request.urlopen(asked, timeout=30) as answer:
                    assert b"hello" in answer.read()
                gateway.send_signal(signal.SIGTERM)
                assert manager.recv(1000) == b"STOPPING=1"
                assert gateway.wait(30) == 0
            finally:
                gateway.kill()
    assert "sim-auto" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
