"""The words that lead to a call are told before it. A client that has the call and not the words tells, when the run is
lost, a history in which the model has not come that far, and is asked for the call again."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec
import pytest

from caretway.backends.cursor_sdk.backend import find_sdk
from caretway.backends.cursor_sdk.node import BRIDGE
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
                case {"t": "text" | "again" as kind}:
                    said.append(kind)
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


@pytest.mark.parametrize(
    ("play", "wanted"),
    [
        ("late", ["text", "first"]),
        ("untold", ["first"]),
        ("again", ["again", "text", "second"]),
    ],
)
async def test_words_before_calls(play: str, wanted: list[str]) -> None:
    async with asyncio.timeout(30):
        assert await told(play) == wanted
