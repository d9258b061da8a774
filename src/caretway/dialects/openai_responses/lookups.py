"""Requests about earlier responses: look one up, list its input, delete it. No turn is needed."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ..fields import unsupported
from .store import ResponseStore, Stored

PREFIXES: Final = ("/v1/responses/", "/responses/")

_json = msgspec.json.Encoder().encode


def run_errand(method: str, path: str, store: ResponseStore) -> tuple[int, bytes] | None:
    """`/v1/responses/{id}[/what]`. None: no such operation."""
    rest = next((path.removeprefix(prefix) for prefix in PREFIXES if path.startswith(prefix)), "")
    name, _, what = rest.partition("/")
    action = _ACTIONS.get((method, what))
    if action is None or not name:
        return None
    name = unquote(name)
    stored = store.find(name)
    if stored is None:
        raise GatewayError(
            ErrorKind.NOT_FOUND,
            f"Response with id {name[:80]!r} not found.",
            hint="Responses are stored for a limited time, unless 'store' is false.",
            param="id",
        )
    return 200, action(stored, store)


def _show(stored: Stored, store: ResponseStore) -> bytes:
    return stored.body


def _list_input(stored: Stored, store: ResponseStore) -> bytes:
    """Everything the answer was made from, the newest first, as this API lists by default."""
    chain = store.chain(stored.id) or [stored]
    items: list[Any] = [item for one in chain[:-1] for item in (*one.input_items(), *one.output_items())]
    items = [*items, *chain[-1].input_items()][::-1]
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {"first_id": None, "last_id": None}
    return _json({"object": "list", "data": items, **ends, "has_more": False})


def _forget(stored: Stored, store: ResponseStore) -> bytes:
    store.discard(stored.id)
    return _json({"id": stored.id, "object": "response", "deleted": True})


def _cancel(stored: Stored, store: ResponseStore) -> bytes:
    raise unsupported("id", "Only responses made in the background can be cancelled, and there are none here.")


_ACTIONS: Final[dict[tuple[str, str], Callable[[Stored, ResponseStore], bytes]]] = {
    ("GET", ""): _show,
    ("DELETE", ""): _forget,
    ("GET", "input_items"): _list_input,
    ("POST", "cancel"): _cancel,
}
