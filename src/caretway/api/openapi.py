"""The content of `/openapi.json`: an OpenAPI 3.1 document with every route, its request schema and its possible errors.

It describes the fields that this gateway reads, not all fields of the three APIs: unknown fields are allowed
everywhere and reported in `x-caretway-ignored`. The paths come from the rows of `routes`; the schemas are here.
"""

from collections.abc import Iterable
from typing import Any, Final

from ..dialects import Operation
from .routes import PARAMETER, Route, paths_of

Schema = dict[str, Any]

_ID: Final = {"type": "string", "pattern": "^[A-Za-z0-9._:/-]{1,64}$"}
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_FILLED: Final = {"type": "string", "pattern": "^[ -~]*[!-~][ -~]*$"}
_SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}}
"""An example of a field that accepts the JSON schema of any object."""
_TEXT: Final = {"type": "string"}
_BOOL: Final = {"type": ["boolean", "null"]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _array(items: Schema, at_least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": at_least}


def _either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


_ANTHROPIC_DETAILS: Final = _object(
    {"error_code": _TEXT, "should_retry": {"type": "boolean"}}, "error_code", "should_retry"
)

SCHEMAS: Final[Schema] = {
    "OpenAIError": _object(
        {
            "error": _object(
                {
                    "message": _TEXT,
                    "type": _TEXT,
                    "code": {"type": ["string", "null"]},
                    "param": {"type": ["string", "null"]},
                    "status": {"type": "integer"},
                    "should_retry": {"type": "boolean"},
                },
                "message",
                "type",
                "code",
                "param",
                "status",
                "should_retry",
            )
        },
        "error",
    ),
    "AnthropicError": _object(
        {
            "type": {"const": "error"},
            "error": _object(
                {"type": _TEXT, "message": _TEXT, "details": _ANTHROPIC_DETAILS},
                "type",
                "message",
                "details",
            ),
        },
        "type",
        "error",
    ),
    "Tool": _object(
        {
            "type": {"const": "function"},
            "function": _object({"name": _NAME, "description": _TEXT, "parameters": {"const": _SCHEMA}}, "name"),
        },
        "type",
        "function",
    ),
    "TextPart": _object({"type": {"const": "text"}, "text": _TEXT}, "type", "text"),
    "ToolCall": _object(
        {
            "id": _ID,
            "type": {"const": "function"},
            "function": _object({"name": _NAME, "arguments": {"enum": ["{}", '{"path":"a"}']}}, "name", "arguments"),
        },
        "id",
        "type",
        "function",
    ),
    "ChatMessage": _either(
        _object(
            {
                "role": {"enum": ["system", "developer", "user"]},
                "content": _either(_TEXT, _array(_ref("TextPart"), 1)),
            },
            "role",
            "content",
        ),
        _object(
            {
                "role": {"const": "assistant"},
                "content": _either(_TEXT, {"type": "null"}),
                "tool_calls": _array(_ref("ToolCall"), 1),
            },
            "role",
            "content",
        ),
        _object({"role": {"const": "tool"}, "tool_call_id": _ID, "content": _TEXT}, "role", "tool_call_id", "content"),
    ),
    "ChatRequest": _object(
        {
            "model": _ID,
            "messages": _array(_ref("ChatMessage"), 1),
            "stream": _BOOL,
            "stream_options": {"type": ["object", "null"], "properties": {"include_usage": {"type": "boolean"}}},
            "tools": _array(_ref("Tool")),
            "tool_choice": {"enum": ["auto", "none"]},
            "parallel_tool_calls": _BOOL,
            "stop": _either({"type": "null"}, _FILLED, _array(_FILLED) | {"maxItems": 4}),
            "reasoning_effort": {"enum": ["minimal", "low", "medium", "high", None]},
            "response_format": {"enum": [None, {"type": "text"}, {"type": "json_object"}]},
            "max_completion_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000},
            "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
            "n": {"enum": [None, 1]},
            "user": {"type": ["string", "null"]},
        },
        "model",
        "messages",
    ),
    "CompletionRequest": _object(
        {
            "model": _ID,
            "prompt": _FILLED,
            "stream": _BOOL,
            "stop": _either({"type": "null"}, _FILLED),
            "max_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000},
            "n": {"enum": [None, 1]},
        },
        "model",
        "prompt",
    ),
    "ResponsesRequest": _object(
        {
            "model": _ID,
            "input": _either(_FILLED, _array(_ref("ResponsesMessage"), 1)),
            "instructions": {"type": ["string", "null"]},
            "stream": _BOOL,
            "store": _BOOL,
            "tools": _array(_ref("ResponsesTool")),
            "tool_choice": {"enum": ["auto", "none"]},
            "parallel_tool_calls": _BOOL,
            "reasoning": {"enum": [None, {"effort": "low"}, {"effort": "high", "summary": "auto"}]},
            "text": {"enum": [None, {"format": {"type": "text"}}]},
        },
        "model",
        "input",
    ),
    "ResponsesMessage": _object(
        {
            "type": {"const": "message"},
            "role": {"enum": ["user", "assistant", "system", "developer"]},
            "content": _TEXT,
        },
        "type",
        "role",
        "content",
    ),
    "ResponsesTool": _object(
        {"type": {"const": "function"}, "name": _NAME, "description": _TEXT, "parameters": {"const": _SCHEMA}},
        "type",
        "name",
        "parameters",
    ),
    "MessagesMessage": _object(
        {
            "role": {"enum": ["user", "assistant"]},
            "content": _either(_FILLED, _array(_ref("TextPart"), 1)),
        },
        "role",
        "content",
    ),
    "MessagesRequest": _object(
        {
            "model": _ID,
            "max_tokens": {"type": "integer", "minimum": 1},
            "messages": _array(_ref("MessagesMessage"), 1),
            "system": _either(_TEXT, _array(_ref("TextPart"))),
            "stream": {"type": "boolean"},
            "stop_sequences": _array(_FILLED),
            "tools": _array(_ref("MessagesTool")),
            "tool_choice": {"enum": [{"type": "auto"}, {"type": "none"}]},
            "thinking": {"enum": [{"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}]},
        },
        "model",
        "max_tokens",
        "messages",
    ),
    "MessagesTool": _object(
        {"name": _NAME, "description": _TEXT, "input_schema": {"const": _SCHEMA}}, "name", "input_schema"
    ),
    "ModelList": _object({"data": _array({"type": "object"})}, "data"),
    "Health": _object(
        {"status": {"enum": ["ok", "error"]}, "version": _TEXT, "auth": _TEXT, "backend": {"type": "object"}},
        "status",
        "version",
        "auth",
        "backend",
    ),
    "Account": _object(
        {"object": {"const": "account"}, "known": {"type": "boolean"}, "reason": {"type": ["string", "null"]}},
        "object",
        "known",
        "reason",
    ),
    "PageKey": _object({"key": _TEXT}, "key"),
    "PageValue": _object({"value": {"type": ["string", "null"]}}, "value"),
    "PageKeep": _object({"keep": {"type": "boolean"}}, "keep"),
    "PageSeconds": _object({"seconds": {"type": "number"}}, "seconds"),
    "Any": {"type": "object"},
}

ERRORS: Final[dict[int, str]] = {
    400: "The request is malformed: not HTTP, not JSON, too deeply nested, a field that does not fit, unknown model.",
    401: "The gateway's own key is missing or wrong, or Cursor does not accept the credentials.",
    402: "The subscription's usage is spent.",
    403: "The Host or Origin is not allowed, or Cursor refuses.",
    404: "Not found.",
    405: "The route does not take this method; `Allow` names those that it takes.",
    408: "The request did not arrive in time.",
    409: "The turn to be continued is gone, and `x-caretway-session: required` forbids a replay.",
    413: "The body, or its list of messages, is larger than the limit.",
    426: "The version of the WebSocket is not 13.",
    429: "Too many requests, or too many at once.",
    431: "The headers are larger or more than the limit.",
    500: "A bug of the gateway; its log has the details.",
    502: "Cursor failed, sent something unreadable, wants a newer client, or the model repeated itself.",
    503: "Cursor cannot be reached, or the gateway is stopping.",
    504: "Cursor made no progress within the limits.",
}

_HEADERS: Final = [
    {
        "name": "x-caretway-session",
        "in": "header",
        "required": False,
        "description": "Whether a turn may be resumed (auto), must be (required), or must not be (fresh).",
        "schema": {"enum": ["auto", "fresh", "required"]},
    },
    {
        "name": "x-caretway-workspace",
        "in": "header",
        "required": False,
        "description": "One of the directories that the gateway allows.",
        "schema": {"type": "string", "pattern": "^[!-~]*$"},
    },
]


def _answer(description: str, schema: str, *, stream: bool = False) -> Schema:
    if not schema:
        return {"description": description, "content": {"text/plain": {}}}
    content: Schema = {"application/json": {"schema": _ref(schema)}}
    if stream:
        content["text/event-stream"] = {"schema": _TEXT}
    return {"description": description, "content": content}


def _operation(route: Route, operation: Operation, suffix: str) -> Schema:
    """The Operation Object of one method. `suffix` keeps operation ids unique: a row may be served at two paths."""
    error = operation.error
    answers = {"200": _answer(operation.answers, operation.schema, stream=operation.turn)}
    answers |= {str(status): _answer(description, error) for status, description in ERRORS.items()}
    if error == "AnthropicError":
        answers["529"] = _answer("The gateway's own limits are reached.", error)
    if operation.schema == "Health":
        answers["503"] = _answer("Cursor cannot be reached", "Health")
    if operation.links:
        answers["200"]["links"] = {
            name: {"operationId": name + suffix, "parameters": {"id": "$response.body#/id"}} for name in operation.links
        }
    described: Schema = {
        "operationId": operation.id + suffix,
        "summary": operation.summary,
        "parameters": [
            *(_path(parameter[1]) for parameter in PARAMETER.finditer(route.path)),
            *(_HEADERS if operation.turn else ()),
        ],
        "responses": answers,
    }
    if operation.body:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(operation.body)}}}
    return described


def _path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": _ID}


def _paths(routes: Iterable[Route]) -> Schema:
    return {
        PARAMETER.sub(r"{\1}", path): {
            method.lower(): _operation(route, operation, suffix) for method, operation in route.operations.items()
        }
        for route in routes
        for path, suffix in zip(paths_of(route), ("", "Again"), strict=False)
    }


def document(routes: Iterable[Route], version: str) -> Schema:
    """The OpenAPI document. A gateway without a key ignores the security schemes."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Caretway",
            "version": version,
            "description": "OpenAI's and Anthropic's APIs, answered by the user's own Cursor subscription.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{}, {"bearer": []}, {"apiKey": []}],
        "paths": _paths(routes),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }
