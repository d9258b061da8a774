"""Which conversation a new run belongs to, for those who account for it: an opaque id. A continued one keeps
that of its snapshot, a replayed one that of the newest conversation that opened alike, a fresh one gets a new id.

Only counting depends on it: nothing is resumed, shown or shared by this id. What a prompt said is not kept, only its
hash, and only in memory: a conversation that is replayed after a restart counts as a new one.
"""

from collections import OrderedDict
from os import urandom
from typing import Final

from ..core.request import Role, TurnRequest

MAX_REMEMBERED: Final = 4096
OPENING_CHARS: Final = 4096
"""What of the first words is looked at."""


class ConversationIds:
    def __init__(self) -> None:
        self._known: OrderedDict[int, str] = OrderedDict()

    def fresh(self, key: str, request: TurnRequest) -> str:
        return self._remember(_opening(key, request), urandom(6).hex())

    def replayed(self, key: str, request: TurnRequest) -> str:
        opening = _opening(key, request)
        return self._remember(opening, self._known.get(opening) or urandom(6).hex())

    def _remember(self, opening: int, conversation: str) -> str:
        known = self._known
        known[opening] = conversation
        known.move_to_end(opening)
        if len(known) > MAX_REMEMBERED:
            known.popitem(last=False)
        return conversation


def _opening(key: str, request: TurnRequest) -> int:
    """The first words of the user; hashes of texts have a new salt in each process."""
    for message in request.messages:
        if message.role is Role.USER:
            words = message.text
            return hash((key, words[:OPENING_CHARS], len(words)))
    return hash(key)
