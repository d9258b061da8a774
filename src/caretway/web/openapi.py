"""The gateway's own OpenAPI 3.1 document: every route, what it takes and every error it may answer.

It describes what this gateway reads of the three APIs, not all that their owners offer: unknown fields are allowed
everywhere and reported in `x-caretway-ignored`. Built once, by hand; knows nothing of how a route is served.
"""

from typing import Any, Final

Schema = dict[str, Any]

_ID: Final = {"type": "string", "pattern": "^[A-Za-z0-9._:/-]{1,64}$"}
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_FILLED: Final = {"type": "string", "pattern": "^[ -~]*[!-~][ -~]*$"}
_SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}}
"""An example of what goes there: any JSON schema of an object does."""
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
                },
                "message",
                "type",
                "code",
                "param",
                "status",
            )
        },
        "error",
    ),
    "AnthropicError": _object(
        {
            "type": {"const": "error"},
            "error": _object(
                {"type": _TEXT, "message": _TEXT, "details": _object({"error_code": _TEXT}, "error_code")},
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
    "Any": {"type": "object"},
}

ERRORS: Final[dict[int, str]] = {
    400: "The request is malformed: not HTTP, not JSON, too deeply nested, a field that does not fit, unknown model.",
    401: "The gateway's own key is missing or wrong, or Cursor does not accept the credentials.",
    402: "The subscription's usage is spent.",
    403: "The Host or Origin is not allowed, or Cursor refuses.",
    404: "There is nothing here.",
    405: "The route does not take this method.",
    408: "The request did not arrive in time.",
    409: "The turn to be continued is gone, and `x-caretway-session: required` forbids a replay.",
    413: "The body, or its list of messages, is larger than the limit.",
    429: "Too many requests, or too many at once.",
    431: "The headers are larger or more than the limit.",
    500: "A bug of the gateway; its log has the details.",
    502: "Cursor failed, said something that cannot be understood, wants a newer client, or the model went in circles.",
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
        "description": "A directory out of those that the gateway was told to allow.",
        "schema": {"type": "string", "pattern": "^[!-~]*$"},
    },
]


def _answer(description: str, schema: str, *, stream: bool = False) -> Schema:
    content: Schema = {"application/json": {"schema": _ref(schema)}}
    if stream:
        content["text/event-stream"] = {"schema": _TEXT}
    return {"description": description, "content": content}


def _operation(
    name: str,
    summary: str,
    answer: Schema,
    *,
    body: str = "",
    parameters: tuple[Schema, ...] = (),
    error: str = "OpenAIError",
) -> Schema:
    operation: Schema = {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": answer} | {str(status): _answer(told, error) for status, told in ERRORS.items()},
    }
    if error == "AnthropicError":
        operation["responses"]["529"] = _answer("The gateway's own limits are reached.", error)
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return operation


def _path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": _ID}


def _paths() -> Schema:
    whole = tuple(_HEADERS)
    chat = _operation(
        "chat", "OpenAI Chat Completions", _answer("The completion", "Any", stream=True), body="ChatRequest",
        parameters=whole,
    )  # fmt: skip
    responses = _operation(
        "respond", "OpenAI Responses", _answer("The response", "Any", stream=True), body="ResponsesRequest",
        parameters=whole,
    )  # fmt: skip
    responses["responses"]["200"]["links"] = {
        name: {"operationId": name, "parameters": {"id": "$response.body#/id"}}
        for name in ("getResponse", "deleteResponse", "getInput")
    }
    one = {
        "get": _operation("getResponse", "A stored response", _answer("It", "Any"), parameters=(_path("id"),)),
        "delete": _operation("deleteResponse", "Forget it", _answer("Forgotten", "Any"), parameters=(_path("id"),)),
    }
    items = {
        "get": _operation(
            "getInput", "What a response was made from", _answer("List", "Any"), parameters=(_path("id"),)
        )
    }
    messages = _operation(
        "messages", "Anthropic Messages", _answer("The message", "Any", stream=True), body="MessagesRequest",
        parameters=whole, error="AnthropicError",
    )  # fmt: skip
    count = _operation(
        "countTokens", "An estimate of a request's size", _answer("Tokens", "Any"), body="MessagesRequest",
        error="AnthropicError",
    )  # fmt: skip
    models = {"get": _operation("models", "Models", _answer("The list", "ModelList"))}
    model = {"get": _operation("model", "One model", _answer("It", "Any"), parameters=(_path("id"),))}
    health = {"get": _operation("health", "The gateway's state", _answer("It", "Health"))}
    health["get"]["responses"]["503"] = _answer("Cursor cannot be reached", "Health")
    both: Schema = {
        "/chat/completions": {"post": chat},
        "/responses": {"post": responses},
        "/responses/{id}": one,
        "/responses/{id}/input_items": items,
        "/models": models,
        "/models/{id}": model,
        "/health": health,
        "/tools": {"get": _operation("tools", "Tools that are run here", _answer("The list", "Any"))},
    }
    metrics = _operation("metrics", "Counters for Prometheus", {"description": "Text", "content": {"text/plain": {}}})
    return {
        **{f"/v1{path}": item for path, item in both.items()},
        "/v1/messages": {"post": messages},
        "/v1/messages/count_tokens": {"post": count},
        **{path: _renamed(item) for path, item in both.items()},
        "/": {"get": _operation("root", "Where to look", _answer("Names", "Any"))},
        "/healthz": {"get": _operation("healthz", "A sign of life, without a key", _answer("alive or ready", "Any"))},
        "/metrics": {"get": metrics},
        "/openapi.json": {"get": _operation("openapi", "This document", _answer("It", "Any"))},
    }


def _renamed(item: Schema) -> Schema:
    """The same operations without the prefix: ids must be unique."""
    return {
        method: operation | {"operationId": operation["operationId"] + "Unprefixed"}
        for method, operation in item.items()
    }


def document(version: str) -> Schema:
    """The document. A gateway without a key of its own ignores the security schemes."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Caretway",
            "version": version,
            "description": "OpenAI's and Anthropic's APIs, answered by the user's own Cursor subscription.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{}, {"bearer": []}, {"apiKey": []}],
        "paths": _paths(),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }
