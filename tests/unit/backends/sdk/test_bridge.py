"""The SDK's process, with other programs in its place: it does not start, dies again and again, or talks nonsense."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from caretway.backends.sdk.bridge import BRIDGE, GUARD, PARTS, Bridges, BridgeSetup, SdkInstall, egress, node_command
from caretway.core.errors import ErrorKind, GatewayError
from caretway.processes.child import Command

INSTALL = SdkInstall(Path("/v/bin/node"), Path("/v/node_modules"))
ROOT = Path("/home/ann/data/sdk")
CURSORS = ["cursor.sh", "cursor.com"]


def command(**more: Any) -> Command:
    return node_command(INSTALL, ROOT, egress(["https://api2.cursor.sh"], stand_in=False), **more)


def test_it_may_read_its_package_and_nothing_else() -> None:
    argv = command().argv
    assert argv[0] == "/v/bin/node" and argv[-1] == str(BRIDGE)
    assert "--permission" in argv and argv.index("--permission") < argv.index(f"--import={GUARD.as_uri()}")
    read = {word.partition("=")[2] for word in argv if word.startswith("--allow-fs-read=")}
    looked_at = {"/caretway-absent/*", "/node_modules/@cursor/*", "/.git"}  # where there is nothing of the user's
    assert read == {"/v/node_modules/*", str(GUARD), str(BRIDGE), *map(str, PARTS)} | looked_at
    allowed = {word.partition("=")[0] for word in argv if word.startswith("--allow")}
    assert allowed == {"--allow-fs-read"}  # no writing, no addons, no processes, no threads


def test_the_environment_is_made_of_nothing() -> None:
    environment = command().environment
    absent = "/caretway-absent/here"
    assert json.loads(environment["CARETWAY_EGRESS"]) == {
        "own": ["api2.cursor.sh:443"],
        "domains": CURSORS,
        "absent": absent,
    }
    assert {name: value for name, value in environment.items() if name != "CARETWAY_EGRESS"} == {
        "CARETWAY_SDK": "file:///v/node_modules/%40cursor/sdk/dist/esm/index.js",
        "MALLOC_ARENA_MAX": "1",
        **dict.fromkeys(("HOME", "PATH", "TMPDIR", "CURSOR_DATA_DIR"), absent),
    }


def test_a_stand_in_and_its_authority() -> None:
    environment = command(backend_url="https://sim:9", ca_file="/ca.pem").environment
    assert environment["CURSOR_BACKEND_URL"] == environment["CURSOR_WEBSITE_URL"] == "https://sim:9"
    assert environment["NODE_EXTRA_CA_CERTS"] == "/ca.pem"


@pytest.mark.parametrize(
    ("urls", "stand_in", "own", "domains"),
    [
        (["https://api2.cursor.sh"], False, ["api2.cursor.sh:443"], CURSORS),
        (["http://127.0.0.1:4000"], True, ["127.0.0.1:4000"], []),
        (["http://[::1]:4000", "http://[::1]:4000/"], True, ["::1:4000"], []),
        (["http://Sim.Example"], True, ["sim.example:80"], []),
        (["https://sim.example./a", "https://login.example"], True, ["login.example:443", "sim.example:443"], []),
    ],
)
def test_what_may_be_connected_to(urls: list[str], stand_in: bool, own: list[str], domains: list[str]) -> None:
    assert egress(urls, stand_in=stand_in) == {"own": own, "domains": domains}


READY = """print('{"t": "ready"}', flush=True)"""
ECHO = READY + "\nimport sys, json\nfor line in sys.stdin:\n    frame = json.loads(line)\n    "


@asynccontextmanager
async def bridges(tmp_path: Path, program: str, **more: Any) -> AsyncIterator[Bridges]:
    command = Command((sys.executable, "-c", program), str(tmp_path), {})
    made = Bridges(BridgeSetup(lambda: command, **more))
    try:
        yield made
    finally:
        await made.aclose()


async def failure(made: Bridges) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        made.release(await made.lease())
    return raised.value


async def test_one_that_keeps_dying_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async with bridges(tmp_path, "import sys; sys.exit('the last words')") as made:
        first = await failure(made)
        assert "code 1: the last words" in first.message and first.kind is ErrorKind.UPSTREAM_DOWN
        assert "the last words" in (await failure(made)).message
        resting = await failure(made)
        assert "2 times in a row" in resting.message
        assert resting.retry_after == 1.0 and made.started == 0


async def test_one_that_is_never_ready(tmp_path: Path) -> None:
    async with bridges(tmp_path, "import time; time.sleep(60)", start_timeout=0.1) as made:
        assert "not ready within" in (await failure(made)).message


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    command = Command((str(tmp_path / "nothing"),), str(tmp_path), {})
    made = Bridges(BridgeSetup(lambda: command))
    assert "cannot be started" in (await failure(made)).message
    await made.aclose()


async def test_an_sdk_that_does_not_do_what_it_must(tmp_path: Path) -> None:
    async with bridges(tmp_path, """print('{"t": "ready", "s": "systemPrompt"}', flush=True); input()""") as made:
        assert (await failure(made)).kind is ErrorKind.UNSUPPORTED


@pytest.mark.parametrize("line", ["nonsense", '{"n": 1}', "[]", '{"t": "text", "n": 1, "s": "' + "x" * 5000 + '"}'])
async def test_one_that_cannot_be_understood_is_ended(tmp_path: Path, line: str) -> None:
    async with bridges(tmp_path, f"{ECHO}print({line!r}, flush=True)", frame_bytes=4096) as made:
        bridge = await made.lease()
        with pytest.raises(GatewayError, match=r"process ended"):
            await bridge.call("ping")
        await bridge.gone
        assert made.current is None
        made.release(bridge)


async def test_answers_and_failures_of_questions(tmp_path: Path) -> None:
    reply = """print(json.dumps({"t": "reply", "n": frame["n"], **json.loads(frame["key"])}), flush=True)"""
    async with bridges(tmp_path, ECHO + reply) as made:
        bridge = await made.lease()
        assert await bridge.call("me", '{"value": {"a": 1}}') == {"a": 1}
        with pytest.raises(GatewayError) as refused:
            await bridge.call("me", '{"thrown": true, "message": "no", "http": 401}')
        assert refused.value.kind is ErrorKind.SIGNED_OUT
        made.release(bridge)


async def test_a_question_that_is_not_answered(tmp_path: Path) -> None:
    async with bridges(tmp_path, f"{ECHO}pass", call_timeout=0.05) as made:
        bridge = await made.lease()
        with pytest.raises(GatewayError) as late:
            await bridge.call("me")
        assert late.value.kind is ErrorKind.TIMEOUT
        await bridge.prove()  # it does not answer that either
        await bridge.gone
        made.release(bridge)


async def test_a_spoiled_one_gets_no_more_turns(tmp_path: Path) -> None:
    spoil = """print('{"t": "spoiled"}', flush=True); print(json.dumps({"t": "reply", "n": frame["n"]}), flush=True)"""
    async with bridges(tmp_path, ECHO + spoil) as made:
        first = await made.lease()
        await first.call("me")
        second = await made.lease()
        assert second is not first and not first.gone.done()
        made.release(first)
        await first.gone
        made.release(second)
