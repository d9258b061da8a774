"""The dashboard's API: its paths below `/caretway/v1` and their descriptions for `/openapi.json`.
`api/dashboard_access.py` checks access before a handler runs; `tabs` makes the answers.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from ..api.routes import HttpCall, Route
from ..api.tenant import AccountUse
from ..dialects import Operation
from .parts import PageApi

BASE: Final = "/caretway/v1"
_encode: Final = msgspec.json.Encoder().encode


def routes(page: PageApi | None) -> tuple[Route, ...]:
    """The routes. `page` None makes them for the description only."""
    return tuple(
        Route(
            path,
            {method: operation for method, (operation, _) in methods.items()},
            partial(_dispatch, page, {method: handler for method, (_, handler) in methods.items()}),
            prefixed=False,
            account=AccountUse.NONE,
            keyless=frozenset({*methods, "HEAD"}) if path in _KEYLESS else frozenset(),
            dialect="openai_chat" if path == TRY else "",
            page=True,
        )
        for path, methods in _ROWS.items()
    )


Handler = Callable[[PageApi, HttpCall], Awaitable[object]]
"""Returns the value to send as JSON, or None if it has sent the response itself."""


async def _dispatch(page: PageApi | None, handlers: Mapping[str, str], call: HttpCall) -> None:
    from . import tabs  # imported when a dashboard is opened

    assert page is not None
    method = "GET" if call.request.method == "HEAD" else call.request.method
    handler: Handler = getattr(tabs, handlers[method])
    answer = await handler(page, call)
    if answer is not None:
        call.response.send(200, _encode(answer), [*call.headers, tabs.NOT_KEPT])


# ---- the table

TRY: Final = f"{BASE}/try"
_KEYLESS: Final = frozenset({"/page/{name}", f"{BASE}/session"})


def _get(name: str, summary: str, answers: str) -> Operation:
    return Operation(name, summary, answers)


_ROWS: Final[dict[str, dict[str, tuple[Operation, str]]]] = {
    "/page/{name}": {"GET": (Operation("pageFile", "A file of the dashboard", "The file", schema=""), "file")},
    f"{BASE}/session": {
        "GET": (
            Operation("pageSession", "Whether you have access to the dashboard", "The CSRF token"),
            "seen_session",
        ),
        "POST": (Operation("signIn", "Sign in to the dashboard with a key", "A cookie", body="PageKey"), "sign_in"),
        "DELETE": (Operation("signOut", "Sign out of the dashboard", "The cookie is gone"), "sign_out"),
    },
    f"{BASE}/now": {"GET": (_get("now", "What the gateway does now", "Backend, account, live turns"), "now")},
    f"{BASE}/overview": {
        "GET": (_get("overview", "The last hour, the newest answers, today's cost", "By minute"), "overview")
    },
    f"{BASE}/events": {
        "GET": (Operation("pageEvents", "Changes, as server-sent events", "The stream", schema=""), "events")
    },
    f"{BASE}/turns/{{id}}": {
        "DELETE": (_get("cancelTurn", "Cancel a live turn, by its id or a call's", "It is cancelled"), "cancel")
    },
    f"{BASE}/conversations": {
        "GET": (_get("conversations", "Conversations of the ledger", "The list, the newest first"), "conversations")
    },
    f"{BASE}/conversations/{{id}}": {
        "GET": (_get("conversation", "One conversation, step by step", "Its steps and runs"), "conversation"),
        "DELETE": (_get("forgetConversation", "Forget a conversation", "How much was forgotten"), "forget"),
    },
    f"{BASE}/usage": {
        "GET": (_get("usage", "What was used, and how much of the budgets", "Totals and budgets"), "usage")
    },
    f"{BASE}/usage/export": {"GET": (Operation("usageExport", "The same totals as CSV", "Lines", schema=""), "export")},
    f"{BASE}/clients": {"GET": (_get("clients", "Known clients, and those seen lately", "Both lists"), "clients")},
    f"{BASE}/models": {"GET": (_get("pageModels", "Models, aliases, what was asked for", "The list"), "models")},
    f"{BASE}/health": {"GET": (_get("pageHealth", "What is found, refused, recovered", "Findings"), "health")},
    f"{BASE}/mcp/{{name}}/restart": {
        "POST": (_get("restartServer", "Start an MCP server again", "It is being started"), "restart")
    },
    f"{BASE}/settings": {"GET": (_get("settings", "Settings, and where they come from", "All of them"), "settings")},
    f"{BASE}/settings/{{name}}": {
        "PUT": (Operation("changeSetting", "Change aliases or budgets", "The setting", body="PageValue"), "change")
    },
    f"{BASE}/content": {
        "GET": (_get("content", "Whether content is kept", "The switch"), "content"),
        "PUT": (Operation("keepContent", "Keep content, or not", "The switch", body="PageKeep"), "content"),
    },
    f"{BASE}/record": {
        "GET": (_get("recordings", "Recorded conversations", "The list, and until when"), "record"),
        "PUT": (Operation("record", "Record for some seconds; 0: not", "The same", body="PageSeconds"), "record"),
    },
    f"{BASE}/record/{{id}}": {
        "GET": (Operation("script", "A recorded conversation as a simulator script", "Lines", schema=""), "script")
    },
    TRY: {
        "POST": (
            Operation("try", "Ask a model from the dashboard", "A chat completion", body="ChatRequest", turn=True),
            "playground",
        )
    },
}
