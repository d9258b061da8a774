"""A finished response of the Responses API as it is stored, between its dialect and the file that keeps it. Values
only; nobody here reads the JSON.
"""

from msgspec import Struct


class StoredResponse(Struct, frozen=True, gc=False):
    id: str
    owner: str
    """The id of a key, or the name of a connection."""
    body: bytes
    """The response object as it was sent."""
    input: bytes
    """The items this response was asked with, every one with an id; without those of earlier responses."""
    previous: str | None = None
    item_ids: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input)
