"""The dashboard's view of clients: how each known client is started or configured, when it was last seen, and recent
mistakes of clients with remedies.
"""

import json
import shlex
import shutil
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from ..cli.clients.edits import applied
from ..cli.clients.table import CLIENTS, ClientProgram
from ..cli.clients.values import (
    FILES,
    KEY_VARIABLE,
    NO_KEY,
    FilePlan,
    LaunchPlan,
    OfferedModel,
    Surroundings,
    Target,
    with_automatic_window,
)
from ..core.turn import ModelInfo
from .notes import NotedRefusal

MAX_MODELS: Final = 200
MAX_SEEN: Final = 100
SEEN_S: Final = 30 * 86_400.0
_SEEN: Final = """SELECT client, max(at), sum(session != 'refused'), sum(session = 'refused') FROM responses
    WHERE at >= ? GROUP BY client ORDER BY max(at) DESC LIMIT ?"""


def offered(models: Sequence[ModelInfo]) -> tuple[OfferedModel, ...]:
    return with_automatic_window(
        OfferedModel(model.id, model.name, model.context_window, bool(model.images), model.reasoning)
        for model in models[:MAX_MODELS]
    )


def target(url: str, models: Sequence[ModelInfo], *, keyed: bool) -> Target:
    listed = offered(models)
    return Target(url, f"${KEY_VARIABLE}" if keyed else NO_KEY, listed, listed[0].id if listed else "", keyed)


def client_row(client: ClientProgram, where: Target, around: Surroundings, seen: dict[str, float]) -> dict[str, Any]:
    return {
        "name": client.name,
        "title": client.title,
        "api": client.api,
        "program": client.program,
        "installed": shutil.which(client.program) is not None,
        "install": client.install,
        "launch": client.starts_with,
        "setup": f"caretway setup {client.name}" if client.setup is not None else None,
        "then": client.then.replace("{model}", where.model),
        "paste": _to_paste(client, where, around),
        "docs": client.page,
        "seen_as": client.seen_as,
        "last_seen": seen.get(client.seen_as) if client.seen_as else None,
    }


def _to_paste(client: ClientProgram, where: Target, around: Surroundings) -> list[dict[str, str]]:
    if client.setup is not None:
        return [_file(plan, around) for plan in client.setup(where, around)]
    return _by_hand(client, client.launch(where))


def _file(plan: FilePlan, around: Surroundings) -> dict[str, str]:
    """What `setup` would write into an empty file: the user's own entries are not shown."""
    place = plan.path
    below = place.is_relative_to(around.home)
    return {"title": f"~/{place.relative_to(around.home)}" if below else str(place), "text": applied(plan, None)}


def _by_hand(client: ClientProgram, plan: LaunchPlan) -> list[dict[str, str]]:
    """The variables and flags of a client whose settings cannot be extended."""
    lines = [f"export {name}={_quoted(value)}" for name, value in plan.environment.items() if FILES not in value]
    words = [client.program, *(word for word in plan.arguments if FILES not in word)]
    pieces = [{"title": "terminal", "text": "\n".join([*lines, shlex.join(words)])}]
    return pieces + [{"title": name, "text": _indented(text)} for name, text in plan.files.items()]


def _quoted(value: str) -> str:
    """Quotes a value for a shell in which a variable holds the key."""
    return f'"{value}"' if value == f"${KEY_VARIABLE}" else shlex.quote(value)


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def seen_clients(db: sqlite3.Connection, now: float) -> list[dict[str, Any]]:
    rows = db.execute(_SEEN, (now - SEEN_S, MAX_SEEN)).fetchall()
    return [
        {"client": client, "last_at": at, "responses": responses, "refused": refused, "mistakes": []}
        for client, at, responses, refused in rows
    ]


def with_mistakes(seen: list[dict[str, Any]], refused: Sequence[NotedRefusal]) -> list[dict[str, Any]]:
    """Adds mistakes, including those of clients that never got an answer."""
    by_name = {row["client"]: row for row in seen}
    for one in refused:
        row = by_name.get(one.client)
        if row is None:
            row = {"client": one.client, "last_at": one.at, "responses": 0, "refused": 0, "mistakes": []}
            by_name[one.client] = row
        row["last_at"] = max(row["last_at"], one.at)
        row["mistakes"].append(
            {
                "what": f"{one.method} {one.path}",
                "status": one.status,
                "code": one.code,
                "count": one.count,
                "last_at": one.at,
                "says": f"{one.message} {one.hint}".strip(),
            }
        )
    return sorted(by_name.values(), key=lambda row: -row["last_at"])[:MAX_SEEN]


def all_clients(where: Target, around: Surroundings, seen: dict[str, float]) -> list[dict[str, Any]]:
    return [client_row(client, where, around, seen) for client in CLIENTS]
