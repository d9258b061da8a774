"""A cursor-agent whose pipes break: the stand-in behind two relays that kill it, cut a pipe, or mix in lines that are
none, at a byte that follows from the seed and the number of the start. Runs inside the program itself.

    pipes.main(FOLDER)     as cursor-agent; FOLDER/weather says how bad it is, FOLDER/fired is what happened
"""

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from random import Random
from typing import Final

from caretway_sim.cursor_agent.program import main as stand_in

WEATHER, FIRED, STARTS = "weather", "fired", "starts"
"""Files in the folder. No weather: nothing breaks."""
KILLED, CUT, GARBAGE = "killed", "cut", "garbage"
ODDS: Final = {KILLED: 3, CUT: 3, GARBAGE: 6}
STRAY: Final = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "words of nobody"}}
LINES: Final = (
    b"Warning: this is no message at all",
    b"\xff\xfe\x00\x80 broken \xc3",
    b"",
    b"[1, 2, 3]",
    b"42",
    b'{"half": ',
    b'{"type": "never_heard_of", "text": "words of nobody"}',
    b'{"jsonrpc": "2.0", "id": 99999999, "result": {"stopReason": "end_turn"}}',
    b'{"jsonrpc": "2.0", "id": "no-number", "error": {"code": -1, "message": "for nobody"}}',
    json.dumps({"method": "session/update", "params": {"sessionId": "nobody", "update": STRAY}}).encode(),
    b'{"jsonrpc": "2.0", "method": "never/heard", "params": [1]}',
    b"x" * 200_000,
)


class Trouble:
    """When this start is hit, and by what."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with (folder / STARTS).open("ab") as file:
            file.write(b".")
            self._number = file.tell()
        self._lock = threading.Lock()
        self._random: Random | None = None
        self._left = {"up": 0, "down": 0}
        self._kind = ""
        self._way = ""

    def due(self, way: str, size: int) -> tuple[str, int]:
        """What happens while these bytes pass, and before which of them; an empty word for nothing."""
        with self._lock:
            try:
                weather = json.loads((self._folder / WEATHER).read_bytes())
            except FileNotFoundError:
                return "", 0
            if self._random is None:
                self._random = Random(f"{weather['seed']}/{self._number}")
                self._choose(weather)
            if way != self._way:
                return "", 0
            self._left[way] -= size
            if self._left[way] >= 0:
                return "", 0
            kind, at = self._kind, size + self._left[way]
            self._note(f"{kind}, {way}")
            self._choose(weather)
            return kind, at

    def _choose(self, weather: dict[str, int]) -> None:
        assert self._random is not None
        self._kind = self._random.choices(list(ODDS), list(ODDS.values()))[0]
        self._way = "down" if self._kind == GARBAGE else self._random.choice(("up", "down"))
        self._left[self._way] = int(self._random.expovariate(1 / weather[self._way]))

    def _note(self, what: str) -> None:
        with (self._folder / FIRED).open("a") as file:
            file.write(f"{what}\n")

    def garbage(self) -> bytes:
        assert self._random is not None
        return b"".join(line + b"\n" for line in self._random.sample(LINES, 3))


def main(folder: str) -> int:
    if not {"acp", "-p", "--print"} & set(sys.argv[1:]):
        return stand_in()
    trouble = Trouble(Path(folder))
    _up(trouble)
    told = _down(trouble)
    try:
        return stand_in()
    finally:
        sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        told.join()


def _up(trouble: Trouble) -> None:
    outside = os.dup(0)
    inside, ours = os.pipe()
    os.dup2(inside, 0)
    os.close(inside)

    def carry() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(outside, 65536):
                kind, at = trouble.due("up", len(data))
                if kind:
                    _write(ours, data[:at])
                    if kind == KILLED:
                        os.kill(os.getpid(), signal.SIGKILL)
                    break
                _write(ours, data)
        os.close(outside)
        os.close(ours)

    threading.Thread(target=carry, daemon=True).start()


def _down(trouble: Trouble) -> threading.Thread:
    outside = os.dup(1)
    ours, inside = os.pipe()
    os.dup2(inside, 1)
    os.close(inside)

    def carry() -> None:
        to, insert = outside, False
        while data := os.read(ours, 65536):
            kind, at = trouble.due("down", len(data))
            if kind in (KILLED, CUT):
                _write(to, data[:at])
                if kind == KILLED:
                    os.kill(os.getpid(), signal.SIGKILL)
                os.close(to)
                to = os.open(os.devnull, os.O_WRONLY)
                continue
            insert = insert or kind == GARBAGE
            if insert and (end := data.find(b"\n", at)) >= 0:
                data, insert = data[: end + 1] + trouble.garbage() + data[end + 1 :], False
            _write(to, data)
        os.close(to)

    thread = threading.Thread(target=carry, daemon=True)
    thread.start()
    return thread


def _write(to: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more
        while data:
            data = data[os.write(to, data) :]
