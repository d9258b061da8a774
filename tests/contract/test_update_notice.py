"""The update notice against an index on a real socket: off unless it is asked for, one question a day, one line; a
slow, broken or huge index hurts nobody.
"""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from caretway import Settings, __version__
from caretway.simulator.proxy import SimProxy
from caretway.update_notice import DAY_S, ask_index, known_notice, read_note

from .proxied.sites import listening
from .test_commands import ADDRESS, caretway, end, get, read_until

NEWER = json.dumps({"info": {"version": "99.1.0"}, "releases": {}}).encode()


@dataclass
class Index:
    url: str = ""
    body: bytes = NEWER
    status: int = 200
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    """Set: it answers."""


@contextmanager
def index(**more: Any) -> Iterator[Index]:
    there = Index(**more)
    there.silent.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            there.silent.wait()
            self.send_response(there.status)
            self.send_header("content-length", str(len(there.body)))
            self.end_headers()
            with suppress(ConnectionError):  # it was too large, and nobody reads it to its end
                self.wfile.write(there.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        there.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield there
        finally:
            there.silent.set()
            server.shutdown()
            thread.join()


def settings(there: Index, data_dir: Path, **more: Any) -> Settings:
    return Settings(update_check=True, update_index=there.url, data_dir=data_dir, **more)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if "is out" in line)


def test_a_gateway_asks_once_and_says_one_line(tmp_path: Path) -> None:
    with index() as there:
        flags = ("--port", "0", "--backend", "simulator", "--update-index", there.url)
        with caretway("serve", *flags, "--update-check", home=tmp_path) as process:
            url = read_until(process, ADDRESS)
            said = line_of(process)
            assert re.fullmatch(
                rf"caretway: version 99\.1\.0 is out \(this is {re.escape(__version__)}\); update: .+\n", said
            )
            assert get(f"{url}/healthz")
            assert end(process, signal.SIGTERM) == (0, "")
        with caretway("serve", *flags, "--update-check", home=tmp_path) as process:
            assert line_of(process) == said  # remembered
        with caretway("serve", *flags, home=tmp_path) as process:  # off, as it comes
            read_until(process, re.compile("models  "))
            assert end(process, signal.SIGTERM) == (0, "")
        status = [sys.executable, "-m", "caretway", "status"]
        on = {"HOME": str(tmp_path), "CARETWAY_UPDATE_CHECK": "1", "CARETWAY_UPDATE_INDEX": there.url}
        done = subprocess.run(status, capture_output=True, text=True, env=on, timeout=60, check=False)
        assert said in done.stderr
        ((path, headers),) = there.asked
        assert path == "/pypi/caretway/json"
        assert set(headers) <= {"host", "accept", "user-agent", "connection"}
        assert headers["user-agent"] == "caretway", "nobody learns which version asks"


def test_a_silent_index_delays_neither_start_nor_end(tmp_path: Path) -> None:
    with index() as there:
        there.silent.clear()
        flags = ("--port", "0", "--backend", "simulator", "--update-check", "--update-index", there.url)
        with caretway("serve", *flags, home=tmp_path) as process:
            url = read_until(process, ADDRESS)
            read_until(process, re.compile("models  "))
            assert get(f"{url}/healthz")
            assert end(process, signal.SIGTERM) == (0, "")
    assert len(there.asked) <= 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b'{"info": {"version": "99.1.0rc1"}}'),
        (200, b'{"info": {"version": "0.0.1"}}'),
        (200, b"<html>a page of a hotel</html>"),
        (404, NEWER),
        (500, b""),
        (200, b" " * 3 * 2**20 + NEWER),
    ],
    ids=["no release", "older", "no index", "not there", "broken", "huge"],
)
async def test_what_is_no_newer_release_is_no_news(status: int, body: bytes, tmp_path: Path) -> None:
    with index(status=status, body=body) as there:
        mine = settings(there, tmp_path)
        assert await ask_index(mine)
        assert known_notice(mine) == "" and len(there.asked) == 1
        assert not await ask_index(mine), "whatever it said, it is not asked again today"
        there.status, there.body = 200, NEWER
        late = read_note(tmp_path).asked + DAY_S
        assert await ask_index(mine, lambda: late)
        assert "99.1.0" in known_notice(mine) and len(there.asked) == 2


async def test_nobody_listens(tmp_path: Path) -> None:
    with index() as there:
        gone = settings(there, tmp_path)
    assert await ask_index(gone)
    assert known_notice(gone) == "" and not await ask_index(gone)


async def test_many_gateways_of_one_directory_ask_once(tmp_path: Path) -> None:
    with index() as there:
        mine = settings(there, tmp_path)
        assert sum(await asyncio.gather(*(ask_index(mine) for _ in range(8)))) == 1
        assert len(there.asked) == 1 and "99.1.0" in known_notice(mine)


async def test_it_takes_the_proxy_that_everything_takes(tmp_path: Path) -> None:
    with index() as there:
        proxy = SimProxy()
        async with listening(proxy) as port:
            mine = settings(there, tmp_path, proxy=f"http://127.0.0.1:{port}", proxy_loopback=True)
            assert await ask_index(mine)
        assert "99.1.0" in known_notice(mine)
        assert proxy.asked == [f"connect {there.url.removeprefix('http://')}"]
