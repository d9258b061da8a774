"""The pieces of a conversation that Cursor keeps with us: asked for and stored by their ids, sans I/O.

In: KV requests. Out: the message that answers one. Remembered: the pieces of this turn, and how much they take; those
of earlier turns are fetched.
"""

from collections.abc import Callable

from ...core.errors import ErrorKind, GatewayError
from ...wire.messages import pb


class BlobDesk:
    __slots__ = ("_bytes", "_limit", "fetch", "own")

    def __init__(self, own: dict[bytes, bytes], fetch: Callable[[bytes], bytes | None], limit: int) -> None:
        self.own = own
        self.fetch = fetch
        self._bytes = sum(map(len, own.values())) if own else 0
        self._limit = limit

    def answer(self, kv: pb.KvServerMessage) -> bytes | None:
        """None: nothing that we know was asked. Raises GatewayError when the turn cannot go on."""
        reply = pb.KvClientMessage(id=kv.id)
        match kv.WhichOneof("message"):
            case "get_blob_args":
                key = kv.get_blob_args.blob_id
                data = self.own.get(key)
                if data is None:
                    data = self.fetch(key)
                if data is None:
                    # Never an empty answer: the model would go on with a hole in its memory.
                    raise GatewayError(ErrorKind.TURN_GONE, "Cursor asked for a part of the conversation that is gone.")
                reply.get_blob_result.blob_data = data
            case "set_blob_args":
                data = kv.set_blob_args.blob_data
                self._bytes += len(data)
                if self._bytes > self._limit:
                    raise GatewayError(
                        ErrorKind.UPSTREAM_PROTOCOL, "Cursor stores more in this conversation than is allowed."
                    )
                self.own[kv.set_blob_args.blob_id] = data
                reply.set_blob_result.SetInParent()
            case _:
                return None
        return pb.AgentClientMessage(kv_client_message=reply).SerializeToString()
