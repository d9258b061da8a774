"""What Cursor asks a person gets an answer in the type that belongs to it; only the web may be allowed."""

from typing import Any

import pytest

from caretway.backends.builtin_tools.queries import (
    MAX_SEARCHES,
    NO_PERSON,
    NO_WEB,
    WebSearchBy,
    WebSearches,
    answer_query,
    plan_text,
    web_rule,
)
from caretway.core.events import WebSearch, WebSource
from caretway.cursor.wire.messages import pb

ASKED: dict[str, tuple[str, str]] = {
    "switch_mode_request_query": ("switch_mode_request_response", "rejected.reason"),
    "ask_question_interaction_query": ("ask_question_interaction_response", "result.rejected.reason"),
    "pr_management_request_query": ("pr_management_result", "rejected.reason"),
    "mcp_auth_request_query": ("mcp_auth_request_response", "rejected.reason"),
    "generate_image_request_query": ("generate_image_request_response", "rejected.reason"),
    "replace_env_args": ("replace_env_result", "failure.error_message"),
    "connect_scm_request_query": ("connect_scm_request_response", "rejected.reason"),
}


def answered(kind: str, web: WebSearchBy = "client", *offered: str) -> pb.InteractionResponse:
    query = pb.InteractionQuery(id=7)
    getattr(query, kind).SetInParent()
    return pb.AgentClientMessage.FromString(answer_query(query, web, offered)).interaction_response


@pytest.mark.parametrize("kind", ASKED)
def test_nobody_is_here_to_ask(kind: str) -> None:
    response, path = answered(kind), ASKED[kind]
    assert (response.id, response.WhichOneof("result")) == (7, path[0])
    value: Any = getattr(response, path[0])
    for name in path[1].split("."):
        value = getattr(value, name)
    assert value == NO_PERSON


def test_a_machine_has_only_one_answer() -> None:
    assert answered("setup_vm_environment_args").setup_vm_environment_result.WhichOneof("result") == "success"


def test_every_query_of_the_schema_is_answered() -> None:
    for field in pb.InteractionQuery.DESCRIPTOR.oneofs_by_name["query"].fields:
        response = answered(field.name)
        kind = response.WhichOneof("result")
        assert kind, field.name
        assert response.DESCRIPTOR.fields_by_name[kind].number == field.number
    unknown = pb.InteractionQuery.FromString(b"\x08\x07\xfa\x06\x00")
    assert (
        answer_query(unknown, "off", ())
        == pb.AgentClientMessage(interaction_response=pb.InteractionResponse(id=7)).SerializeToString()
    )


WEB: list[tuple[WebSearchBy, tuple[str, ...], str]] = [
    ("off", ("WebSearch",), NO_WEB),
    ("client", ("bash", "grep_search"), NO_WEB),
    ("client", ("bash", "WebSearch", "fetch_url"), "Call one of these tools: WebSearch, fetch_url."),
    ("cursor", ("WebSearch",), ""),
]


@pytest.mark.parametrize("kind", ["web_search_request", "web_fetch_request"])
@pytest.mark.parametrize(("by", "offered", "reason"), WEB)
def test_who_searches_the_web(kind: str, by: WebSearchBy, offered: tuple[str, ...], reason: str) -> None:
    answer = getattr(answered(f"{kind}_query", by, *offered), f"{kind}_response")
    assert answer.WhichOneof("result") == ("rejected" if reason else "approved")
    assert answer.rejected.reason.endswith(reason)


def test_a_plan_is_taken_and_shown() -> None:
    query = pb.InteractionQuery(id=7)
    query.create_plan_request_query.args.name = "N"
    query.create_plan_request_query.args.plan = "1. P"
    message = pb.AgentClientMessage.FromString(answer_query(query, "off", ()))
    assert message.interaction_response.create_plan_request_response.result.HasField("success")
    assert plan_text(query) == "\n\nN\n\n1. P\n\n"
    assert plan_text(pb.InteractionQuery(id=8)) == ""


def test_the_searches_of_a_turn() -> None:
    searches = WebSearches()
    done = pb.WebSearchToolCall(args=pb.WebSearchArgs(search_term="q"))
    assert searches.begun("a", "") == ()  # the model is still writing it
    assert searches.begun("a", "q") == (WebSearch("0", "q"),)
    assert searches.begun("a", "q") == ()
    done.result.success.references.add(title="T", url="https://t", chunk="c" * 200)
    done.result.success.references.add(title="no address")
    assert searches.over("a", done) == (WebSearch("0", "q", (WebSource("https://t", "T", "c" * 150),)),)
    assert searches.over("a", done) == ()
    done.result.error.error = "no"
    assert searches.over("b", done) == (WebSearch("1", "q"), WebSearch("1", "q", (), failed=True))
    assert [bool(searches.begun(f"{number}", "q")) for number in range(MAX_SEARCHES)].count(True) == MAX_SEARCHES - 2


@pytest.mark.parametrize(
    ("by", "offered", "rule"), [(by, offered, bool(reason == NO_WEB)) for by, offered, reason in WEB]
)
def test_a_model_is_told_that_nobody_searches(by: WebSearchBy, offered: tuple[str, ...], rule: bool) -> None:
    assert bool(web_rule(by, offered)) is rule
