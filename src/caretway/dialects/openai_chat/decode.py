"""Decodes a chat completion request into a TurnRequest, or raises an error that names the wrong field.
A field without a reader is accepted silently, known but without effect (listed in `ignored` unless it has its default),
or unknown (listed, too). Models, backends and limits are unknown here.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from ...core.errors import bad_request
from ...core.request import OutputFormat, ToolSet, TurnRequest
from .. import fields
from ..headers import read_headers
from ..kinds import kind_of_request
from .encode import LEGACY_FUNCTIONS
from .messages import ChatMessageReader, decode_tools

MAX_STOP_SEQUENCES: Final = 16

_IDLE: Final[dict[str, fields.Idle]] = {
    "max_tokens": fields.Idle(*fields.WHOLE),
    "max_completion_tokens": fields.Idle(*fields.WHOLE),
    "temperature": fields.Idle(*fields.NUMBER, (1,)),
    "top_p": fields.Idle(*fields.NUMBER, (1,)),
    "seed": fields.Idle(*fields.WHOLE),
    "frequency_penalty": fields.Idle(*fields.NUMBER, (0,)),
    "presence_penalty": fields.Idle(*fields.NUMBER, (0,)),
    "logit_bias": fields.Idle(*fields.OBJECT, ({},)),
    "logprobs": fields.Idle(*fields.FLAG, (False,)),
    "top_logprobs": fields.Idle(*fields.WHOLE, (0,)),
    "service_tier": fields.Idle(*fields.WORD, ("auto", "default")),
    "store": fields.Idle(*fields.FLAG, (False,)),
    "prediction": fields.Idle(*fields.OBJECT),
    "verbosity": fields.Idle(*fields.WORD, ("medium",)),
    "audio": fields.Idle(*fields.OBJECT),
    "web_search_options": fields.Idle(*fields.OBJECT),
}
_READ: Final = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "parallel_tool_calls",
        "stop",
        "n",
        "stream",
        "stream_options",
        "response_format",
        "reasoning_effort",
        "reasoning",
        "modalities",
    }
)
_SILENT: Final = frozenset({"user", "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
"""Fields that do not affect the answer."""
_LEGACY: Final[Mapping[str, object]] = MappingProxyType({LEGACY_FUNCTIONS: True})
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_USED: Final = _READ | _SILENT
_KNOWN: Final = _USED | _IDLE.keys()
_ALL_USED: Final[tuple[Sequence[str], Sequence[str]]] = (), ()


def decode(body: object, headers: Mapping[str, str], known: fields.ToolMemory[ToolSet]) -> TurnRequest:
    if not isinstance(body, dict):
        raise bad_request(f"The request body must be a JSON object, not {fields.kind_of(body)}.", code="invalid_type")
    if body.get("model") is None:
        raise fields.missing("model", code="missing_model")
    model = fields.needed_string(body, "model")
    reader = ChatMessageReader()
    messages = reader.read(body.get("messages"))
    tools, choice, legacy = decode_tools(body, known)
    answer = _PLAIN if _SHAPING.isdisjoint(body) else _answer_shape(body)
    sent = read_headers(headers)
    idle, unknown = _ALL_USED if body.keys() <= _USED else _without_effect(body)
    return TurnRequest(
        model=model,
        messages=messages,
        tools=tools,
        tool_choice=choice,
        stop=answer.stop,
        web_search=body.get("web_search_options") is not None,
        output_format=answer.format,
        effort=answer.effort,
        session=sent.session,
        hint=sent.hint,
        kind=kind_of_request(messages, tools, headers),
        workspace=sent.workspace,
        bridge=sent.bridge,
        stream=fields.optional_bool(body, "stream") is True,
        include_usage=include_usage(body.get("stream_options")),
        max_output=body.get("max_completion_tokens") or body.get("max_tokens"),
        ignored=(*idle, *answer.ignored, *reader.ignored, *unknown),
        echo=_LEGACY if legacy else _NOTHING,
    )


def _without_effect(body: Mapping[str, object]) -> tuple[Sequence[str], Sequence[str]]:
    """(known fields without effect, unknown fields)."""
    return [*fields.idle_names(body, _IDLE)], fields.listable(fields.unknown_names(body, _KNOWN))


class _AnswerShape(Struct, frozen=True):
    """The fields that shape the answer, which most requests do not have."""

    stop: tuple[str, ...] = ()
    format: OutputFormat | None = None
    effort: str | None = None
    ignored: tuple[str, ...] = ()


_PLAIN: Final = _AnswerShape()
_SHAPING: Final = frozenset({"n", "modalities", "stop", "response_format", "reasoning_effort", "reasoning"})


def _answer_shape(body: Mapping[str, object]) -> _AnswerShape:
    _check_counts(body)
    effort, ignored = _effort(body)
    return _AnswerShape(
        stop_words(body.get("stop")), _output_format(body.get("response_format")), effort, tuple(ignored)
    )


def stop_words(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, str | list):
        raise fields.wrong_type("stop", "a string or an array of strings", value)
    return fields.stop_sequences([value] if isinstance(value, str) else value, "stop", MAX_STOP_SEQUENCES)


def _check_counts(body: Mapping[str, object]) -> None:
    """Refuse requests for several answers or for other output than text."""
    n = body.get("n")
    if n is not None and (isinstance(n, bool) or not isinstance(n, int)):
        raise fields.wrong_type("n", "an integer", n)
    if n not in (None, 1):
        raise fields.unsupported(
            "n", "Only one answer per request is possible ('n': 1). Send the request again for another."
        )
    modalities = body.get("modalities")
    if modalities is not None:
        for i, one in enumerate(fields.an_array(modalities, "modalities")):
            if fields.a_string(one, f"modalities[{i}]") != "text":
                raise fields.unsupported(
                    f"modalities[{i}]", "Answers are text; no other modality is possible.", hint="Ask for text alone."
                )


def include_usage(value: object) -> bool:
    if value is None:
        return False
    return fields.optional_bool(fields.an_object(value, "stream_options"), "include_usage", "stream_options") is True


def _output_format(value: object) -> OutputFormat | None:
    if value is None:
        return None
    wanted = fields.an_object(value, "response_format")
    kind = fields.needed_string(wanted, "type", "response_format")
    if kind == "text":
        return None
    if kind == "json_object":
        return OutputFormat()
    if kind != "json_schema":
        raise fields.invalid_value("response_format.type", f"use text, json_object or json_schema, not {kind[:60]!r}.")
    param = "response_format.json_schema"
    if wanted.get("json_schema") is None:
        raise fields.missing(param)
    described = fields.an_object(wanted["json_schema"], param)
    schema = described.get("schema")
    fields.optional_bool(described, "strict", param)
    return OutputFormat(
        name=fields.optional_string(described, "name", param) or "",
        schema=None if schema is None else fields.an_object(schema, f"{param}.schema"),
    )


def _effort(body: Mapping[str, object]) -> tuple[str | None, list[str]]:
    """The effort. OpenAI's own field takes precedence over the object of other gateways, whose other keys have no
    effect."""
    effort = fields.optional_string(body, "reasoning_effort")
    if body.get("reasoning") is None:
        return effort or None, []
    reasoning = fields.an_object(body["reasoning"], "reasoning")
    nested = fields.optional_string(reasoning, "effort", "reasoning")
    return effort or nested or None, [
        f"reasoning.{key}" for key in fields.listable(fields.unknown_names(reasoning, {"effort"}))
    ]
