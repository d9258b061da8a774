"""Answers Cursor's questions to a person (InteractionQuery): refuses in the type of each kind, decides on web search by
setting (off, client, cursor), accepts plans and shows them as text, answers unknown kinds empty. Pure.

A gateway has no person to ask, and a missing answer may stall a run. A setting lets Cursor search the web itself, on
the account's quota.
"""

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Final, Literal

from ...core.events import WebSearch, WebSource
from ...cursor.wire.messages import pb

WebSearchBy = Literal["off", "client", "cursor"]

NO_PERSON: Final = "Nobody can be asked: this client answers through an API. Decide yourself and go on."
NO_WEB: Final = "Web search is turned off here. Answer from what you know."
NO_WEB_SEARCH: Final = "You have no web search in this conversation. If you are asked for one, say so."
_OF_THE_WEB: Final = ("web", "brows", "internet", "url")


_REFUSALS: Final = {
    "switch_mode_request_query": "switch_mode_request_response.rejected.reason",
    "ask_question_interaction_query": "ask_question_interaction_response.result.rejected.reason",
    "pr_management_request_query": "pr_management_result.rejected.reason",
    "mcp_auth_request_query": "mcp_auth_request_response.rejected.reason",
    "generate_image_request_query": "generate_image_request_response.rejected.reason",
    "replace_env_args": "replace_env_result.failure.error_message",
    "connect_scm_request_query": "connect_scm_request_response.rejected.reason",
}
"""Query -> the field of the response that refuses it."""


def web_refusal(by: WebSearchBy, offered: Iterable[str]) -> str:
    """The refusal, with the client's tools that seem to reach the web: `web_search`, `WebFetch`, `browse`, ..."""
    own = sorted(name for name in offered if any(word in name.lower() for word in _OF_THE_WEB))
    if by == "client" and own:
        return f"Cursor's own web search is turned off here. Call one of these tools: {', '.join(own)}."
    return NO_WEB


def web_rule(by: WebSearchBy, offered: Iterable[str]) -> str:
    """The rule for the model if the client offers its provider's web search, but neither Cursor nor a client's tool can
    search; otherwise empty."""
    return NO_WEB_SEARCH if by != "cursor" and web_refusal(by, offered) == NO_WEB else ""


def plan_text(query: pb.InteractionQuery) -> str:
    """The plan that Cursor wants to show, as paragraphs of the answer; empty for other queries."""
    args = query.create_plan_request_query.args
    paragraphs = [part for part in (args.name, args.overview, args.plan) if part]
    return "\n\n".join(["", *paragraphs, ""]) if paragraphs else ""


def answer_query(query: pb.InteractionQuery, web: WebSearchBy, offered: Collection[str]) -> bytes:
    """The answer to a query. `offered` names the client's tools. An unknown kind gets an empty response with its id."""
    response = pb.InteractionResponse(id=query.id)
    match query.WhichOneof("query"):
        case "web_search_request_query":
            _web(response.web_search_request_response, web, offered)
        case "web_fetch_request_query":
            _web(response.web_fetch_request_response, web, offered)
        case "create_plan_request_query":
            response.create_plan_request_response.result.success.SetInParent()  # `plan_text` shows the plan
        case "setup_vm_environment_args":
            response.setup_vm_environment_result.success.SetInParent()  # there is no other answer
        case str(kind) if kind in _REFUSALS:
            refusal, _, reason = _REFUSALS[kind].rpartition(".")
            setattr(attrgetter(refusal)(response), reason, NO_PERSON)
        case _:
            pass
    return pb.AgentClientMessage(interaction_response=response).SerializeToString()


def _web(
    response: pb.WebSearchRequestResponse | pb.WebFetchRequestResponse, web: WebSearchBy, offered: Iterable[str]
) -> None:
    if web == "cursor":
        response.approved.SetInParent()
    else:
        response.rejected.reason = web_refusal(web, offered)


# ---- The web searches that Cursor makes itself, as events for the client.

MAX_SEARCHES: Final = 64
"""Searches of one turn that are reported."""
MAX_SOURCES: Final = 64
"""Pages of one search."""
_TEXT_CHARS: Final = 150
"""Characters of a page's text; Anthropic's citations have as many."""


class WebSearches:
    """The searches of one turn by their call ids."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, WebSearch] = {}

    def begun(self, call_id: str, query: str) -> Sequence[WebSearch]:
        """The event, unless the search is known already or its query is not written yet."""
        if not query or call_id in self._known or len(self._known) == MAX_SEARCHES:
            return ()
        self._known[call_id] = search = WebSearch(f"{len(self._known)}", query)
        return (search,)

    def over(self, call_id: str, call: pb.WebSearchToolCall) -> Sequence[WebSearch]:
        """The events of a search that is over, which may not have been reported before."""
        first = self.begun(call_id, call.args.search_term)
        search = self._known.get(call_id)
        if search is None or search.found is not None:
            return ()
        pages = call.result.success.references[:MAX_SOURCES]
        found = tuple([WebSource(page.url, page.title, page.chunk[:_TEXT_CHARS]) for page in pages if page.url])
        failed = call.result.WhichOneof("result") in ("error", "rejected")
        self._known[call_id] = search = WebSearch(search.id, search.query, found, failed)
        return (*first, search)
