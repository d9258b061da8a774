"""Answers Cursor's questions to a person (InteractionQuery): refuses in the type of each kind, decides on web search by
setting (off, client, cursor), accepts plans and shows them as text, answers unknown kinds empty. Pure.

A gateway has no person to ask, and a missing answer may stall a run. A setting lets Cursor search the web itself, on
the account's quota.
"""

from collections.abc import Collection, Iterable
from typing import Final, Literal

from ...cursor.wire.messages import pb

WebSearch = Literal["off", "client", "cursor"]

NO_PERSON: Final = "Nobody can be asked: this client answers through an API. Decide yourself and go on."
NO_WEB: Final = "Web search is turned off here. Answer from what you know."
_OF_THE_WEB: Final = ("web", "brows", "internet", "url")


def web_refusal(by: WebSearch, offered: Iterable[str]) -> str:
    """The refusal, with the client's tools that seem to reach the web: `web_search`, `WebFetch`, `browse`, ..."""
    own = sorted(name for name in offered if any(word in name.lower() for word in _OF_THE_WEB))
    if by == "client" and own:
        return f"Cursor's own web search is turned off here. Call one of these tools: {', '.join(own)}."
    return NO_WEB


def plan_text(query: pb.InteractionQuery) -> str:
    """The plan that Cursor wants to show, as paragraphs of the answer; empty for other queries."""
    args = query.create_plan_request_query.args
    paragraphs = [part for part in (args.name, args.overview, args.plan) if part]
    return "\n\n".join(["", *paragraphs, ""]) if paragraphs else ""


def answer_query(query: pb.InteractionQuery, web: WebSearch, offered: Collection[str]) -> bytes:
    """The answer to a query. `offered` names the client's tools. An unknown kind gets an empty response with its id."""
    response = pb.InteractionResponse(id=query.id)
    match query.WhichOneof("query"):
        case "web_search_request_query":
            _web(response.web_search_request_response, web, offered)
        case "web_fetch_request_query":
            _web(response.web_fetch_request_response, web, offered)
        case "switch_mode_request_query":
            response.switch_mode_request_response.rejected.reason = NO_PERSON
        case "ask_question_interaction_query":
            response.ask_question_interaction_response.result.rejected.reason = NO_PERSON
        case "create_plan_request_query":
            response.create_plan_request_response.result.success.SetInParent()  # `plan_text` shows the plan
        case "setup_vm_environment_args":
            response.setup_vm_environment_result.success.SetInParent()  # there is no other answer
        case "pr_management_request_query":
            response.pr_management_result.rejected.reason = NO_PERSON
        case "mcp_auth_request_query":
            response.mcp_auth_request_response.rejected.reason = NO_PERSON
        case "generate_image_request_query":
            response.generate_image_request_response.rejected.reason = NO_PERSON
        case "replace_env_args":
            response.replace_env_result.failure.error_message = NO_PERSON
        case "connect_scm_request_query":
            response.connect_scm_request_response.rejected.reason = NO_PERSON
        case _:
            pass
    return pb.AgentClientMessage(interaction_response=response).SerializeToString()


def _web(
    response: pb.WebSearchRequestResponse | pb.WebFetchRequestResponse, web: WebSearch, offered: Iterable[str]
) -> None:
    if web == "cursor":
        response.approved.SetInParent()
    else:
        response.rejected.reason = web_refusal(web, offered)
