"""A program between the gateway and the SDK's bridge: ends the bridge's process group when the gateway is gone (also
after SIGKILL), tells the gateway when the bridge is, and drains its stderr.

`python supervisor.py PLAN ARGUMENT...` starts the bridge and holds a connection to the gateway, over which both learn
of the other's end. The SDK stops reading stderr after the first line, and a full pipe would stall the bridge.

It runs as a script under `python -I -S`: the standard library, and of ours `processes/group.py` alone.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

if not __package__:  # as a script: the package is not on the path then
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from caretway.processes.group import Group, start

READY = b"cursor-sdk-bridge ready "
"""How the line begins that the SDK waits for."""
TAIL_BYTES = 4000
GRACE_S = 1.5
"""Between asking the group to end and ending it."""


class Told(Exception):
    """The gateway is gone, or asked for the end."""


def replaced(arguments: list[str], values: dict[str, str]) -> list[str]:
    """The arguments with other values for some flags."""
    out = list(arguments)
    for at, flag in enumerate(arguments[:-1]):
        if flag in values:
            out[at + 1] = values[flag]
    return out


def pump(bridge: Group, life: socket.socket) -> bytes:
    """Until the bridge closes its stderr; the last bytes of it. Raises Told when the gateway is gone."""
    assert bridge.leader.stderr is not None
    source = bridge.leader.stderr.fileno()
    tail = b""
    ready = False
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        selector.register(life, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is life:
                    raise Told
                data = os.read(source, 65536)
                if not data:
                    return tail
                tail = (tail + data)[-TAIL_BYTES:]
                if not ready:  # the SDK reads up to this line and no further
                    os.write(2, data)
                    ready = READY in tail


def main(plan_file: str, arguments: list[str]) -> int:
    # Ctrl-C reaches the whole terminal; the gateway decides when its bridge ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def told(signum: int, frame: FrameType | None) -> None:
        raise Told

    signal.signal(signal.SIGTERM, told)
    plan = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    os.unlink(plan_file)
    bridge: Group | None = None
    code = 0
    with socket.create_connection(("127.0.0.1", plan["port"]), timeout=10) as life:
        life.settimeout(None)
        try:
            bridge = start(
                [*plan["command"], *replaced(arguments, plan["replace"])],
                cwd=plan["cwd"],
                environment=plan["env"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            life.sendall(f"{plan['token']} {bridge.pid}\n".encode())
            tail = pump(bridge, life)
            if bridge.ends_within(GRACE_S):
                code = bridge.reap()
                with contextlib.suppress(OSError):
                    life.sendall(f"exit {code}\n".encode() + tail)
        except Told:
            code = 0
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if bridge is not None:
                bridge.end(GRACE_S)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
