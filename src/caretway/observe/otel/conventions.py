"""The names of OpenTelemetry's semantic conventions that are used: spans, attributes, metrics and their buckets; the
pinned version of `opentelemetry-semantic-conventions` that they are taken from. A table, no behaviour.

They are written down here because the package has those for generative AI in a private module. A test compares them.
"""

from typing import Final

VERSION: Final = "0.66b2"
"""Of the package `opentelemetry-semantic-conventions`."""
SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
PROVIDER: Final = "cursor"
AGENT: Final = "cursor"

# ---- operations, as spans are named after them

CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"

# ---- attributes

OPERATION: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - the kind of a token
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ERROR_TYPE: Final = "error.type"
METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
USER_AGENT: Final = "user_agent.name"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"

# ---- attributes of our own

BACKEND: Final = "caretway.backend"
KEY: Final = "caretway.key"
REQUEST_ID: Final = "caretway.request.id"
SESSION: Final = "caretway.session"
SESSION_REASON: Final = "caretway.session.reason"
ESTIMATED: Final = "caretway.usage.estimated"
RUN: Final = "caretway.run.id"
RUN_OUTCOME: Final = "caretway.run.outcome"
RUN_RESPONSES: Final = "caretway.run.responses"

# ---- metrics

OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
OPERATION_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - a metric
SERVER_DURATION: Final = "http.server.request.duration"
DURATION_BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BUCKETS: Final = tuple(4.0**power for power in range(14))
"""1 to 67,108,864."""
FIRST_CHUNK_BUCKETS: Final = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
SERVER_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
