"""Starts cursor-agent, and reports why it cannot start: the gateway is stopping, or the program is missing or not
executable. Ends a program that closed its output and stays."""

import asyncio
import contextlib
import os
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ...core.errors import ErrorKind, GatewayError, gateway_stops
from ...core.request import Image
from ...processes import child_group
from ...processes.child import CannotStart, Child, ChildSink, Command, Pipe
from ...storage.private_file import write_file

# ---- The number of cursor-agent turns that run at once, and their queue: first come, first served; a full queue is
# OVERLOADED with Retry-After; a slot is released once, also by a cancelled turn.


class Slots:
    def __init__(self, permits: int, queue: int, *, retry_after: float) -> None:
        self._free = permits
        self._queue = queue
        self._retry_after = retry_after
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def join(self) -> "Slot":
        """A slot, without waiting for it. Raises GatewayError(OVERLOADED) if the queue is full."""
        if self._free:
            self._free -= 1
            return Slot(self, None)
        if len(self._waiting) >= self._queue:
            raise GatewayError(
                ErrorKind.OVERLOADED,
                f"Every cursor-agent process is busy and {len(self._waiting)} requests wait already.",
                hint="Raise cli_max_processes or cli_queue.",
                retry_after=self._retry_after,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return Slot(self, turn)

    def leave(self, turn: "asyncio.Future[None] | None") -> None:
        if turn is not None and not turn.done():
            self._waiting.remove(turn)
            turn.cancel()
            return
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1


class Slot:
    """A place in the queue, then a running turn's permit. Further calls of `leave` do nothing."""

    def __init__(self, slots: Slots, turn: "asyncio.Future[None] | None") -> None:
        self._slots = slots
        self._turn = turn
        self._left = False

    async def reached(self) -> None:
        """Wait for the permit. Only `leave` releases the slot; cancelling the wait does not."""
        if self._turn is not None:
            await asyncio.shield(self._turn)

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._slots.leave(self._turn)


# ---- The working directory of cursor-agent if the request names none: an empty directory, shared by read-only modes;
# a mode that writes gets a directory for each conversation, of which the newest 32 are kept. Images become files that
# only their owner can read.

KEPT: Final = 32
_SHARED: Final = "read-only"
_WITH_TOOLS: Final = "with-tools-"
"""The prefix of a directory's name; the id of the gateway's process follows."""


class Scratch:
    def __init__(self, root: Path) -> None:
        self._root = root

    def shared(self) -> Path:
        return self._made(_SHARED)

    def own(self) -> Path:
        made = self._made(uuid.uuid4().hex)
        others = [path for path in self._root.iterdir() if path.name != _SHARED and _WITH_TOOLS not in path.name]
        for old in sorted(others, key=_age)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return made

    def with_tools(self) -> Path:
        """This process's directory for turns with a client's tools."""
        return self._made(f"{_WITH_TOOLS}{os.getpid()}")

    def left_behind(self) -> list[Path]:
        """Directories of processes that have ended."""
        found = self._root.glob(f"{_WITH_TOOLS}*") if self._root.is_dir() else ()
        return [path for path in found if not _lives(path.name.removeprefix(_WITH_TOOLS))]

    def keep_images(self, place: Path, images: Sequence[Image]) -> Path:
        """Write images to files in a new directory inside `place`. The caller must delete the directory."""
        folder = place / f"images-{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        for number, image in enumerate(images, 1):
            kind = image.mime_type.rpartition("/")[2]
            suffix = kind if kind.isalnum() else "png"
            write_file(folder / f"{number}.{suffix}", image.data, durable=False)
        return folder

    def is_ours(self, path: Path) -> bool:
        return path.parent == self._root

    def _made(self, name: str) -> Path:
        path = self._root / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        pass  # another user's process
    return True


def _age(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


MUTE_S: Final = 0.5
"""Seconds that a program may continue after it closed its output."""


class AgentChildGroup(child_group.ChildGroup):
    async def start(self, command: Command, sink: ChildSink, closed: Callable[[Pipe], None] | None = None) -> Child:
        """Start a program. Raises GatewayError."""
        begun: list[Child] = []

        def end_mute() -> None:
            for child in begun:
                if child.alive:
                    child.terminate()

        def pipe_closed(pipe: Pipe) -> None:
            if pipe == "stdout":
                asyncio.get_running_loop().call_later(MUTE_S, end_mute)
            if closed is not None:
                closed(pipe)

        try:
            begun.append(await super().start(command, sink, pipe_closed))
            return begun[0]
        except child_group.ChildGroupClosed as closed:
            raise gateway_stops() from closed
        except CannotStart as failure:
            raise GatewayError(
                ErrorKind.UPSTREAM_DOWN,
                f"cursor-agent cannot be started ({failure.program}): {failure.reason}.",
                hint="Install it with `curl https://cursor.com/install -fsS | bash`, or set CURSOR_AGENT_BIN.",
                code="cli_not_found",
            ) from failure
