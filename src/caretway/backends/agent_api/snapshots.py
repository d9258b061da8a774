"""A finished conversation as opaque bytes: its conversation id and last checkpoint, written and read; and where blobs
of earlier turns are found."""

from collections.abc import Callable, Mapping

from ...core.turn import Snapshot


def write_state(conversation_id: str, checkpoint: bytes) -> bytes:
    name = conversation_id.encode()
    return len(name).to_bytes(2, "big") + name + checkpoint


def read_snapshot(snapshot: Snapshot) -> tuple[str, bytes]:
    """(conversation id, checkpoint), as `write_state` put them together."""
    size = int.from_bytes(snapshot.state[:2], "big")
    return snapshot.state[2 : 2 + size].decode(), snapshot.state[2 + size :]


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
