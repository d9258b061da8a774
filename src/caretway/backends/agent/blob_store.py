"""Answers Cursor when it gets and sets blobs (KV requests): a blob that is gone ends the run (TURN_GONE) instead of an
empty answer, and what Cursor may store in one turn is limited. Sans I/O.

Remembered: the pieces of this turn, and how much those take that Cursor stored, ids included; those of earlier turns
are fetched.
"""

from collections.abc import Callable
from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ...cursor.wire.embedding import embed_deep, tag
from ...cursor.wire.messages import pb

PIECE_BYTES: Final = 200
"""What keeping a piece takes beside its own bytes and its id's."""
LARGE_BYTES: Final = 64 * 1024
"""From here on the encoder, which copies a piece several times, takes longer than putting the bytes together."""
_KV: Final = tag(pb.AgentClientMessage, "kv_client_message")
_GOT: Final = tag(pb.KvClientMessage, "get_blob_result")
_DATA: Final = tag(pb.GetBlobResult, "blob_data")


class BlobStore:
    __slots__ = ("_bytes", "_limit", "fetch", "news", "own")

    def __init__(self, own: dict[bytes, bytes], fetch: Callable[[bytes], bytes | None], limit: int) -> None:
        """`own`: what the turn brings with it. `limit`: how much Cursor may add, in bytes."""
        self.own = own
        self.fetch = fetch
        self._bytes = 0
        self._limit = limit
        self.news = 0
        """How many requests were more than storing what is here already: those are no sign of work."""

    def answer(self, kv: pb.KvServerMessage) -> bytes | None:
        """None: nothing that we know was asked. Raises GatewayError when the turn cannot go on."""
        reply = pb.KvClientMessage(id=kv.id)
        match kv.WhichOneof("message"):
            case "get_blob_args":
                self.news += 1
                key = kv.get_blob_args.blob_id
                data = self.own.get(key)
                if data is None:
                    data = self.fetch(key)
                if data is None:
                    # Never an empty answer: the model would go on with a hole in its memory.
                    raise GatewayError(ErrorKind.TURN_GONE, "Cursor asked for a part of the conversation that is gone.")
                if len(data) > LARGE_BYTES:
                    return embed_deep(((b"", _KV), (reply.SerializeToString(), _GOT), (b"", _DATA)), data)
                reply.get_blob_result.blob_data = data
            case "set_blob_args":
                key, data = kv.set_blob_args.blob_id, kv.set_blob_args.blob_data
                before = self.own.get(key)
                self._bytes += len(data) + (PIECE_BYTES + len(key) if before is None else -len(before))
                if self._bytes > self._limit:
                    raise self._too_much()
                if before != data:
                    self.news += 1
                self.own[key] = data
                reply.set_blob_result.SetInParent()
            case _:
                return None
        return pb.AgentClientMessage(kv_client_message=reply).SerializeToString()

    def _too_much(self) -> GatewayError:
        return GatewayError(
            ErrorKind.UPSTREAM_PROTOCOL,
            f"Cursor stores more than {self._limit >> 20} MiB in one turn of this conversation.",
            hint="Start a new conversation.",
        )
