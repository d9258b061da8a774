"""A tool that a request demands by name: calls of other tools are rejected with its name, twice in a run; after that
the run is given up, with a note for the client. Pure."""

from typing import Final

from msgspec import Struct

from .events import Note

NOTE_KEY: Final = "tool_choice"
REJECTIONS: Final = 2
"""Rejections per run. A third rejection would not help the model."""


class NamedTool(Struct, gc=False):
    name: str = ""
    """Empty: no tool is demanded by name."""
    rejected: int = 0
    """How many calls of other tools were rejected."""

    def rejects(self, name: str) -> bool:
        """Whether a call of `name` must be rejected; counts the rejection."""
        if self.name in ("", name):
            return False
        self.rejected += 1
        return True

    @property
    def spent(self) -> bool:
        return self.rejected > REJECTIONS

    @property
    def rejection(self) -> str:
        """The reason of a rejection, for the model."""
        return f"the request demands a call of the tool `{self.name}`. Call `{self.name}` and no other tool"

    @property
    def note(self) -> Note:
        times = "once" if self.rejected == 1 else f"{self.rejected} times"
        return Note(NOTE_KEY, f"the request demands a call of the tool `{self.name}`; the model called others {times}")

    def next_step(self, name: str) -> None:
        """The demanded call was answered. From now on `name` is demanded; empty: no tool."""
        self.name, self.rejected = name, 0


def demand(name: str) -> str:
    """The instruction to call the tool, for the model before it answers."""
    return f"You must call the tool `{name}` before you answer in text."
