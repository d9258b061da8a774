"""Decodes a Responses request into a TurnRequest, or raises an error that names the wrong field. The store resolves
`previous_response_id` and item references; conversations are refused.
The items of a previous response come before the new input, but without its instructions, as the API demands. A field
without a reader is accepted silently, known but without effect (listed in `ignored` unless it has its default), or
unknown (listed, too). Models, backends and limits are unknown here.
"""

from collections.abc import Mapping
from typing import Final

from ...core.errors import bad_request
from ...core.request import Message, OutputFormat, Role, Text, TurnRequest
from .. import fields
from ..headers import OWNER, SOCKET, owners, read_headers
from ..kinds import kind_of_request
from .items import ItemReader, Placed, kind_of_item
from .store import ResponseStore, StoreReader
from .tools import RequestEcho, decode_tools

_IDLE: Final[dict[str, fields.Idle]] = {
    "max_output_tokens": fields.Idle(*fields.WHOLE),
    "max_tool_calls": fields.Idle(*fields.WHOLE),
    "temperature": fields.Idle(*fields.NUMBER, (1,)),
    "top_p": fields.Idle(*fields.NUMBER, (1,)),
    "top_logprobs": fields.Idle(*fields.WHOLE, (0,)),
    "service_tier": fields.Idle(*fields.WORD, ("auto", "default")),
    "truncation": fields.Idle(*fields.WORD, ("disabled",)),
    "context_management": fields.Idle(*fields.ARRAY, ([],)),
    "moderation": fields.Idle(*fields.OBJECT),
    "image": fields.Idle(*fields.OBJECT),
}
_READ: Final = frozenset(
    {
        "model",
        "input",
        "instructions",
        "previous_response_id",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "include",
        "store",
        "stream",
        "stream_options",
        "metadata",
        "background",
        "conversation",
        "prompt",
    }
)
_SILENT: Final = frozenset(
    {
        "user",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "safety_identifier",
        "client_metadata",
        "access_programs",
    }
)
"""Fields that do not affect the answer."""
_KNOWN: Final = _READ | _IDLE.keys() | _SILENT
_KNOWN_ON_SOCKETS: Final = _KNOWN | {"type", "stream_id", "generate"}
_INCLUDED_ANYWAY: Final = frozenset(
    {"reasoning.encrypted_content", "message.input_image.image_url", "web_search_call.action.sources"}
)
"""`include` values that are not reported as ignored: there is no encrypted reasoning, images come back as sent, and a
search always has its sources."""
_UNSERVED: Final[dict[str, str]] = {
    "conversation": "There are no stored conversations here; use 'previous_response_id' or send the history.",
    "prompt": "There are no stored prompts here; send 'instructions' and 'input'.",
}
_ECHOED: Final = ("max_output_tokens", "max_tool_calls")
_ECHOED_WORDS: Final = ("previous_response_id", "prompt_cache_key", "safety_identifier", "user")
_EFFORTS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_SUMMARIES: Final = frozenset({"auto", "concise", "detailed"})
_VERBOSITIES: Final = frozenset({"low", "medium", "high"})
_TRUNCATIONS: Final = frozenset({"auto", "disabled"})
"""The values that a response may repeat; its types allow no others."""


def decode(body: object, headers: Mapping[str, str], store: ResponseStore) -> TurnRequest:
    if not isinstance(body, dict):
        raise bad_request(f"The request body must be a JSON object, not {fields.kind_of(body)}.", code="invalid_type")
    if body.get("model") is None:
        raise fields.missing("model", code="missing_model")
    model = fields.needed_string(body, "model")
    socket = headers.get(SOCKET, "")
    _refuse_unserved(body)
    generate = not socket or fields.optional_bool(body, "generate") is not False
    previous = fields.optional_string(body, "previous_response_id") or None
    stored = StoreReader(store, owners(headers))
    asked = _input(body.get("input"), stored, optional=previous is not None or not generate)
    items = [*_before(previous, stored), *asked]
    box, tools, choice = decode_tools(body, items)
    reader = ItemReader(box)
    messages = reader.read(items)
    if not messages and generate:
        unknown = ", ".join(name.removeprefix("input.") for name in reader.ignored)
        reason = f"has no item of a type that is known here (only {unknown})" if unknown else "must not be empty"
        raise bad_request(f"'input' {reason}.", param="input", code="invalid_value")
    instructions = _instructions(body.get("instructions"))
    reasoning, effort, summary, ignored_reasoning = _reasoning(body.get("reasoning"))
    text, output_format, ignored_text = _text(body.get("text"))
    keep = fields.optional_bool(body, "store") is not False
    repeated = {
        **{name: body.get(name) for name in _ECHOED},
        **{name: fields.optional_string(body, name) for name in _ECHOED_WORDS},
        "instructions": instructions or None,
        "metadata": _metadata(body),
        "parallel_tool_calls": choice.parallel,
        "reasoning": reasoning,
        "store": keep,
        "text": text,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "truncation": _one_of(_TRUNCATIONS, body.get("truncation")) or "disabled",
    }
    if instructions:
        messages = (Message(Role.SYSTEM, (Text(instructions),)), *messages)
    sent = read_headers(headers)
    request = TurnRequest(
        model=model,
        messages=messages,
        tools=tools,
        tool_choice=choice,
        web_search=any(kind.startswith("web_search") for kind in box.not_served),
        output_format=output_format,
        effort=effort,
        session=sent.session,
        hint=sent.hint,
        kind=kind_of_request(messages, tools, headers, body.get("client_metadata")),
        workspace=sent.workspace,
        bridge=sent.bridge,
        stream=fields.optional_bool(body, "stream") is True or bool(socket),
        generate=generate,
        include_usage=True,
        max_output=body.get("max_output_tokens"),
        ignored=(
            *fields.idle_names(body, _IDLE),
            *ignored_reasoning,
            *ignored_text,
            *_include(body.get("include")),
            *_stream_options(body.get("stream_options")),
            *box.ignored,
            *reader.ignored,
            *fields.listable(fields.unknown_names(body, _KNOWN_ON_SOCKETS if socket else _KNOWN)),
        ),
        echo=RequestEcho(
            repeated=repeated,
            tools=box.renamed,
            show_reasoning=summary,
            store=keep or bool(socket),
            owner=headers.get(OWNER, "") if keep else socket,
            passing=not keep,
            # A request that continues from a summary starts with only the summary.
            input=tuple([item for _, item in asked]) if (keep or socket) and not reader.compacts else (),
            previous=None if reader.compacts else previous,
            compacts=reader.compacts,
        ).put(),
    )
    return fields.asking(request) if reader.compacts else request


def _refuse_unserved(body: Mapping[str, object]) -> None:
    """Refuse fields that cannot be ignored, because they change the question."""
    if fields.optional_bool(body, "background"):
        raise fields.unsupported(
            "background", "Background responses are not supported.", hint="Leave `background` out, and use `stream`."
        )
    for name, message in _UNSERVED.items():
        if body.get(name) is not None:
            raise fields.unsupported(name, message)


# ---- the input


def _input(value: object, stored: StoreReader, *, optional: bool) -> list[Placed]:
    """The items of this request, with resolved references."""
    if value is None:
        if optional:
            return []
        raise fields.missing("input")
    if isinstance(value, str):
        if not value.strip():
            raise fields.invalid_value("input", "it must not be empty.")
        text = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}
        return [(fields.FieldPath("", "input", 0), text)]
    if not isinstance(value, list):
        raise fields.wrong_type("input", "a string or an array of items", value)
    if not value and not optional:
        raise bad_request("'input' must have at least one item.", param="input", code="invalid_value")
    return [_resolved(one, fields.FieldPath("", "input", i), stored) for i, one in enumerate(value)]


def _resolved(value: object, at: fields.FieldPath, stored: StoreReader) -> Placed:
    item = fields.an_object(value, at)
    if kind_of_item(item, at) != "item_reference":
        return at, item
    name = fields.needed_string(item, "id", at)
    kept = stored.item(name)
    if kept is None:
        raise bad_request(
            f"Item with id {name[:80]!r} not found.",
            hint="Send the item itself; only items of responses that are still stored can be referenced.",
            param=f"{at}.id",
            code="item_not_found",
        )
    return at, kept


