"""The order of a step's calls, and whether all have arrived: cursor-agent announces its calls in order, but makes each
call on a separate connection, so that calls may overtake each other. Pure.

A call belongs to the announcement with its name and arguments, otherwise to an announcement with its name, otherwise to
an announcement that names no tool. Equal calls are ordered by the increasing numbers of their messages.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from .tool_server import SERVER

CLOSED: Final = ("completed", "failed", "cancelled")
_HEADS: Final = (f"{SERVER}-", f"{SERVER}:")
_AFTER_NAME: Final = re.compile(r"[:\s(]")


class MadeCall(Protocol):
    """A call that the MCP server received."""

    @property
    def name(self) -> str: ...

    @property
    def values(self) -> Mapping[str, Any]: ...

    @property
    def number(self) -> object:
        """The number of the call's request."""
        ...


Made = TypeVar("Made", bound=MadeCall)


@dataclass(slots=True, eq=False)
class Announcement:
    ours: bool = False
    """Whether the call is one of a client's tool."""
    other: bool = True
    """Whether the call may be one of a client's tool, because its kind is none of the program's own tools."""
    over: bool = False
    tool: str = ""
    values: Mapping[str, Any] | None = None

    def hear(self, update: Mapping[str, Any]) -> None:
        title, raw = str(update.get("title") or ""), update.get("rawInput")
        raw = raw if isinstance(raw, dict) else {}
        if raw.get("providerIdentifier") == SERVER or title.startswith(_HEADS):
            self.ours = True
            named = raw.get("toolName")
            self.tool = named if isinstance(named, str) else _AFTER_NAME.split(title[len(SERVER) + 1 :].strip(), 1)[0]
        if raw:
            inner = raw.get("args")
            self.values = inner if "providerIdentifier" in raw and isinstance(inner, dict) else raw
        if "kind" in update:
            self.other = update["kind"] in (None, "other")
        self.over = self.over or update.get("status") in CLOSED


class Announcements:
    """Announced calls of one session since its last step."""

    def __init__(self) -> None:
        self._known: dict[str, Announcement] = {}

    def hear(self, update: Mapping[str, Any]) -> bool:
        """Read an update. Returns whether it is about a client's tool, whose call is reported separately."""
        if update.get("sessionUpdate") not in ("tool_call", "tool_call_update"):
            return False
        announcement = self._known.setdefault(str(update.get("toolCallId")), Announcement())
        announcement.hear(update)
        return announcement.ours

    def in_order(self, calls: Sequence[Made]) -> tuple[list[Made], bool]:
        """(calls in the model's order, whether each call is announced and each announced call has arrived)."""
        owners = self._owners(calls)
        announced = [owners[one] for one in self._open() if one in owners]
        claimed = {id(call) for call in announced}
        unheard = [call for call in _counted(calls) if id(call) not in claimed]
        waited_for = any(one.ours and one not in owners for one in self._open())
        return [*announced, *unheard], not unheard and not waited_for

    def shown(self, calls: Sequence[MadeCall]) -> None:
        """The client has these calls: close their announcements, which must not match later calls."""
        for announcement in self._owners(calls):
            announcement.over = True

    def clear(self) -> None:
        self._known.clear()

    def _open(self) -> list[Announcement]:
        return [one for one in self._known.values() if not one.over and (one.ours or one.other)]

    def _owners(self, calls: Sequence[Made]) -> dict[Announcement, Made]:
        found: dict[Announcement, Made] = {}
        left = _counted(calls)
        for fits in _FITS:
            for one in self._open():
                call = next((call for call in left if one not in found and fits(one, call)), None)
                if call is not None:
                    found[one] = call
                    left.remove(call)
        return found


_FITS: Final[Sequence[Callable[[Announcement, MadeCall], bool]]] = (
    lambda one, call: one.tool == call.name and one.values == call.values,
    lambda one, call: one.tool == call.name,
    lambda one, call: not one.ours,
)
"""Tests whether a call fits an announcement, from the most certain to the weakest."""


def _counted(calls: Sequence[Made]) -> list[Made]:
    """The calls in the order of their numbers; in order of arrival if numbers are missing or equal."""
    numbers = [call.number for call in calls if isinstance(call.number, int)]
    if len(set(numbers)) < len(calls):
        return list(calls)
    return [call for _, call in sorted(zip(numbers, calls, strict=True), key=lambda pair: pair[0])]
