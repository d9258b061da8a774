"""The cursor-agent route: what the gateway adds to starting the program. A shell script of a few lines stands in for
it, so the real program's own start (most of what its users wait for) is not in these numbers."""

import asyncio
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, Final

from ..ledger import Ledger
from ..load import Address, Client, chat
from ..processes import TargetFailed, Watched, free_port, launch
from ..script import Order, piece
from ..sizes import Sizes
from ..targets import GATEWAY, House, gateway_command

FLOOR: Final = "posix_spawn"
_MODEL: Final = "stand-in"
_SCRIPT: Final = """#!/bin/sh
case " $* " in
  *" --version "*) echo 2026.09.02-bench; exit 0 ;;
  *" --help "*) echo "Usage: agent [options]"; exit 0 ;;
  *" status "*) echo '{{"isAuthenticated":true,"email":"bench@example.com"}}'; exit 0 ;;
  *" models "*|*" --list-models "*) echo "{model} - Stand-in"; exit 0 ;;
esac
while read -r line; do :; done
{spoken}
"""


def write_stand_in(path: Path, order: Order) -> None:
    """A program that says what a print-mode run says, and ends."""
    session = {"session_id": "11111111-2222-3333-4444-555555555555"}
    said: list[dict[str, Any]] = [{"type": "system", "subtype": "init", "cwd": "/", "model": _MODEL, **session}]
    for index in range(order.count):
        content = [{"type": "text", "text": piece(index, order.size)}]
        message = {"role": "assistant", "content": content}
        said.append({"type": "assistant", "message": message, "timestamp_ms": 1_700_000_000_000 + index, **session})
    said.append({"type": "result", "subtype": "success", "is_error": False, "result": order.text(), **session})
    spoken = "\n".join(f"printf '%s\\n' '{json.dumps(record, separators=(',', ':'))}'" for record in said)
    path.write_text(_SCRIPT.format(model=_MODEL, spoken=spoken))
    path.chmod(0o755)


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


def spawn_and_read(program: Path) -> float:
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
    os.write(in_write, b"Hello\n")
    os.close(in_write)
    seen = b""
    while b"t00000" not in seen:
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
