"""Answers to what an ACP agent asks its client: permissions by setting, questions skipped, plans cancelled, unknown
methods refused. Pure.

Nobody sits in front of a gateway.
"""

from collections.abc import Mapping
from typing import Any, Final

from .acp_rpc import UNKNOWN_METHOD, RpcError

EXTENSION: Final = "cursor/"
"""What Cursor's methods begin with that are its own."""
_ALLOW: Final = ("allow_once", "allow_always")
_REJECT: Final = ("reject_once", "reject_always")

_FIXED: Final[Mapping[str, object]] = {
    "cursor/ask_question": {"outcome": {"outcome": "skipped"}},
    "cursor/create_plan": {"outcome": {"outcome": "cancelled"}},
}


def answer(method: str, params: Mapping[str, Any], *, allow: bool) -> object:
    """The result; raises RpcError for what a client of ours cannot do."""
    if method == "session/request_permission":
        return {"outcome": _permission(params.get("options"), _ALLOW if allow else _REJECT)}
    if method in _FIXED:
        return _FIXED[method]
    if method.startswith(EXTENSION):
        return {}  # sent like notifications, with an id that wants an answer
    raise RpcError(UNKNOWN_METHOD, f"{method} is not offered by this client")


def calls_server(params: Mapping[str, Any], server: str) -> bool:
    """A permission is asked for a call of this MCP server. Commands and edits are of other kinds, whatever they are
    called."""
    call = params.get("toolCall")
    if not server or not isinstance(call, dict) or call.get("kind") not in (None, "other"):
        return False
    return str(call.get("title") or "").startswith((f"{server}-", f"{server}:"))


def _permission(options: object, kinds: tuple[str, ...]) -> Mapping[str, str]:
    offered = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    for kind in kinds:
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": "selected", "optionId": option["optionId"]}
    return {"outcome": "cancelled"}
