"""Every request field of the public APIs with its verdict: the one source of `docs/api.md` and of the test that tries
each row (`paper/test_api_fields.py`).

A row says what happens to a field when it is sent: `honoured` (a test shows it), `accepted` (no effect is needed),
`ignored` (named in `x-caretway-ignored`), or `refused` (an error that names the way out).
`python tests/paper/api_fields.py` writes the page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "api.md"
Verdict = Literal["honoured", "accepted", "ignored", "refused"]


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    verdict: Verdict
    sample: object
    """A value that asks for something."""
    words: str = ""
    test: str = ""
    """Of an honoured field: the test that shows it, as `FILE::NAME` below tests/."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    types: tuple[str, ...]
    """Where the fields stand in the SDKs: `MODULE:NAME` of a TypedDict, or of a union with `type`."""
    place: str
    """Where a sample goes: a field of the body itself, or `tools`, `content`, `items`, `edits`."""
    dialect: str
    rows: tuple[Row, ...]
    extra: tuple[str, ...] = ()
    """Rows for what clients send and the SDK's types do not name."""


CHAT: Final = "unit/dialects/openai_chat/test_decode.py"
CHAT_OUT: Final = "unit/dialects/openai_chat/test_encode.py"
RESPONSES: Final = "unit/dialects/openai_responses/test_decode.py"
MESSAGES: Final = "unit/dialects/anthropic_messages/test_decode.py"
COMPLETIONS: Final = "unit/dialects/openai_completions/test_completions.py"
ITEMS: Final = f"{RESPONSES}::test_items"
FILES: Final = "unit/dialects/test_attachments.py::test_text_files_are_text"
WISHES: Final = "unit/dialects/anthropic_messages/test_compaction.py::test_what_is_wanted"
SUMMARISED: Final = "contract/test_api.py::test_a_summary_through_anthropic_s_sdk"
HINTS: Final = "contract/test_api.py::test_a_client_s_own_name_for_its_session"
CUT: Final = "contract/test_api.py::test_max_tokens_is_ignored_or_cut"

_NO_FIELD: Final = "Cursor's API has no such field"
_BY_WORDS: Final = "the prompt asks for the format; the answer's field `caretway` says whether the answer follows it"
_HERE: Final = "cuts the answer only with the setting `max_tokens = cut`"
_ONE: Final = "unless 1; send the request again for another answer"
_CACHED: Final = "not needed for the prompt cache"
_HOSTED: Final = "would run on the provider's servers; not offered to the model"
_SEARCH: Final = "unless [Cursor searches](tools.md#web-search)"
_CLIENT_S: Final = "only Anthropic knows the schema; declare a custom tool instead"
_FILES: Final = "as base64: text files and, with the extra `pdf`, the text of PDFs"
_HISTORY: Final = "in a history that began with another provider"

_PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_PICTURE: Final = f"data:image/png;base64,{_PIXEL}"
_FILE: Final = "data:text/plain;base64,aGk="
_FUNCTION: Final = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
_SCHEMA: Final = {"name": "s", "schema": {"type": "object"}}

