"""A stored response of the Responses API, shared by the dialect and the response file. Values only; the JSON is opaque
here.
"""

from msgspec import Struct


class StoredResponse(Struct, frozen=True, gc=False):
    id: str
    owner: str
    """The id of a key, or the name of a connection."""
    body: bytes
    """The response object as it was sent."""
    input: bytes
    """The input items of its request, each with an id, without items of earlier responses."""
    previous: str | None = None
    item_ids: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input)
