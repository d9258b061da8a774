"""Records as spans of OpenTelemetry: the name, kind, attributes, status and times of the span of a request, of its
answer (`chat`), of a run (`invoke_agent`) and of a tool step (`execute_tool`). Pure; knows no SDK.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ...core.events import RunUsage, Usage
from ...core.records import RefusedRequest, RunRecord, TurnRecord
from . import conventions as names

Value = str | bool | int | float | Sequence[str]
Kind = Literal["SERVER", "CLIENT", "INTERNAL"]

MAX_NAME_CHARS: Final = 128
"""What of a name that a client made up stands in a span's name."""
PAUSED: Final = "paused"
_FINISHED: Final = {
    "end": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "refusal": "content_filter",
    PAUSED: "tool_call",
}
"""How an answer ended -> the convention's word. Everything else is an error."""
_GOOD_RUNS: Final = frozenset({"ended", "paused", "stopped", "hung_up", "expired", "evicted", "shutdown"})
"""What is no failure of the run: it ended, or somebody else ended it."""
_UNKNOWN: Final = Usage()


@dataclass(frozen=True, slots=True)
class ServedPlaces:
    """Where the gateway is asked for answers."""

    routes: Mapping[str, str]
    """By the name of the API."""
    scheme: str = "http"


@dataclass(frozen=True, slots=True)
class SpanFacts:
    name: str
    kind: Kind
    attributes: Mapping[str, Value]
    start: float
    """Unix seconds."""
    end: float
    error: str = ""
    """Why its status is an error; empty: it is none."""


def request_span(record: TurnRecord, served: ServedPlaces) -> SpanFacts:
    error = record.error if record.status >= 500 else ""
    more: dict[str, Value] = {names.CONVERSATION: record.conversation, names.USER_AGENT: record.caller.client}
    return SpanFacts(
        name=f"POST {served.routes[record.dialect]}",
        kind="SERVER",
        attributes=_server("POST", record.dialect, served, record.status) | _told(more) | _who(record) | _failed(error),
        start=record.started_at,
        end=_ended(record),
        error=error,
    )


def refused_span(record: RefusedRequest, served: ServedPlaces) -> SpanFacts:
    """A request that no model was asked for. Only its end is known."""
    error = (record.code or record.kind) if record.status >= 500 else ""
    who: dict[str, Value] = {names.KEY: record.caller.key, names.REQUEST_ID: record.request_id}
    who |= {names.REQUEST_MODEL: record.model, names.USER_AGENT: record.caller.client}
    return SpanFacts(
        name=f"{record.method} {served.routes[record.dialect]}",
        kind="SERVER",
        attributes=_server(record.method, record.dialect, served, record.status)
        | _told(who)
        | _failed(record.code or record.kind),  # a 4xx is no error of the server, and its reason is told all the same
        start=record.at,
        end=record.at,
        error=error,
    )


def answer_span(record: TurnRecord) -> SpanFacts:
    finished = _FINISHED.get(record.outcome)
    error = "" if finished is not None else record.error or record.outcome
    usage = record.usage or _UNKNOWN
    attributes: dict[str, Value] = {
        **_operation(names.CHAT, record.asked or record.model, record.conversation),
        names.RESPONSE_MODEL: record.variant or record.model,
        names.FINISH_REASONS: [finished or "error"],
        names.REQUEST_STREAM: record.stream,
        names.SESSION: record.session,
        names.SESSION_REASON: record.reason,
        names.ESTIMATED: usage.estimated,
        names.RUN: record.run,
        **_tokens(usage),
    }
    if record.stream and record.first_event_ms is not None:
        attributes[names.FIRST_CHUNK] = record.first_event_ms / 1000
    if record.content is not None:
        attributes[names.INPUT_MESSAGES], attributes[names.OUTPUT_MESSAGES] = record.content
    return SpanFacts(
        name=f"{names.CHAT} {short(record.asked or record.model)}",
        kind="CLIENT",
        attributes=attributes | _who(record) | _failed(error),
        start=record.started_at,
        end=_ended(record),
        error=error,
    )


