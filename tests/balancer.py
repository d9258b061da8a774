"""Debian's haproxy in front of several gateways, round robin, as docs/cluster.md shows it: it asks `/readyz`, tries
another gateway where one does not take the connection, and never sends a request twice.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from redis_server import free_port

CONFIG: Final = """
global
    maxconn 4096
defaults
    mode http
    timeout connect 2s
    timeout check 5s
    timeout client 120s
    timeout server 120s
    timeout tunnel 120s
    option http-no-delay
    option redispatch 1
    retries 3
    retry-on conn-failure
frontend door
    bind 127.0.0.1:{port}
    default_backend gateways
backend gateways
    balance roundrobin
    option httpchk GET /readyz
    default-server check inter 200ms fastinter 100ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down
"""
START_S: Final = 30.0


@contextmanager
def balancer(ports: Sequence[int]) -> Iterator[int]:
    """Its own port."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    assert program is not None, "apt-get install haproxy"
    port = free_port()
    servers = [f"    server gateway{number} 127.0.0.1:{each}" for number, each in enumerate(ports)]
    with TemporaryDirectory(prefix="haproxy-") as place:
        config = Path(place) / "haproxy.cfg"
        config.write_text(CONFIG.format(port=port) + "\n".join(servers) + "\n")
        process = subprocess.Popen([program, "-db", "-q", "-f", str(config)], stderr=subprocess.DEVNULL)
        try:
            _wait(process, port)
            yield port
        finally:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, "haproxy ended at once"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("haproxy does not answer")
