"""OpenAI's Responses: one dialect, assembled from its decoder, its encoder and the store of what it has answered.

The errors are those of the chat dialect: both are OpenAI's.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ...core.errors import GatewayError
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.turn import ModelInfo
from .. import Dialect, Encoder, ResponseMeta
from ..openai_chat.errors import encode_error
from ..openai_chat.models import render_model, render_models
from ..routes import DialectRoute, Lookup, Operation
from .compaction import decode_compaction, render_compaction
from .decode import decode
from .echo import echo_of
from .encode import ResponsesEncoder, render
from .lookups import ROUTES, lookups_over
from .store import ResponseStore
from .triggered import SummaryItemEncoder, render_triggered

__all__ = ["ResponseStore", "openai_compaction", "openai_responses"]

MUCH: Final = 256 * 2**10
"""Bytes of earlier responses that a short request may refer to."""
_NAMING: Final = (b'"previous_response_id"', b'"id"', b"\\u")
"""An earlier response, one of its items, or either of them in escapes."""


_READING: Final = (b'"previous_response_id"', b'"item_reference"')
"""What may have to be read from a file."""


class OpenAIResponses:
    name: str = "openai_responses"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/responses",
            {
                "POST": Operation(
                    "respond",
                    "OpenAI Responses",
                    "The response",
                    body="ResponsesRequest",
                    turn=True,
                    links=("getResponse", "deleteResponse", "getInput"),
                )
            },
            websocket=True,
        ),
        *ROUTES,
    )
    mark: str = ""
    repeats: int = 5

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self.lookups: Mapping[str, Lookup] = lookups_over(store)

    def recalls(self, body: bytes) -> bool:
        if self._store.reads_files and any(mark in body for mark in _READING):
            return True
        return self._store.bytes > MUCH and any(mark in body for mark in _NAMING)

    def forget(self, connection: str) -> None:
        self._store.drop_connection(connection)

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers, self._store)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        encoder = SummaryItemEncoder if echo_of(request).compacts else ResponsesEncoder
        return encoder(request, meta, self._store)

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        whole = render_triggered if echo_of(request).compacts else render
        return whole(reply, request, meta, self._store)

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return encode_error(error)

    def render_models(self, models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
        return render_models(models, created)

    def render_model(self, model: ModelInfo, created: int) -> bytes:
        return render_model(model, created)


class OpenAICompaction(OpenAIResponses):
    """`/responses/compact`: a path with an answer of its own."""

    name: str = "openai_compaction"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/responses/compact",
            {
                "POST": Operation(
                    "compact", "Shorten a conversation", "What stands for it", body="ResponsesRequest", turn=True
                )
            },
        ),
    )
    repeats: int = 1

    def __init__(self, store: ResponseStore) -> None:
        super().__init__(store)
        self.lookups = MappingProxyType({})

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode_compaction(body, headers, self._store)

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        return render_compaction(reply, request, meta)


def openai_responses(store: ResponseStore) -> Dialect:
    """The dialect over one store. Only users of that store can refer to its responses."""
    return OpenAIResponses(store)


def openai_compaction(store: ResponseStore) -> Dialect:
    return OpenAICompaction(store)