SECTIONS: Final = (
    Section(
        "Chat Completions: `POST /v1/chat/completions`",
        ("openai.types.chat.completion_create_params:CompletionCreateParamsBase",),
        "",
        "openai_chat",
        (
            Row("model", "honoured", "m", "required; [what a name means](models.md)", f"{CHAT}::test_smallest_request"),
            Row("messages", "honoured", [{"role": "user", "content": "hi"}], "required", f"{CHAT}::test_message"),
            Row("tools", "honoured", [_FUNCTION], "functions", f"{CHAT}::test_tools"),
            Row(
                "tool_choice",
                "honoured",
                "none",
                "including a named tool and `allowed_tools`",
                f"{CHAT}::test_tool_choice",
            ),
            Row(
                "parallel_tool_calls",
                "honoured",
                False,
                "`false` allows one call at a time",
                "contract/test_tools.py::test_one_call_at_a_time_when_asked",
            ),
            Row(
                "functions",
                "honoured",
                [{"name": "f"}],
                "converted to tools; the answer has `function_call`",
                f"{CHAT}::test_legacy_functions_become_tools_with_ids",
            ),
            Row(
                "function_call",
                "honoured",
                "none",
                "as `tool_choice`",
                f"{CHAT}::test_legacy_functions_become_tools_with_ids",
            ),
            Row("stop", "honoured", ["a"], "up to 16 sequences, also across pieces of a stream", f"{CHAT}::test_stop"),
            Row("stream", "honoured", True, "", f"{CHAT}::test_streaming_and_usage"),
            Row(
                "stream_options",
                "honoured",
                {"include_usage": True},
                "only `include_usage`",
                f"{CHAT}::test_streaming_and_usage",
            ),
            Row(
                "response_format",
                "honoured",
                {"type": "json_schema", "json_schema": _SCHEMA},
                _BY_WORDS,
                f"{CHAT}::test_response_format",
            ),
            Row(
                "reasoning_effort",
                "honoured",
                "high",
                "chooses the [variant](models.md#ask-for-a-variant) of the model",
                f"{CHAT}::test_effort",
            ),
            Row("n", "refused", 2, _ONE),
            Row("modalities", "refused", ["audio"], "only text is supported; leave the field out"),
            Row("max_completion_tokens", "ignored", 9, _HERE, CUT),
            Row("max_tokens", "ignored", 9, _HERE, CUT),
            Row("temperature", "ignored", 0, _NO_FIELD),
            Row("top_p", "ignored", 0.5, _NO_FIELD),
            Row("seed", "ignored", 1, _NO_FIELD),
            Row("frequency_penalty", "ignored", 1, _NO_FIELD),
            Row("presence_penalty", "ignored", 1, _NO_FIELD),
            Row("logit_bias", "ignored", {"1": 1}, _NO_FIELD),
            Row("logprobs", "ignored", True, "Cursor reports no probabilities"),
            Row("top_logprobs", "ignored", 2, "Cursor reports no probabilities"),
            Row("service_tier", "ignored", "flex", "your Cursor plan decides"),
            Row("store", "ignored", True, "chat completions are not stored; `POST /v1/responses` stores responses"),
            Row("prediction", "ignored", {"type": "content", "content": "a"}, _NO_FIELD),
            Row("verbosity", "ignored", "low", _NO_FIELD),
            Row("audio", "ignored", {"voice": "a", "format": "mp3"}, "answers are text"),
            Row("web_search_options", "ignored", {}, _SEARCH),
            Row("moderation", "ignored", {"model": "a"}, _NO_FIELD),
            Row("prompt_cache_options", "ignored", {"mode": "explicit"}, _CACHED),
            Row("user", "accepted", "u"),
            Row("metadata", "accepted", {"a": "b"}),
            Row("prompt_cache_key", "accepted", "k", _CACHED),
            Row("prompt_cache_retention", "accepted", "24h", _CACHED),
            Row("safety_identifier", "accepted", "s"),
        ),
        ("stream",),
    ),
    Section(
        "Parts of a chat message",
        ("openai.types.chat.chat_completion_content_part_param:ChatCompletionContentPartParam",),
        "content",
        "openai_chat",
        (
            Row("text", "honoured", {"text": "hi"}, "", f"{CHAT}::test_message"),
            Row(
                "image_url",
                "honoured",
                {"image_url": {"url": _PICTURE}},
                "`data:` URLs; others need `fetch_images`",
                f"{CHAT}::test_message",
            ),
            Row("input_audio", "refused", {"input_audio": {"data": "", "format": "wav"}}, "send a transcript"),
            Row("file", "honoured", {"file": {"filename": "a", "file_data": _FILE}}, _FILES, FILES),
        ),
    ),
    Section(
        "Tools of a chat request",
        ("openai.types.chat.chat_completion_tool_union_param:ChatCompletionToolUnionParam",),
        "tools",
        "openai_chat",
        (
            Row("function", "honoured", {"function": {"name": "f"}}, "", f"{CHAT}::test_tools"),
            Row(
                "custom",
                "refused",
                {"custom": {"name": "f"}},
                "declare a function; `POST /v1/responses` accepts custom tools",
            ),
        ),
    ),
    Section(
        "Completions: `POST /v1/completions`",
        ("openai.types.completion_create_params:CompletionCreateParamsBase",),
        "",
        "openai_completions",
        (
            Row("model", "honoured", "m", "required", f"{COMPLETIONS}::test_the_prompt_is_one_user_message"),
            Row("prompt", "honoured", "a", "one text", f"{COMPLETIONS}::test_the_prompt_is_one_user_message"),
            Row("stop", "honoured", "a", "", f"{COMPLETIONS}::test_the_prompt_is_one_user_message"),
            Row("stream", "honoured", True, "", f"{COMPLETIONS}::test_whole_equals_streamed"),
            Row(
                "stream_options",
                "honoured",
                {"include_usage": True},
                "only `include_usage`",
                f"{COMPLETIONS}::test_whole_equals_streamed",
            ),
            Row("suffix", "refused", "b", "ask for the suffix in the prompt"),
            Row("n", "refused", 2, _ONE),
            Row("best_of", "refused", 2, _ONE),
            Row("max_tokens", "ignored", 9, _HERE, CUT),
            Row("echo", "ignored", True, "the prompt is not repeated"),
            Row("logprobs", "ignored", 1, "Cursor reports no probabilities"),
            Row("temperature", "ignored", 0, _NO_FIELD),
            Row("top_p", "ignored", 0.5, _NO_FIELD),
            Row("seed", "ignored", 1, _NO_FIELD),
            Row("frequency_penalty", "ignored", 1, _NO_FIELD),
            Row("presence_penalty", "ignored", 1, _NO_FIELD),
            Row("logit_bias", "ignored", {"1": 1}, _NO_FIELD),
            Row("user", "accepted", "u"),
        ),
        ("stream",),
    ),
    Section(
        "Responses: `POST /v1/responses`",
        ("openai.types.responses.response_create_params:ResponseCreateParamsBase",),
        "",
        "openai_responses",
        (
            Row("model", "honoured", "m", "required", ITEMS),
            Row("input", "honoured", "hi", "a text or items", ITEMS),
            Row("instructions", "honoured", "i", "", f"{RESPONSES}::test_instructions_come_first"),
            Row(
                "previous_response_id",
                "refused",
                "resp_1",
                "only if the response is not stored; the error asks for the history",
                f"{RESPONSES}::test_previous_response_puts_the_conversation_before_the_input",
            ),
            Row("tools", "honoured", [{"type": "function", "name": "f"}], "", f"{RESPONSES}::test_function_tools"),
            Row(
                "tool_choice",
                "honoured",
                "none",
                "including a named tool and `allowed_tools`",
                f"{RESPONSES}::test_tool_choice",
            ),
            Row(
                "parallel_tool_calls",
                "honoured",
                False,
                "`false` allows one call at a time",
                "contract/test_tools.py::test_one_call_at_a_time_when_asked",
            ),
            Row(
                "text",
                "honoured",
                {"format": {"type": "json_object"}},
                f"`format`: {_BY_WORDS}; `verbosity` is ignored",
                f"{RESPONSES}::test_formats_effort_session_stream",
            ),
            Row(
                "reasoning",
                "honoured",
                {"effort": "high", "summary": "auto"},
                "`effort` and `summary`",
                f"{RESPONSES}::test_formats_effort_session_stream",
            ),
            Row("store", "honoured", False, "", f"{RESPONSES}::test_store_false_leaves_nothing_behind"),
            Row("stream", "honoured", True, "", f"{RESPONSES}::test_formats_effort_session_stream"),
            Row(
                "metadata",
                "honoured",
                {"a": "b"},
                "repeated in the answer",
                "unit/dialects/openai_responses/test_encode.py::test_the_request_is_repeated",
            ),
            Row(
                "background",
                "refused",
                True,
                "leave the field out, and use `stream`",
            ),
            Row("conversation", "refused", "conv_1", "use `previous_response_id`"),
            Row("prompt", "refused", {"id": "p"}, "send `instructions` and `input`"),
            Row(
                "include",
                "accepted",
                ["reasoning.encrypted_content"],
                "encrypted reasoning is not returned; some other values are ignored",
            ),
            Row("stream_options", "accepted", {"include_obfuscation": False}, "no obfuscation is added"),
            Row("max_output_tokens", "ignored", 9, _HERE, CUT),
            Row("max_tool_calls", "ignored", 3, "the [loop guard](tools.md#loop-guard) limits repeated calls"),
            Row("temperature", "ignored", 0, _NO_FIELD),
            Row("top_p", "ignored", 0.5, _NO_FIELD),
            Row("top_logprobs", "ignored", 2, "Cursor reports no probabilities"),
            Row("service_tier", "ignored", "flex", "your Cursor plan decides"),
            Row("truncation", "ignored", "auto", "`POST /v1/responses/compact` shortens a conversation"),
            Row("context_management", "ignored", [{"type": "compaction"}], "use `POST /v1/responses/compact`"),
            Row("moderation", "ignored", {"model": "a"}, _NO_FIELD),
            Row("image", "ignored", {"a": 1}, "images cannot be generated"),
            Row("user", "accepted", "u"),
            Row("prompt_cache_key", "accepted", "k", _CACHED),
            Row("prompt_cache_retention", "accepted", "24h", _CACHED),
            Row("prompt_cache_options", "accepted", {"mode": "explicit"}, _CACHED),
            Row("safety_identifier", "accepted", "s"),
            Row("access_programs", "accepted", ["a"]),
            Row("client_metadata", "accepted", {"a": "b"}, "sent by Codex"),
        ),
        ("stream", "client_metadata"),
    ),
    Section(
        "Tools of a Responses request",
        ("openai.types.responses.tool_param:ToolParam",),
        "tools",
        "openai_responses",
        (
            Row("function", "honoured", {"name": "f"}, "", f"{RESPONSES}::test_function_tools"),
            Row(
                "custom",
                "honoured",
                {"name": "f"},
                "becomes a function with one text argument; a grammar is described to the model, but not enforced",
                f"{RESPONSES}::test_custom_tools_become_functions_with_one_text",
            ),
            Row(
                "namespace",
                "honoured",
                {"name": "n", "tools": [{"type": "function", "name": "f"}]},
                "becomes the tools in it",
                f"{RESPONSES}::test_a_namespace_yields_to_plain_tools",
            ),
            *[
                Row(kind, "ignored", {"name": "x"}, words)
                for kind, words in {
                    "local_shell": "only Codex can run this tool; declare a function instead",
                    "shell": "declare a function instead",
                    "computer": "declare a function instead",
                    "computer_use_preview": "declare a function instead",
                    "apply_patch": "declare a custom tool instead, as Codex does",
                    "web_search*": _SEARCH,
                    "file_search": _HOSTED,
                    "mcp": "give the server to the gateway ([tools](tools.md#mcp-servers))",
                    "code_interpreter": _HOSTED,
                    "programmatic_tool_calling": _HOSTED,
                    "image_generation": _HOSTED,
                }.items()
            ],
            Row(
                "tool_search",
                "honoured",
                {"execution": "client"},
                "becomes a function if the client executes the search; otherwise ignored",
                f"{RESPONSES}::test_a_tool_search_of_the_client_is_a_function",
            ),
        ),
    ),
    Section(
        "Items of a Responses request",
        ("openai.types.responses.response_input_item_param:ResponseInputItemParam",),
        "items",
        "openai_responses",
        (
            Row("message", "honoured", {"role": "user", "content": "hi"}, "", ITEMS),
            Row(
                "function_call",
                "honoured",
                {"call_id": "c", "name": "f", "arguments": "{}"},
                "",
                f"{RESPONSES}::test_items",
            ),
            Row("function_call_output", "honoured", {"call_id": "c", "output": "o"}, "", ITEMS),
            Row(
                "custom_tool_call",
                "honoured",
                {"call_id": "c", "name": "f", "input": "i"},
                "",
                f"{RESPONSES}::test_items",
            ),
            Row("custom_tool_call_output", "honoured", {"call_id": "c", "output": "o"}, "", ITEMS),
            Row(
                "tool_search_call",
                "honoured",
                {"call_id": "c", "execution": "client", "arguments": {}},
                "ignored if OpenAI's servers made the item",
                ITEMS,
            ),
            Row(
                "tool_search_output",
                "honoured",
                {"call_id": "c", "execution": "client", "tools": []},
                "the tools in it are offered to the model; ignored if OpenAI's servers made the item",
                f"{RESPONSES}::test_what_a_tool_search_found_is_offered",
            ),
            Row(
                "additional_tools",
                "honoured",
                {"tools": [{"type": "function", "name": "f"}]},
                "the tools in it are offered in addition to `tools`",
                f"{RESPONSES}::test_tools_inside_the_input",
            ),
            Row("reasoning", "honoured", {"summary": []}, "becomes reasoning in the history", ITEMS),
            Row(
                "compaction",
                "honoured",
                {"encrypted_content": "caretway1.YQ=="},
                "a summary that this gateway wrote; ignored if OpenAI's servers made the item",
                "unit/dialects/openai_responses/test_compaction.py::test_the_item_comes_back_as_text",
            ),
            Row(
                "compaction_trigger",
                "honoured",
                {},
                "the answer is one `compaction` item",
                "contract/test_api.py::test_a_trigger_compacts_through_the_official_sdk",
            ),
            Row(
                "item_reference",
                "refused",
                {"id": "msg_1"},
                "only if the item is not stored; the error asks for the item",
                f"{RESPONSES}::test_references_are_replaced_and_kept_as_what_they_are",
            ),
            *[
                Row(f"{kind}_call", "honoured", {"call_id": "c", "action": {}}, _HISTORY, f"{RESPONSES}::test_items")
                for kind in ("local_shell", "shell", "apply_patch")
            ],
            *[
                Row(
                    f"{kind}_call_output",
                    "honoured",
                    {"call_id": "c", "output": "o"},
                    _HISTORY,
                    f"{RESPONSES}::test_items",
                )
                for kind in ("local_shell", "shell", "apply_patch")
            ],
            *[
                Row(kind, "ignored", {"id": "x"}, "not sent to Cursor")
                for kind in (
                    "file_search_call",
                    "computer_call",
                    "computer_call_output",
                    "web_search_call",
                    "configuration_update",
                    "image_generation_call",
                    "code_interpreter_call",
                    "mcp_list_tools",
                    "mcp_approval_request",
                    "mcp_approval_response",
                    "mcp_call",
                    "program",
                    "program_output",
                )
            ],
        ),
    ),
    Section(
        "Parts of a Responses message",
        ("openai.types.responses.response_input_content_param:ResponseInputContentParam",),
        "content",
        "openai_responses",
        (
            Row("input_text", "honoured", {"text": "hi"}, "", ITEMS),
            Row("input_image", "honoured", {"image_url": _PICTURE}, "`data:` URLs; others need `fetch_images`", ITEMS),
            Row("input_file", "honoured", {"filename": "a", "file_data": _FILE}, _FILES, FILES),
        ),
    ),
    Section(
        "Messages: `POST /v1/messages`",
        (
            "anthropic.types.message_create_params:MessageCreateParamsBase",
            "anthropic.types.beta.message_create_params:MessageCreateParamsBase",
            "anthropic.types.message_count_tokens_params:MessageCountTokensParams",
        ),
        "",
        "anthropic_messages",
        (
            Row("model", "honoured", "m", "required", f"{MESSAGES}::test_the_least_there_is"),
            Row("messages", "honoured", [{"role": "user", "content": "hi"}], "required", f"{MESSAGES}::test_assistant"),
            Row("system", "honoured", "s", "", f"{MESSAGES}::test_system"),
            Row("tools", "honoured", [{"name": "f", "input_schema": {}}], "", f"{MESSAGES}::test_tools"),
            Row("tool_choice", "honoured", {"type": "none"}, "", f"{MESSAGES}::test_tool_choice"),
            Row("stop_sequences", "honoured", ["a"], "up to 64", f"{MESSAGES}::test_stop_sequences"),
            Row("stream", "honoured", True, "", f"{MESSAGES}::test_stream"),
            Row(
                "thinking",
                "honoured",
                {"type": "enabled", "budget_tokens": 2000},
                "a token budget is converted to an effort",
                f"{MESSAGES}::test_thinking_and_effort",
            ),
            Row(
                "output_config",
                "honoured",
                {"effort": "high"},
                f"`effort`; `format`: {_BY_WORDS}",
                f"{MESSAGES}::test_output_format",
            ),
            Row(
                "thread",
                "refused",
                {"id": "t"},
                "a history stored by Anthropic; after the refusal, its SDK sends the whole history",
            ),
            Row(
                "max_tokens",
                "accepted",
                9,
                "cuts the answer only with the setting `max_tokens = cut`",
                CUT,
            ),
            Row(
                "metadata",
                "accepted",
                {"user_id": "u"},
                "only Claude Code's session is read, from `user_id`",
                HINTS,
            ),
            Row("cache_control", "accepted", {"type": "ephemeral"}, _CACHED),
            Row("betas", "accepted", ["b"]),
            Row("billing_policy", "accepted", {"type": "billing_policy", "bill_to": "user_profile"}),
            Row("service_tier", "ignored", "standard_only", "your Cursor plan decides"),
            Row("speed", "ignored", "fast", "ask for the model's `fast` variant"),
            Row("container", "ignored", "c", "names a container on Anthropic's servers"),
            Row(
                "context_management",
                "honoured",
                {"edits": [{"type": "clear_thinking_20251015"}]},
                "see [Edits](#edits-of-context_management)",
                WISHES,
            ),
            Row(
                "mcp_servers",
                "ignored",
                [{"type": "url"}],
                "give the server to the gateway ([tools](tools.md#mcp-servers))",
            ),
            Row("compaction", "honoured", {"type": "summarize"}, "the answer is one `compaction` block", SUMMARISED),
            Row("diagnostics", "ignored", {"a": 1}, _NO_FIELD),
            Row("inference_geo", "ignored", "us", _NO_FIELD),
            Row("user_profile_id", "ignored", "u", _NO_FIELD),
            Row("workspace_id", "ignored", "w", "belongs to Anthropic's console"),
            Row(
                "fallbacks",
                "honoured",
                [{"model": "auto"}],
                "if Cursor refuses a model, the next one is asked; `x-caretway-model` names the one that answers. "
                '`"default"` and the entries\' own parameters are ignored; at most 8',
                "contract/test_fallbacks.py::test_the_models_of_a_request_are_asked_in_order",
            ),
            Row("fallback_credit_token", "ignored", "t", _NO_FIELD),
            Row("temperature", "ignored", 0, _NO_FIELD),
            Row("top_p", "ignored", 0.5, _NO_FIELD),
            Row("top_k", "ignored", 5, _NO_FIELD),
        ),
        ("stream", "temperature", "top_p", "top_k"),
    ),
    Section(
        "Edits of `context_management`",
        ("anthropic.types.beta.beta_context_management_config_param:Edit",),
        "edits",
        "anthropic_messages",
        (
            Row(
                "compact_20260112",
                "honoured",
                {"pause_after_compaction": True, "trigger": {"type": "input_tokens", "value": 1}},
                "above the trigger the answer is a summary; "
                "ignored without `pause_after_compaction`: send `compaction` instead",
                WISHES,
            ),
            Row("clear_thinking_20251015", "accepted", {"keep": "all"}, "thinking of earlier answers is never sent"),
            Row("clear_tool_uses_20250919", "ignored", {}, "Cursor keeps the conversation; send `compaction`"),
        ),
    ),
    Section(
        "Blocks of a message",
        (
            "anthropic.types.content_block_param:ContentBlockParam",
            "anthropic.types.beta.beta_content_block_param:BetaContentBlockParam",
        ),
        "content",
        "anthropic_messages",
        (
            Row("text", "honoured", {"text": "hi"}, "", f"{MESSAGES}::test_text_and_image"),
            Row(
                "image",
                "honoured",
                {"source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}},
                "base64; URLs need `fetch_images`",
                f"{MESSAGES}::test_text_and_image",
            ),
            Row(
                "document",
                "honoured",
                {"source": {"type": "text", "media_type": "text/plain", "data": "a"}},
                "only the text; PDFs need the extra `pdf`",
                f"{MESSAGES}::test_document",
            ),
            Row(
                "search_result",
                "honoured",
                {"source": "s", "title": "t", "content": [{"type": "text", "text": "a"}]},
                "only the text",
                f"{MESSAGES}::test_search_result",
            ),
            Row("tool_result", "honoured", {"tool_use_id": "t", "content": "a"}, "", f"{MESSAGES}::test_assistant"),
            Row("tool_use", "honoured", {"id": "t", "name": "f", "input": {}}, "", f"{MESSAGES}::test_assistant"),
            Row("thinking", "honoured", {"thinking": "t", "signature": ""}, "", f"{MESSAGES}::test_assistant"),
            Row("redacted_thinking", "accepted", {"data": "x"}, "not sent to Cursor; only Anthropic can read it"),
            Row(
                "compaction",
                "honoured",
                {"content": "what was before"},
                "the text of the block replaces everything before the block",
                f"{MESSAGES}::test_a_summary_stands_for_what_was_before",
            ),
            *[
                Row(
                    kind,
                    "honoured",
                    {"tool": {"type": "tool_reference", "name": "f"}},
                    "ignored for tools that Anthropic itself connects",
                    f"{MESSAGES}::test_tool_changes_among_the_messages",
                )
                for kind in ("tool_addition", "tool_removal")
            ],
            *[
                Row(kind, "ignored", {}, "not sent to Cursor")
                for kind in (
                    "server_tool_use",
                    "web_search_tool_result",
                    "web_fetch_tool_result",
                    "advisor_tool_result",
                    "code_execution_tool_result",
                    "bash_code_execution_tool_result",
                    "text_editor_code_execution_tool_result",
                    "tool_search_tool_result",
                    "mcp_tool_use",
                    "mcp_tool_result",
                    "container_upload",
                    "mcp_tool_listing",
                    "fallback",
                )
            ],
        ),
    ),
    Section(
        "Tools of a Messages request",
        (
            "anthropic.types.tool_union_param:ToolUnionParam",
            "anthropic.types.beta.beta_tool_union_param:BetaToolUnionParam",
        ),
        "tools",
        "anthropic_messages",
        (
            Row("custom", "honoured", {"name": "f", "input_schema": {}}, "", f"{MESSAGES}::test_tools"),
            Row("tool_search_tool*", "ignored", {"name": "x"}, _HOSTED),
            Row(
                "mcp_toolset",
                "ignored",
                {"name": "x"},
                "give the server to the gateway ([tools](tools.md#mcp-servers))",
            ),
            *[
                Row(f"{kind}_*", "ignored", {"name": "x"}, _HOSTED)
                for kind in ("advisor", "code_execution", "web_fetch")
            ],
            Row("web_search_*", "ignored", {"name": "x"}, _SEARCH),
            *[
                Row(f"{kind}_*", "ignored", {"name": "x"}, _CLIENT_S)
                for kind in ("bash", "browser_toolset", "computer", "computer_toolset", "memory", "text_editor")
            ],
        ),
    ),
)

INTRODUCTION: Final = """# API

The endpoints, and what the gateway does with each request field that is in the types of openai {openai} and anthropic {anthropic}.

| API | endpoints |
|---|---|
| OpenAI Chat Completions | `POST /v1/chat/completions`, and the old `/v1/completions` |
| OpenAI Responses | `POST /v1/responses` (also a WebSocket), `/v1/responses/compact`, `/v1/responses/input_tokens`, `GET`/`DELETE /v1/responses/{{id}}`, `/input_items` |
| Anthropic Messages | `POST /v1/messages`, `/v1/messages/count_tokens` |
| models, tools, health | `GET /v1/models`, `/v1/models/{{id}}`, `/v1/tools`, `/health`, `/healthz`, `/readyz`, [`/metrics`](deploy.md#prometheus), `/openapi.json` |
| what the gateway does | `GET /caretway/v1/now` ... ([dashboard](dashboard.md#its-api)) |

Most paths also work without `/v1`, with `/v1` twice, or with a slash at the end; `GET /` lists all paths as JSON. Errors, also in a
stream, have `message`, `type`, `code` and `status` in the format of the API ([codes](troubleshooting.md#error-codes)).

| header of a request | effect |
|---|---|
| `x-caretway-session` | `fresh`, `required` or `auto` decides whether a [run may be continued](tools.md) |
| `x-caretway-workspace` | the directory for [local tools](tools.md#local-tools) |
| `x-caretway-mcp` | `on` or `off`: whether to offer the tools of [MCP servers](tools.md#mcp-servers) |
| `x-caretway-key` | the gateway's key, if `Authorization` contains another key |

| header of an answer | content |
|---|---|
| `x-caretway-session`, `x-caretway-session-reason` | [`fresh`, `resumed`, `continued` or `replayed`](tools.md), and the reason |
| `x-caretway-model`, `x-caretway-model-reason` | the [model](models.md#names) that answers, with parameters, and the reason for the choice |
| `x-caretway-backend` | the [backend](backends.md) that answers |
| `x-caretway-ignored` | the fields of the request that have no effect |
| `x-caretway-tools` | the tools whose schemas were [changed](tools.md) |
| `x-caretway-tool-choice` | set if `tool_choice` demands a call and the model made none |
| `x-caretway-pictures` | the images that the model may be unable to see |
| `x-caretway-recovered` | what was [tried again](reliability.md#how-a-lost-run-is-recovered) before the first byte, why, and the cost |
| `x-caretway-budget` | a [budget](usage.md#budgets) of which at least 80 % is used |
| `x-caretway-passed-to` | the gateway of a [cluster](cluster.md) that answers |

The answers of `input_tokens` and `count_tokens` are estimates: four bytes count as one token. `GET /v1/models` accepts Anthropic's
`limit`, `after_id` and `before_id` from clients that send `anthropic-version`. The APIs for embeddings, audio, images, videos,
moderation, reranking, files, vector stores and batches are not supported: they give a 404 that says so.

## Fields

| verdict | meaning |
|---|---|
| honoured | the field does what the API documents |
| accepted | the field has no effect, and needs none |
| ignored | the field does nothing; the header `x-caretway-ignored` names it, unless its value is the default |
| refused | the request fails; the error names the field and what to do instead |

Unknown fields are ignored and named in the header. `null` is the same as an absent field. A value of the wrong type gives a 400, unless
the gateway does not read the field.
"""  # noqa: E501  # rows of tables


def page() -> str:
    return "\n".join([INTRODUCTION.format(**_versions()), *_sections()])


def _versions() -> dict[str, str]:
    import anthropic
    import openai

    return {"openai": openai.__version__, "anthropic": anthropic.__version__}


def _sections() -> Iterator[str]:
    """A table for each section; names with the same verdict and remark share a row."""
    for section in SECTIONS:
        rows: dict[tuple[str, str], list[str]] = {}
        for row in section.rows:
            rows.setdefault((row.verdict, row.words), []).append(f"`{row.name}`")
        yield f"## {section.title}\n\n| field | verdict | remarks |\n|---|---|---|"
        for (verdict, words), names in rows.items():
            yield f"| {', '.join(names)} | {verdict} | {words} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
