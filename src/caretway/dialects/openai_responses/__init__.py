"""OpenAI's Responses dialect: decoder, encoder and the store of responses. Errors have the form of the chat dialect."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.tally import estimate_input
from ...core.turn import ModelInfo
from .. import Dialect, DialectRoute, Encoder, Lookup, Operation, ResponseMeta
from ..headers import owners
from ..openai_chat import render_model, render_models
from ..openai_chat.encode import encode_error
from .compaction import SummaryItemEncoder, decode_compaction, render_compaction, render_triggered
from .decode import decode
from .encode import ResponsesEncoder, render
from .store import ResponseStore, Stored, StoreReader
from .tools import echo_of

__all__ = ["ResponseStore", "openai_compaction", "openai_responses"]

_LOOKUPS: Final = (
    DialectRoute(
        "/responses/input_tokens",
        {
            "POST": Operation(
                "countInput", "An estimate of a request's size", "The number of tokens", body="ResponsesRequest"
            )
        },
    ),
    DialectRoute(
        "/responses/{id}",
        {
            "GET": Operation("getResponse", "Look up a stored response", "The response as it was given"),
            "DELETE": Operation("deleteResponse", "Forget a stored response", "Its id, and that it is deleted"),
        },
    ),
    DialectRoute(
        "/responses/{id}/input_items",
        {"GET": Operation("getInput", "List what a response was made from", "The items, the newest first")},
    ),
)

MUCH: Final = 256 * 2**10
"""Bytes of all stored responses. Above this a request that refers to one is decoded in a thread."""
_NAMING: Final = (b'"previous_response_id"', b'"id"', b"\\u")
"""Marks of a reference to a response or an item, possibly escaped."""


_READING: Final = (b'"previous_response_id"', b'"item_reference"')
"""Marks of references that may need a read from a file."""


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
        *_LOOKUPS,
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
    """`/responses/compact`, which has its own form of answer."""

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


# ---- stored responses, without a turn


Owners = Sequence[str]
_json = msgspec.json.Encoder().encode


def lookups_over(store: ResponseStore) -> dict[str, Lookup]:
    return {name: _lookup(action, store) for name, action in _ACTIONS.items()} | {"countInput": _counting(store)}


def _counting(store: ResponseStore) -> Lookup:
    def run(params: Mapping[str, str], headers: Mapping[str, str], body: object) -> bytes:
        """Estimate the size of a request, decoded like a request for a response."""
        tokens = estimate_input(decode(body, headers, store))
        return _json({"object": "response.input_tokens", "input_tokens": tokens})

    return run


def _lookup(action: Callable[[Stored, ResponseStore, Owners], bytes], store: ResponseStore) -> Lookup:
    def run(params: Mapping[str, str], headers: Mapping[str, str], body: object) -> bytes:
        allowed = owners(headers)
        return action(_stored(params["id"], store, allowed), store, allowed)

    return run


def _stored(name: str, store: ResponseStore, allowed: Owners) -> Stored:
    stored = store.find(name, allowed)
    if stored is None:
        raise GatewayError(
            ErrorKind.NOT_FOUND,
            f"Response with id {name[:80]!r} not found.",
            hint="Only the newest responses are kept, and none with 'store': false.",
            param="id",
        )
    return stored


def _show(stored: Stored, store: ResponseStore, allowed: Owners) -> bytes:
    return stored.body


def _list_input(stored: Stored, store: ResponseStore, allowed: Owners) -> bytes:
    """All input items of a response, the newest first, as this API lists by default."""
    items = StoreReader(store, allowed).sources(stored)[::-1]
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {"first_id": None, "last_id": None}
    return _json({"object": "list", "data": items, **ends, "has_more": False})


def _forget(stored: Stored, store: ResponseStore, allowed: Owners) -> bytes:
    store.discard(stored.id, allowed)
    return _json({"id": stored.id, "object": "response", "deleted": True})


_ACTIONS: Final[dict[str, Callable[[Stored, ResponseStore, Owners], bytes]]] = {
    "getResponse": _show,
    "deleteResponse": _forget,
    "getInput": _list_input,
}
