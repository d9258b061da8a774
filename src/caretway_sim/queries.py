"""Simulated interaction queries (web search, questions, plans ...): built by kind, newer kinds by field number; and
replies as text. Tables; pure."""

from typing import Any, Final

from google.protobuf import json_format

from caretway.cursor.wire.messages import pb

from . import raw_fields
from .execs import BadArguments
from .script import NEWER_QUERIES, QUERY_FIELDS

_ANSWERS: Final = dict(NEWER_QUERIES.values())
_ID: Final = 1


def request(kind: str, args: dict[str, Any], number: int, call_id: str) -> pb.InteractionQuery:
    if kind in NEWER_QUERIES:
        if args:
            raise BadArguments(f"the query {kind} takes no arguments")
        return pb.InteractionQuery.FromString(
            raw_fields.number(_ID, number) + raw_fields.message(NEWER_QUERIES[kind][0])
        )
    field, defaults = QUERY_FIELDS[kind]
    message = pb.InteractionQuery(id=number)
    inner = getattr(message, field)
    try:
        json_format.ParseDict({**defaults, **args}, inner.args)
    except json_format.ParseError as wrong:
        raise BadArguments(str(wrong)) from wrong
    carrier = inner if "tool_call_id" in inner.DESCRIPTOR.fields_by_name else inner.args
    carrier.tool_call_id = carrier.tool_call_id or call_id
    return message


FOUND: Final = pb.WebSearchReference(
    title="A simulated page", url="https://example.invalid/simulated", chunk="What the simulated page says."
)
"""What every simulated web search finds."""


def shown(query: pb.InteractionQuery, call_id: str, answer: str = "") -> pb.ToolCall | None:
    """The call that the updates show for a web search, with its result once there is an answer; None for other
    queries."""
    if query.WhichOneof("query") != "web_search_request_query":
        return None
    call = pb.ToolCall(tool_call_id=call_id)
    call.web_search_tool_call.args.CopyFrom(query.web_search_request_query.args)
    result = call.web_search_tool_call.result
    if agreed(answer):
        result.success.references.append(FOUND)
    elif answer:
        result.rejected.reason = answer
    return call


def text(response: pb.InteractionResponse) -> str:
    """`approved`, `rejected: REASON`, `error: ...` or `success`."""
    kind = response.WhichOneof("result")
    if kind is None or response.DESCRIPTOR.fields_by_name[kind].number in _ANSWERS:
        return _newer_text(response.SerializeToString())
    answer = getattr(response, kind)
    if kind in ("ask_question_interaction_response", "create_plan_request_response"):
        answer = answer.result
    which = answer.WhichOneof("result")
    if which is None:
        return "error: the answer is empty"
    value = getattr(answer, which)
    match which:
        case "rejected":
            return f"rejected: {value.reason}"
        case "error":
            return f"error: {value.error_message if hasattr(value, 'error_message') else value.error}"
        case other:
            return str(other)


def agreed(text: str) -> bool:
    return text.startswith(("approved", "success"))


def _newer_text(response: bytes) -> str:
    """The reply to a newer kind as text."""
    for field, meanings in _ANSWERS.items():
        answer = raw_fields.embedded(response, field)
        for number, meaning in meanings.items() if answer is not None else ():
            value = raw_fields.embedded(answer or b"", number)
            if value is not None:
                reason = (raw_fields.embedded(value, 1) or b"").decode("utf-8", "replace")
                return meaning if meaning == "success" else f"{meaning}: {reason}"
    return "error: the answer is empty"
