"""Whether a client has compacted its conversation: the same session by the client's own name, the same tools, a shorter
history that begins with other words. Only the reason that is told depends on it, and what a conversation is counted as.

A client that goes back to an earlier point also sends a shorter history, but one that begins as before. Nothing is
resumed by a name. Kept in memory: the newest few thousand sessions, of each a count and three hashes.
"""

from collections import OrderedDict
from typing import Final

from msgspec import Struct

from ..core.request import Message, Role, TurnRequest

MAX_REMEMBERED: Final = 4096
OPENING: Final = 3
"""How many messages are compared."""
LONG: Final = 4
"""Messages of a conversation that is worth it: a title that was asked for is not one."""
SUMMARY_CHARS: Final = 400
"""A single message that is shorter is a prompt that was written anew, not the summary of a conversation."""
REASON: Final = "compacted"


class _Seen(Struct, frozen=True):
    messages: int
    opening: tuple[int, ...]
    conversation: str


class SessionNames:
    """What was last said in each session that a client has named."""

    def __init__(self) -> None:
        self._seen: OrderedDict[int, _Seen] = OrderedDict()

    def compacted(self, key: str, request: TurnRequest) -> str | None:
        """The conversation that this request has compacted; None when it has not."""
        seen = self._seen.get(_place(key, request)) if request.hint else None
        if seen is None or seen.messages < LONG:
            return None
        said = _said(request)
        if len(said) >= seen.messages:
            return None
        if len(said) == 1 and len(said[0].text) < SUMMARY_CHARS:
            return None
        compared = max(1, min(OPENING, len(said) - 1))
        return None if _hashes(said[:compared]) == seen.opening[:compared] else seen.conversation

    def remember(self, key: str, request: TurnRequest, conversation: str) -> None:
        if not request.hint:
            return
        said = _said(request)
        place = _place(key, request)
        self._seen[place] = _Seen(len(said), _hashes(said[:OPENING]), conversation)
        self._seen.move_to_end(place)
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)


def _place(key: str, request: TurnRequest) -> int:
    """Side calls of a session (titles, summaries) have other tools, or none."""
    return hash((key, request.hint, tuple([tool.name for tool in request.tools])))


def _said(request: TurnRequest) -> list[Message]:
    return [message for message in request.messages if message.role is not Role.SYSTEM]


def _hashes(messages: list[Message]) -> tuple[int, ...]:
    return tuple([hash((message.role, message.text)) for message in messages])
