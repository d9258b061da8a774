"""The cursor-agent route in print mode: what the gateway adds to starting the program, which it does for every turn and
for every step of a tool loop. A shell script of a few lines stands in for it, so the real program's own start (most of
what its users wait for) is not in these numbers."""

import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ..ledger import Ledger
from ..load import Address, Client, chat
from ..processes import TargetFailed, Watched, free_port, launch
from ..script import FIRST_PIECE, TOOL, Order, piece
from ..sizes import Sizes
from ..targets import GATEWAY, House, gateway_command
from ..tool_loop import tool_loop

FLOOR: Final = "posix_spawn"
_MODEL: Final = "stand-in"
_SCRIPT: Final = """#!/bin/sh
case " $* " in
  *" --version "*) echo 2026.09.02-bench; exit 0 ;;
  *" --help "*) echo "Usage: agent [options]"; exit 0 ;;
  *" status "*) echo '{{"isAuthenticated":true,"email":"bench@example.com"}}'; exit 0 ;;
  *" models "*|*" --list-models "*) echo "{model} - Stand-in"; exit 0 ;;
esac
trigger=
while read -r line; do
  case $line in "<<CALL_"*) trigger=$line ;; esac
done
if [ "$trigger" ]; then
{called}
else
{spoken}
fi
"""
_CALL: Final = f'TRIGGER<invoke name="{TOOL}">{{"k": "NUMBER"}}</invoke>'
_TOOLS: Final = [
    {"type": "function", "function": {"name": TOOL, "parameters": {"type": "object", "properties": {"k": {}}}}}
]
_TOLD_BYTES: Final = 1700
"""What the model is told of the tools."""
_STEP_BYTES: Final = 140
"""What each step adds to that: its call and its result."""
_ENDED: Final = b'"result"'


def write_stand_in(path: Path, order: Order) -> None:
    """A program that says what a print-mode run says, and ends; one that is told of tools calls one."""
    pieces = [piece(index, order.size) for index in range(order.count)]
    # The trigger is another one in each request; the number keeps the calls apart.
    called = _run([_CALL]).replace("TRIGGER", "'\"$trigger\"'").replace("NUMBER", "'$$'")
    path.write_text(_SCRIPT.format(model=_MODEL, spoken=_run(pieces), called=called))
    path.chmod(0o755)


def _run(pieces: Sequence[str]) -> str:
    """Lines of shell."""
    session = {"session_id": "11111111-2222-3333-4444-555555555555"}
    said: list[dict[str, Any]] = [{"type": "system", "subtype": "init", "cwd": "/", "model": _MODEL, **session}]
    for index, text in enumerate(pieces):
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        said.append({"type": "assistant", "message": message, "timestamp_ms": 1_700_000_000_000 + index, **session})
    said.append({"type": "result", "subtype": "success", "is_error": False, "result": "".join(pieces), **session})
    return "\n".join(f"printf '%s\\n' '{json.dumps(record, separators=(',', ':'))}'" for record in said)


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    order = Order(5)
    program = house.folder / "cursor-agent"
    write_stand_in(program, order)
    try:
        gateway = _start(house, program)
    except TargetFailed as reason:
        ledger.note(f"the cursor-agent route was left out: {reason}")
        return
    try:
        await _compare(gateway, program, order, sizes, ledger)
        await _steps(gateway, program, sizes, ledger)
    finally:
        gateway.stop()


async def _compare(gateway: Watched, program: Path, order: Order, sizes: Sizes, ledger: Ledger) -> None:
    client = await Client.connect(Address(gateway.port))
    body = chat(order, stream=True).replace(b"gpt-4o-mini", _MODEL.encode())
    try:
        (await client.ask(body)).check(order, stream=True)
        for _ in range(sizes.rounds):
            floor, through = [], []
            for _ in range(sizes.cli_requests):
                floor.append(await asyncio.to_thread(spawn_and_read, program))
                answer = await client.ask(body)
                answer.check(order, stream=True)
                through.append(answer.first_ms)
            ledger.add("cli: first piece ms", FLOOR, statistics.median(floor))
            ledger.add("cli: first piece ms", GATEWAY, statistics.median(through))
    finally:
        client.close()


async def _steps(gateway: Watched, program: Path, sizes: Sizes, ledger: Ledger) -> None:
    # As long as the prompt in the middle of the loop: the shell reads it byte by byte.
    prompt = b"<<CALL_01234567>>\n".ljust(_TOLD_BYTES + _STEP_BYTES * sizes.steps // 2, b".")
    for number in range(-1, sizes.rounds):
        floor = [await asyncio.to_thread(spawn_and_read, program, prompt, _ENDED) for _ in range(sizes.steps)]
        through = await tool_loop(gateway, _MODEL, "Hello", sizes.steps, tools=_TOOLS)
        if number < 0:
            continue  # what is done once is done
        ledger.add("cli: ms per tool step", FLOOR, statistics.median(floor))
        ledger.add("cli: ms per tool step", GATEWAY, through.median_ms)
        ledger.add("cli: ms added to a tool step", GATEWAY, through.median_ms - statistics.median(floor))
        ledger.add("cli: CPU ms per tool step", GATEWAY, through.cpu_ms)


def spawn_and_read(program: Path, prompt: bytes = b"Hello\n", awaited: bytes = FIRST_PIECE) -> float:
    """The floor: posix_spawn, the prompt, the first piece. Milliseconds."""
    began = time.perf_counter()
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, in_read, 0),
        (os.POSIX_SPAWN_DUP2, out_write, 1),
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in (in_read, in_write, out_read, out_write)),
    ]
    child = os.posix_spawn(program, [str(program), "-p"], os.environ, file_actions=actions)
    os.close(in_read)
    os.close(out_write)
    os.write(in_write, prompt)
    os.close(in_write)
    seen = b""
    while awaited not in seen:
        more = os.read(out_read, 65536)
        if not more:
            break
        seen += more
    took = (time.perf_counter() - began) * 1000
    while os.read(out_read, 65536):
        pass
    os.close(out_read)
    os.waitpid(child, 0)
    return took


def _start(house: House, program: Path) -> Watched:
    port = free_port()
    command = gateway_command(port, house.folder, "--backend", "cli", "--cli-transport", "print")
    return launch("caretway-cli", command, port, house.folder, environment={"CURSOR_AGENT_BIN": str(program)})
