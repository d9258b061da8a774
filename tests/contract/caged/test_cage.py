"""The cage of the SDK's process: Node's permissions and guard.mjs, tried from both sides.

From the server's side the SDK is asked for all that its built-in tools can do, once without the cage, to see that the
witnesses see, and once in it. From within, code that no server can send tries every way out that we know.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from contract.caged.cage import Caged, Witness, caged, witness
from contract.caged.demands import everything, repository
from contract.gateways import simulated
from contract.subjects import WAYS

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never"),
]


@asynccontextmanager
async def hostile(folder: Path, *, free: bool) -> AsyncIterator[tuple[Caged, Witness, Path]]:
    """The SDK with all its tools, and a server that may ask for anything."""
    root, programs = repository(folder)
    async with (
        simulated() as (_, port),
        witness() as seen,
        caged("unarmed.mjs", root, [f"http://127.0.0.1:{port}"], free=free, programs=programs) as sdk,
    ):
        yield sdk, seen, folder


@pytest.mark.all
async def test_without_the_cage_all_of_it_happens(tmp_path: Path) -> None:
    """So the witnesses see, and it is the cage that holds."""
    async with hostile(tmp_path, free=True) as stage:
        happened = await everything(*stage)
        async with asyncio.timeout(60):
            while missing := [name for name, did in happened.items() if not did()]:
                await asyncio.sleep(0.05)  # what runs in the background takes a moment
        assert missing == []


async def test_in_the_cage_nothing_happens_that_a_server_asks_for(tmp_path: Path) -> None:
    async with hostile(tmp_path, free=False) as stage:
        happened = await everything(*stage)
        await asyncio.sleep(1)  # so would it here
        assert [name for name, did in happened.items() if did()] == []


# ---- from within

REDIRECTS: Final = {
    "/302": "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{port}/\r\n",
    "/307": "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{port}/\r\n",
    "/name": "HTTP/1.1 302 Found\r\nlocation: http://localhost:{port}/\r\n",
}


async def test_no_way_out_from_within(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    async with witness() as seen:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.read(2000)).decode("ascii", "replace")
            path = head.split()[1] if head else ""
            answer = REDIRECTS.get(path, "HTTP/1.1 200 OK\r\n").format(port=seen.port)
            writer.write(f"{answer}connection: close\r\ncontent-length: 7\r\n\r\nreached".encode())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        own, made = server.sockets[0].getsockname()[1], tmp_path / "made"
        words = (str(seen.port), str(own), str(made))
        try:
            async with caged(
                "attacks.mjs", root, [f"http://127.0.0.1:{own}"], *words, domains=("localhost",)
            ) as within:
                outcomes = {}
                while (told := await within.hear())["name"] != "environment":
                    outcomes[told["name"]] = told
        finally:
            server.close()
        assert seen.heard == []
    assert [*os.listdir(tmp_path), *os.listdir(root)] == ["root"]  # nothing was written
    done = {name: told["done"] for name, told in outcomes.items() if "done" in told}
    returned = {name: done.pop(name) for name in list(done) if done[name].startswith("returned -")}
    assert done == dict.fromkeys(["the one server", "options that change when they are read again"], "reached")
    assert set(returned) == {"a handle of one's own", "a handle that listens", "a handle for datagrams", "a channel"}
    rebound = outcomes["a name of Cursor's that means this machine"]
    assert rebound["refused"] == "ERR_CARETWAY_EGRESS"
    assert told["names"] == [
        "CARETWAY_SDK",
        "CURSOR_BACKEND_URL",
        "CURSOR_DATA_DIR",
        "CURSOR_WEBSITE_URL",
        "HOME",
        "MALLOC_ARENA_MAX",
        "PATH",
        "TMPDIR",
    ]
