"""What the session engine needs of a store of finished conversations: this gateway's own file, or one that several
share.
"""

from typing import Protocol

from ..core.turn import Snapshot


class ConversationStore(Protocol):
    """Finished conversations, by the fingerprint of their transcript."""

    def recall(self, key: bytes) -> Snapshot | None: ...

    def remember(self, key: bytes, snapshot: Snapshot) -> None: ...

    @property
    def settled(self) -> bool:
        """What was remembered can be recalled."""
        ...

    async def settle(self) -> None: ...

    @property
    def shared(self) -> bool:
        """Other gateways keep conversations in it too: then `bring` comes before `recall`."""
        ...

    async def bring(self, key: bytes) -> None:
        """From here on it can be recalled, if any gateway has kept it."""
        ...


class StoredConversations(ConversationStore, Protocol):
    """The same, for its owner, who opens and closes it."""

    async def forget(self, conversation: str) -> int:
        """How many snapshots of it there were."""
        ...

    async def aclose(self) -> None: ...
