"""SDK agents kept on disk so that a conversation can go on: counters of turns, which snapshot is still current, a
limit (LRU), leftovers and plain-text transcripts erased.

An agent is a conversation on disk: a directory of ours with a counter of finished turns in it, and what the SDK stores
for that directory. When the agent has gone further, or is gone, or is at work, the snapshot is of no use and the
history is told anew.
"""

import logging
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec

from .layout import Layout

log = logging.getLogger(__name__)

COUNTER: Final = "turns"


class AgentPosition(msgspec.Struct, frozen=True):
    """What a snapshot says."""

    agent: str
    turns: int
    tokens: int = 0
    """What its conversation holds, as far as anybody has said; 0: nobody has."""


def write_position(position: AgentPosition) -> bytes:
    return msgspec.json.encode(position)


def read_position(state: bytes) -> AgentPosition | None:
    try:
        return msgspec.json.decode(state, type=AgentPosition)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Agents:
    """Not more than `limit` are kept; those that were not used for the longest time are forgotten first."""

    def __init__(self, layout: Layout, *, limit: int) -> None:
        self._layout = layout
        self._limit = limit
        self._idle: OrderedDict[str, int] = OrderedDict()
        self._busy: set[str] = set()

    def load(self) -> None:
        """What an earlier gateway left, oldest first; leftovers of unfinished turns are removed."""
        found = []
        for directory in self._layout.agents.iterdir() if self._layout.agents.is_dir() else ():
            turns = _read_counter(directory / COUNTER)
            if turns is None:
                self.erase(directory.name)
            else:
                found.append((directory.stat().st_mtime_ns, directory.name, turns))
        self._idle = OrderedDict((name, turns) for _, name, turns in sorted(found))

    @property
    def idle(self) -> int:
        return len(self._idle)

    def create(self, agent_id: str) -> None:
        self._layout.workspace(agent_id).mkdir(mode=0o700, parents=True)
        self._busy.add(agent_id)

    def claim(self, position: AgentPosition) -> bool:
        """For a turn that continues; False when that point of the conversation is not available."""
        if self._idle.get(position.agent) != position.turns or not self._layout.workspace(position.agent).is_dir():
            return False
        del self._idle[position.agent]
        self._busy.add(position.agent)
        return True

    def keep(self, position: AgentPosition) -> list[str]:
        """After a turn that ended well; returns the agents that are now one too many."""
        self._busy.discard(position.agent)
        (self._layout.agent(position.agent) / COUNTER).write_text(f"{position.turns}\n", encoding="ascii")
        self._idle[position.agent] = position.turns
        over = len(self._idle) - self._limit
        return [self._idle.popitem(last=False)[0] for _ in range(max(0, over))]

    def drop(self, agent_id: str) -> None:
        self._busy.discard(agent_id)
        self._idle.pop(agent_id, None)

    def erase(self, agent_id: str) -> None:
        """All of it from the disk. Blocks; the SDK's own deletion leaves the transcript behind, in plain text."""
        doomed = [self._layout.agent(agent_id)]
        if self._layout.projects.is_dir():
            doomed += [path for path in self._layout.projects.iterdir() if agent_id in path.name]
        for path in doomed:
            shutil.rmtree(path, ignore_errors=True)
            if path.exists():
                log.warning("something of a finished conversation could not be removed: %s", path)


def _read_counter(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None