def opened_run(record: TurnRecord) -> SpanFacts:
    """A run that goes on after its first response."""
    attributes = _operation(names.INVOKE_AGENT, record.asked or record.model, record.conversation)
    attributes |= {names.AGENT_NAME: names.AGENT, names.RUN: record.run}
    start = record.started_at
    return SpanFacts(_RUN_NAME, "CLIENT", attributes | _who(record, request=False), start, start)


_RUN_NAME: Final = f"{names.INVOKE_AGENT} {names.AGENT}"


def run_span(record: RunRecord) -> SpanFacts:
    error = "" if record.outcome in _GOOD_RUNS else record.error or record.outcome
    attributes: dict[str, Value] = {
        **_operation(names.INVOKE_AGENT, record.origin.model or record.model, record.conversation),
        names.AGENT_NAME: names.AGENT,
        names.RESPONSE_MODEL: record.variant or record.model,
        names.BACKEND: record.backend,
        names.KEY: record.origin.caller.key,
        names.SESSION: record.session,
        names.SESSION_REASON: record.reason,
        names.RUN: record.run,
        names.RUN_OUTCOME: record.outcome,
        names.RUN_RESPONSES: record.responses,
    }
    if record.usage is not None:
        attributes |= _tokens(record.usage)
    return SpanFacts(_RUN_NAME, "CLIENT", _told(attributes) | _failed(error), record.started_at, record.ended_at, error)


@dataclass(frozen=True, slots=True)
class ToolStep:
    """Calls that a client has been given, and that were not answered yet."""

    calls: tuple[tuple[str, str], ...]
    """(id, name)"""
    conversation: str
    start: float


def opened_step(record: TurnRecord) -> ToolStep | None:
    if record.outcome != PAUSED or not record.called:
        return None
    return ToolStep(record.called, record.conversation, _ended(record))


def step_spans(step: ToolStep, end: float, error: str = "") -> list[SpanFacts]:
    """One span for each call: from the end of the answer that told it to the request with its result."""
    return [
        SpanFacts(
            name=f"{names.EXECUTE_TOOL} {short(name)}",
            kind="INTERNAL",
            attributes=_told(
                {
                    names.OPERATION: names.EXECUTE_TOOL,
                    names.TOOL_NAME: short(name),
                    names.TOOL_TYPE: "function",
                    names.TOOL_CALL_ID: call,
                    names.CONVERSATION: step.conversation,
                }
            )
            | _failed(error),
            start=step.start,
            end=max(step.start, end),
            error=error,
        )
        for call, name in step.calls
    ]


def short(name: str) -> str:
    return name[:MAX_NAME_CHARS]


def _ended(record: TurnRecord) -> float:
    return record.started_at + record.total_ms / 1000


def _server(method: str, dialect: str, served: ServedPlaces, status: int) -> dict[str, Value]:
    route = served.routes[dialect]
    attributes: dict[str, Value] = {names.METHOD: method, names.ROUTE: route, names.URL_PATH: route}
    attributes[names.URL_SCHEME] = served.scheme
    return attributes | ({names.STATUS: status} if status else {})  # 0: the client hung up before there was one


def _operation(operation: str, model: str, conversation: str) -> dict[str, Value]:
    return _told(
        {
            names.OPERATION: operation,
            names.PROVIDER_NAME: names.PROVIDER,
            names.REQUEST_MODEL: short(model),
            names.CONVERSATION: conversation,
        }
    )


def _who(record: TurnRecord, *, request: bool = True) -> dict[str, Value]:
    asked: dict[str, Value] = {names.REQUEST_ID: record.request_id} if request else {}
    return _told({names.BACKEND: record.backend, names.KEY: record.caller.key, **asked})


def _tokens(usage: Usage | RunUsage) -> dict[str, Value]:
    counts = {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cache_read_tokens,
        names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}


def _told(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """Without those that say nothing."""
    return {name: value for name, value in attributes.items() if value != ""}


def _failed(error: str) -> dict[str, Value]:
    return {names.ERROR_TYPE: error} if error else {}
