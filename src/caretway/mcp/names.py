"""Exposed names of MCP tools: `mcp__server__tool`, unique, at most 64 characters of [A-Za-z0-9_-]. An illegal or long
name gets a digest that is equal after every start. A table maps names back; they are never parsed."""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

LONGEST: Final = 64
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN_SERVER: Final = re.compile(r"(?!_)(?!.*__)[A-Za-z0-9_-]+(?<!_)")
"""A server name that needs no digest. Without the rule `a_` + `b` and `a` + `_b` would give equal names."""
_DIGEST: Final = 8

Key = tuple[str, str]
"""(server, tool) as the server spells it."""


def exposed_names(keys: Iterable[Key]) -> dict[str, Key]:
    """Exposed name -> key, in the given order, each key once."""
    names: dict[str, Key] = {}
    for key in dict.fromkeys(keys):
        name = _plain(key)
        tries = 0
        while name is None or name in names:
            name = _digested(key, tries)
            tries += 1
        names[name] = key
    return names


def _plain(key: Key) -> str | None:
    server, tool = key
    name = f"mcp__{server}__{tool}"
    safe = _PLAIN_SERVER.fullmatch(server) and tool and not _UNSAFE.search(tool)
    return name if safe and len(name) <= LONGEST else None


def _digested(key: Key, tries: int) -> str:
    server, tool = (_UNSAFE.sub("_", part) for part in key)
    print_ = hashlib.sha256("\0".join((*key, str(tries))).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    room = LONGEST - len("mcp____") - len("_") - _DIGEST
    server = server[: max(room // 3, room - len(tool))]
    return f"mcp__{server}__{tool[: room - len(server)]}_{print_}"
