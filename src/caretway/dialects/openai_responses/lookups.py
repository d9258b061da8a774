"""Stored responses by id, without a turn: GET one, list its input items (the newest first), DELETE; 404, also for those
of another key. And the estimated size of a request (`input_tokens`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.estimate import estimate_input
from ..headers import owners
from ..routes import DialectRoute, Lookup, Operation
from .decode import decode
from .store import ResponseStore, Stored, StoreReader

ROUTES: Final = (
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

Owners = Sequence[str]
_json = msgspec.json.Encoder().encode


def lookups_over(store: ResponseStore) -> dict[str, Lookup]:
    return {name: _lookup(action, store) for name, action in _ACTIONS.items()} | {"countInput": _counting(store)}


def _counting(store: ResponseStore) -> Lookup:
    def run(params: Mapping[str, str], headers: Mapping[str, str], body: object) -> bytes:
        """How large the request is, by the same decoder that would answer it."""
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
    """Everything the answer was made from, the newest first, as this API lists by default."""
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
