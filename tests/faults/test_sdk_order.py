"""What a run says is told as it came on the wire, and a checkpoint only if the SDK goes on from it.

A client that has a call and not the words before it tells, when the run is lost, a history in which the model has not
come that far, and is asked for the call again. A turn that knows a checkpoint from which the SDK does not go on takes
what is said again for news: words twice, calls twice.
"""

import asyncio
from pathlib import Path
from typing import Final

import msgspec
import pytest

from caretway.backends.sdk.backend import find_sdk
from caretway.backends.sdk.bridge import BRIDGE
from contract.subjects import WAYS

pytestmark = pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never")
SCRIPTED: Final = Path(__file__).with_name("scripted_sdk.mjs")
OPEN: Final = {
    "op": "open",
    "n": 1,
    "key": "key",
    "agent": "agent",
    "blobKey": "",
    "blobs": [],
    "model": {"id": "auto"},
    "allowed": [],
    "images": [],
    "tools": [{"name": "look"}],
}


async def told(play: str) -> list[str]:
    """What the bridge says of a run, with every call answered."""
    bridge = await asyncio.create_subprocess_exec(
        str(find_sdk().node),
        str(BRIDGE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"CARETWAY_SDK": SCRIPTED.as_uri()},
    )
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    said: list[str] = []
    try:
        bridge.stdin.write(msgspec.json.encode(OPEN | {"text": play}) + b"\n")
        async for line in bridge.stdout:
            match msgspec.json.decode(line):
                case {"t": "again" | "state" as kind}:
                    said.append(kind)
                case {"t": "update", "kind": "text-delta" | "turn-ended" as kind}:
                    said.append({"text-delta": "text", "turn-ended": "ended"}[kind])
                case {"t": "call", "call": call, "id": number}:
                    said.append(call)
                    answer = {"op": "answer", "n": 1, "id": number, "value": {"content": []}}
                    bridge.stdin.write(msgspec.json.encode(answer) + b"\n")
                case {"t": "over", "status": status}:
                    assert status == "finished"
                    break
    finally:
        bridge.stdin.close()
        await bridge.wait()
    return said


@pytest.mark.parametrize("transport", ["h2", "http1"])
@pytest.mark.parametrize(
    ("play", "wanted"),
    [
        ("late", ["state", "text", "first", "second"]),
        ("untold", ["first"]),
        ("again", ["again", "text", "second"]),
        ("drained", ["state", "text", "again", "text"]),
        ("early", ["text", "text", "state", "text"]),
        ("over", ["text", "state", "ended"]),
    ],
)
async def test_as_it_came(play: str, wanted: list[str], transport: str) -> None:
    async with asyncio.timeout(30):
        assert await told(f"{play} {transport}") == wanted


@pytest.mark.parametrize(
    ("play", "wanted"),
    [
        ("caught", ["state", "text", "again", "text", "second"]),
        ("same", ["text", "again", "text", "state", "ended"]),
    ],
)
async def test_a_checkpoint_that_is_stored_too_late(play: str, wanted: list[str]) -> None:
    """On HTTP/1.1 the next attempt is seen when it is answered, long after the SDK has chosen where to go on."""
    async with asyncio.timeout(30):
        assert await told(f"{play} http1") == wanted
