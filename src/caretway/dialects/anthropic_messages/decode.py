"""Decodes a Messages request into a TurnRequest, or raises an error that names the wrong field: thinking budgets as an
effort, `output_config`, stop sequences, compaction. Message threads are refused.
A field without a reader is accepted silently, known but without effect (listed in `ignored` unless it has its default),
or unknown (listed, too). Models, backends and limits are unknown here.
"""

from collections.abc import Mapping
from typing import Final

from ...core.errors import bad_request
from ...core.request import OutputFormat, TurnRequest
from .. import fields
from ..headers import read_headers, session_in_user_id
from ..kinds import kind_of_request
from .compaction import context_wish, summarised
from .encode import SHOW_THINKING, THREAD_UNSUPPORTED
from .messages import AnthropicMessageReader, Tools, decode_tools

MAX_STOP_SEQUENCES: Final = 64
MAX_FALLBACKS: Final = 8
CALL_PREFIX: Final = "toolu_"

_IDLE: Final[dict[str, fields.Idle]] = {
    "temperature": fields.Idle(*fields.NUMBER, (1,)),
    "top_p": fields.Idle(*fields.NUMBER, (1,)),
    "top_k": fields.Idle(*fields.WHOLE),
    "service_tier": fields.Idle(*fields.WORD, ("auto",)),
    "speed": fields.Idle(*fields.WORD, ("standard",)),
    "container": fields.Idle("a string or an object", (str, dict)),
    "mcp_servers": fields.Idle(*fields.ARRAY, ([],)),
    "diagnostics": fields.Idle(*fields.OBJECT),
    "inference_geo": fields.Idle(*fields.WORD),
}
READ: Final = frozenset(
    {
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "stop_sequences",
        "stream",
        "thinking",
        "output_config",
        "output_format",
        "thread",
        "compaction",
        "context_management",
        "fallbacks",
    }
)
SILENT: Final = frozenset(
    {
        "max_tokens",
        "metadata",
        "cache_control",
        "betas",
        "billing_policy",
        "anthropic_version",
        "anthropic_beta",
    }
)
"""Fields that are not reported as ignored: every client must send `max_tokens`, and the other fields do not affect the
answer."""
_KNOWN: Final = READ | _IDLE.keys() | SILENT
_BUDGETS: Final = ((4_096, "low"), (16_384, "medium"))
"""A thinking budget up to this many tokens means this effort; above the last one it is `high`."""
_THINKS: Final = frozenset({"enabled", "adaptive", "between_tools"})


def decode(body: object, headers: Mapping[str, str], known: fields.ToolMemory[Tools]) -> TurnRequest:
    if not isinstance(body, dict):
        raise bad_request(f"The request body must be a JSON object, not {fields.kind_of(body)}.", code="invalid_type")
    _refuse_thread(body)
    if body.get("model") is None:
        raise fields.missing("model", code="missing_model")
    model = fields.needed_string(body, "model")
    _check_max_tokens(body.get("max_tokens"))
    reader = AnthropicMessageReader()
    messages = (*reader.read_system(body.get("system")), *reader.read(body.get("messages")))
    tools = decode_tools(body, reader.tool_changes, known)
    thinks, thinking, budgeted, ignored_thinking = _thinking(body.get("thinking"))
    output_format, effort, ignored_output = _output(body)
    wish = context_wish(body)
    others, ignored_others = _fallbacks(body.get("fallbacks"))
    sent = read_headers(headers)
    request = TurnRequest(
        model=model,
        messages=messages,
        tools=tools.offered,
        tool_choice=tools.choice,
        stop=_stop(body.get("stop_sequences")),
        web_search=any(name.startswith("tools.web_search") for name in tools.ignored),
        output_format=output_format,
        effort=effort or budgeted,
        thinking=thinks,
        else_models=others,
        session=sent.session,
        hint=sent.hint or session_in_user_id(body.get("metadata")),
        kind=kind_of_request(messages, tools.offered, headers),
        workspace=sent.workspace,
        bridge=sent.bridge,
        stream=fields.optional_bool(body, "stream") is True,
        include_usage=True,
        max_output=body.get("max_tokens"),
        ignored=tuple(
            fields.listable(
                (
                    *fields.idle_names(body, _IDLE),
                    *ignored_thinking,
                    *ignored_output,
                    *ignored_others,
                    *wish.ignored,
                    *sorted(tools.ignored),
                    *sorted(reader.ignored),
                    *fields.unknown_names(body, _KNOWN),
                )
            )
        ),
        call_prefix=CALL_PREFIX,
        echo={SHOW_THINKING: thinking},
    )
    return summarised(request, wish)


def _refuse_thread(body: Mapping[str, object]) -> None:
    """Refuse `thread`: if it were ignored, the next request would have no history. After this error code the SDK sends
    the whole history."""
    if body.get("thread") is not None:
        raise fields.unsupported(
            "thread",
            "Message threads are not supported.",
            code=THREAD_UNSUPPORTED,
            hint="Send the full conversation without `thread`.",
        )


def _fallbacks(given: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the next models, and the ignored fields: the models' own parameters, and "default", which Cursor
    lacks."""
    if given is None:
        return (), ()
    if given == "default":
        return (), ("fallbacks",)
    if not isinstance(given, list) or len(given) > MAX_FALLBACKS:
        raise fields.wrong_type("fallbacks", f'at most {MAX_FALLBACKS} objects, or "default"', given)
    names: list[str] = []
    ignored: set[str] = set()
    for number, entry in enumerate(given):
        model = entry.get("model") if isinstance(entry, dict) else None
        if not isinstance(model, str) or not model:
            raise fields.wrong_type(f"fallbacks.{number}", "an object with a model", entry)
        names.append(model)
        ignored |= {f"fallbacks.{key}" for key, value in entry.items() if key != "model" and value is not None}
    return tuple(names), tuple(sorted(ignored))


def _check_max_tokens(value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise fields.wrong_type("max_tokens", "an integer", value)


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return fields.stop_sequences(fields.an_array(value, "stop_sequences"), "stop_sequences", MAX_STOP_SEQUENCES)


def _thinking(value: object) -> tuple[bool | None, bool, str | None, list[str]]:
    """(whether to think, whether to show it, the effort of the budget, the fields without effect)."""
    if value is None:
        return None, False, None, []
    wanted = fields.an_object(value, "thinking")
    kind = fields.needed_string(wanted, "type", "thinking")
    shown = fields.optional_string(wanted, "display", "thinking") != "omitted"
    budget = wanted.get("budget_tokens")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise fields.wrong_type("thinking.budget_tokens", "an integer", budget)
    ignored = [f"thinking.{name}" for name in fields.unknown_names(wanted, ("type", "display", "budget_tokens"))]
    if kind not in _THINKS:
        return (False, False, None, ignored) if kind == "disabled" else (None, False, None, [*ignored, "thinking.type"])
    effort = None if budget is None else next((name for most, name in _BUDGETS if budget <= most), "high")
    return True, shown, effort, ignored


def _output(body: Mapping[str, object]) -> tuple[OutputFormat | None, str | None, list[str]]:
    """`output_config`, and the older `output_format`."""
    config = body.get("output_config")
    if config is None and body.get("output_format") is None:
        return None, None, []
    wanted = {} if config is None else fields.an_object(config, "output_config")
    effort = fields.optional_string(wanted, "effort", "output_config")
    ignored = [f"output_config.{name}" for name in fields.unknown_names(wanted, ("effort", "format"))]
    described, param = wanted.get("format"), "output_config.format"
    if described is None:
        described, param = body.get("output_format"), "output_format"
    return _format(described, param), effort or None, ignored


def _format(value: object, param: str) -> OutputFormat | None:
    if value is None:
        return None
    described = fields.an_object(value, param)
    kind = fields.needed_string(described, "type", param)
    if kind != "json_schema":
        raise fields.invalid_value(f"{param}.type", f"use json_schema, not {kind[:60]!r}.")
    if described.get("schema") is None:
        raise fields.missing(f"{param}.schema")
    return OutputFormat(
        name=fields.optional_string(described, "name", param) or "",
        schema=fields.an_object(described["schema"], f"{param}.schema"),
    )
