"""Codex over a WebSocket against Codex over HTTP: ten-step tool loops by turns, and the connection cut in the middle.

`python -m bench.codex [PAIRS]`. It needs Codex where `./scripts/clients codex` installs it. Each command of a loop adds
a line to a file, so that one that runs twice, or never, is seen. Times are those of Codex's own events (`exec --json`).
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .processes import Watched, gateway_and_simulator

PAIRS: Final = 5
STEPS: Final = 10
CUTS: Final = (0.15, 0.4, 0.65, 0.9)
"""Of the bytes that a whole loop sends to Codex."""
LIMIT_S: Final = 180
RETRIES: Final = ("reconnecting", "retrying", "stream disconnected", "falling back from websocket")
"""What Codex says of a connection that did not hold."""


@dataclass(slots=True)
class Run:
    first_s: float = 0.0
    """From the start of the turn to its first item."""
    loop_s: float = 0.0
    done: bool = False
    ran: str = ""
    """What the commands left behind."""
    retries: int = 0

    @property
    def step_s(self) -> float:
        return (self.loop_s - self.first_s) / STEPS


class Cutter:
    """Stands between Codex and the gateway, and resets the first connection after so many bytes to Codex (0: never)."""

    def __init__(self, port: int, after: int) -> None:
        self._to, self._after = port, after
        self.carried = self.cuts = self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                gateway = socket.create_connection(("127.0.0.1", self._to))
                for source, sink in ((client, gateway), (gateway, client)):
                    threading.Thread(target=self._copy, args=(source, sink, source is gateway), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, down: bool) -> None:
        with suppress(OSError):  # either side is gone
            while data := source.recv(4096):
                sink.sendall(data)
                self.carried += len(data) if down else 0
                if down and self._after and not self.cuts and self.carried >= self._after:
                    self.cuts += 1
                    break
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def codex(program: str, port: int, *, websockets: bool) -> Run:
    """One loop, in a home and a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        home, work = Path(name) / "home", Path(name) / "work"
        for folder in (home, work):
            folder.mkdir()
        (home / "config.toml").write_text(
            'model = "auto"\nmodel_provider = "gw"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n'
            f'[model_providers.gw]\nname = "gw"\nbase_url = "http://127.0.0.1:{port}/v1"\nenv_key = "GW_KEY"\n'
            f'wire_api = "responses"\nsupports_websockets = {str(websockets).lower()}\n'
        )
        calls = [f'sim: call exec_command {{"cmd": "echo {n} >> ran"}}' for n in range(STEPS)]
        prompt = "\n".join(["Please follow these lines.", *calls, "sim: say FINAL", "That is all."])
        flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
        closed = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
        given = {**os.environ, **closed, "HOME": name, "CODEX_HOME": str(home), "GW_KEY": "none", "RUST_LOG": "warn"}
        with subprocess.Popen(
            [program, "exec", *flags, prompt],
            cwd=work,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            late = threading.Timer(LIMIT_S, process.kill)
            late.start()
            run = _read(process)
            late.cancel()
        run.ran = (work / "ran").read_text() if (work / "ran").exists() else ""
        return run


def _read(process: "subprocess.Popen[str]") -> Run:
    run, began = Run(), time.monotonic()
    assert process.stdout is not None
    for line in process.stdout:
        now = time.monotonic() - began
        run.retries += any(word in line.lower() for word in RETRIES)
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        if event["type"] == "turn.started":
            began += now
        elif event["type"].startswith("item.") and not run.first_s:
            run.first_s = now
        elif event["type"] == "turn.completed":
            run.loop_s, run.done = now, True
    return run


WHOLE: Final = "".join(f"{n}\n" for n in range(STEPS))


def compare(program: str, gateway: Watched, pairs: int) -> None:
    runs: dict[bool, list[Run]] = {True: [], False: []}
    for number in range(pairs + 1):
        for websockets in (True, False) if number % 2 else (False, True):
            run = codex(program, gateway.port, websockets=websockets)
            assert run.done, "the loop did not end"
            assert run.ran == WHOLE, f"the commands ran otherwise: {run.ran!r}"
            if number:  # the first pair warms up
                runs[websockets].append(run)
    for websockets, some in runs.items():
        first, step, loop = (
            statistics.median(values)
            for values in zip(*((run.first_s, run.step_s, run.loop_s) for run in some), strict=True)
        )
        name = "WebSocket" if websockets else "HTTP"
        print(
            f"{name:<9} {len(some)} loops of {STEPS}: first item {first * 1000:.0f} ms, step {step * 1000:.0f} ms, "
            f"loop {loop:.2f} s (medians); {sum(run.retries for run in some)} retries",
            flush=True,
        )


def cut(program: str, gateway: Watched) -> None:
    whole = Cutter(gateway.port, 0)
    run = codex(program, whole.port, websockets=True)
    whole.close()
    assert run.done, "the loop did not end"
    for share in CUTS:
        between = Cutter(gateway.port, int(whole.carried * share))
        run = codex(program, between.port, websockets=True)
        between.close()
        verdict = "every command once" if run.ran == WHOLE else f"the commands ran otherwise: {run.ran!r}"
        print(
            f"cut at {share:4.0%} of {whole.carried} bytes: {between.cuts} cut, {between.connections} connections, "
            f"{run.retries} retries, {'ended' if run.done else 'did NOT end'}, {verdict}",
            flush=True,
        )


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    clients = Path(os.environ.get("CARETWAY_CLIENTS_DIR") or Path.home() / ".cache/caretway-clients")
    program = str(clients / "codex/node_modules/.bin/codex")
    with gateway_and_simulator() as pair:
        print(subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip())
        cut(program, pair.gateway)
        compare(program, pair.gateway, pairs)


if __name__ == "__main__":
    main()