def _before(previous: str | None, stored: StoreReader) -> list[Placed]:
    """All items up to the response that the request continues."""
    if previous is None:
        return []
    items = stored.chain(previous)
    if items is None:
        raise bad_request(
            f"Previous response with id {previous[:80]!r} not found.",
            hint="Only the newest responses are kept, and none with 'store': false. Send the whole history instead.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return [("previous_response_id", item) for item in items]


def _instructions(value: object) -> str:
    return "" if value is None else fields.a_string(value, "instructions")


# ---- the form of the answer


def _reasoning(value: object) -> tuple[dict[str, object], str | None, bool, list[str]]:
    """(the fields to repeat, the effort, whether summaries are shown, the fields without effect)."""
    if value is None:
        return {"effort": None, "summary": None}, None, False, []
    wanted = fields.an_object(value, "reasoning")
    effort = fields.optional_string(wanted, "effort", "reasoning") or None
    old = fields.optional_string(wanted, "generate_summary", "reasoning")  # the field's name before it was `summary`
    summary = fields.optional_string(wanted, "summary", "reasoning") or old or None
    ignored = fields.unknown_names(wanted, ("effort", "summary", "generate_summary"))
    shown = summary not in (None, "none")
    repeated: dict[str, object] = {"effort": _one_of(_EFFORTS, effort), "summary": _one_of(_SUMMARIES, summary)}
    return repeated, effort, shown, [f"reasoning.{name}" for name in fields.listable(ignored)]


def _text(value: object) -> tuple[Mapping[str, object], OutputFormat | None, list[str]]:
    plain: Mapping[str, object] = {"type": "text"}
    if value is None:
        return {"format": plain}, None, []
    wanted = fields.an_object(value, "text")
    given = plain if wanted.get("format") is None else fields.an_object(wanted["format"], "text.format")
    ignored = [f"text.{name}" for name in fields.listable(fields.unknown_names(wanted, ("format", "verbosity")))]
    if fields.optional_string(wanted, "verbosity", "text") not in (None, "medium"):
        ignored.append("text.verbosity")
    verbosity = _one_of(_VERBOSITIES, wanted.get("verbosity"))
    return {"format": given} | ({"verbosity": verbosity} if verbosity else {}), _format(given), ignored


def _one_of(words: frozenset[str], value: object) -> str | None:
    return value if isinstance(value, str) and value in words else None


def _format(wanted: Mapping[str, object]) -> OutputFormat | None:
    at = "text.format"
    kind = fields.needed_string(wanted, "type", at)
    if kind == "text":
        return None
    if kind == "json_object":
        return OutputFormat()
    if kind != "json_schema":
        raise fields.invalid_value(f"{at}.type", f"use text, json_object or json_schema, not {kind[:60]!r}.")
    fields.optional_bool(wanted, "strict", at)
    schema = wanted.get("schema")
    return OutputFormat(
        name=fields.optional_string(wanted, "name", at) or "",
        schema=None if schema is None else fields.an_object(schema, f"{at}.schema"),
    )


def _include(value: object) -> list[str]:
    if not value:
        return []
    wanted = [
        fields.a_string(one, fields.FieldPath("", "include", i))
        for i, one in enumerate(fields.an_array(value, "include"))
    ]
    return fields.listable([f"include.{name}" for name in wanted if name not in _INCLUDED_ANYWAY])


def _stream_options(value: object) -> list[str]:
    if value is None:
        return []
    wanted = fields.an_object(value, "stream_options")
    unknown = fields.unknown_names(wanted, ("include_obfuscation", "include_usage"))
    ignored = [f"stream_options.{name}" for name in fields.listable(unknown)]
    if fields.optional_bool(wanted, "include_obfuscation", "stream_options"):
        ignored.append("stream_options.include_obfuscation")
    return ignored


def _metadata(body: Mapping[str, object]) -> Mapping[str, str]:
    """The metadata, which the response repeats; its values must be strings."""
    given = fields.an_object(body.get("metadata") or {}, "metadata")
    return {name: fields.a_string(value, fields.FieldPath("metadata", name[:64])) for name, value in given.items()}
