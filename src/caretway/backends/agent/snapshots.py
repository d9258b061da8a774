"""A finished conversation as opaque bytes: its conversation id, last checkpoint and the words that the model was not
given, written and read; and where blobs of earlier turns are found."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from ...core.request import Message, Role, Text, TurnRequest, last_answer
from ...core.turn import Snapshot

MAX_UNREAD_CHARS: Final = 12_000
"""In UTF-8 they fit with the id into the two bytes of a length."""


def write_state(conversation_id: str, checkpoint: bytes, unread: str = "") -> bytes:
    """`unread`: words beside tool results that the model was not given. They stand behind the id, in a line of their
    own."""
    name = f"{conversation_id}\n{unread}" if unread else conversation_id
    head = name.encode("utf-8", "surrogatepass")
    return len(head).to_bytes(2, "big") + head + checkpoint


def read_snapshot(snapshot: Snapshot) -> tuple[str, bytes]:
    """(conversation id, checkpoint), as `write_state` put them together."""
    head, checkpoint = _split(snapshot)
    return head.partition("\n")[0], checkpoint


def with_unread(request: TurnRequest, snapshot: Snapshot) -> TurnRequest:
    """A request that goes on with the snapshot, the words that the model was not given before its new ones."""
    unread = _split(snapshot)[0].partition("\n")[2]
    if not unread:
        return request
    answered = last_answer(request.messages)
    missed = Message(Role.USER, (Text(unread),))
    return replace(request, messages=(*request.messages[:answered], missed, *request.messages[answered:]))


def _split(snapshot: Snapshot) -> tuple[str, bytes]:
    size = 2 + int.from_bytes(snapshot.state[:2], "big")
    return snapshot.state[2:size].decode("utf-8", "surrogatepass"), snapshot.state[size:]


def no_blobs(_: bytes) -> bytes | None:
    """Where the pieces of an earlier turn are found when there was none."""
    return None


def blob_source(snapshot: Snapshot | None) -> Callable[[bytes], bytes | None]:
    """Where the pieces of an earlier turn are found."""
    if snapshot is None:
        return no_blobs
    known: Mapping[bytes, bytes] = snapshot.blobs
    fetch = snapshot.fetch
    return lambda key: known[key] if key in known else fetch(key)
