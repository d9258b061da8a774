"""Tables of the names that `sim: exec`, `sim: query` and `sim: fail` accept.

Each wire says what a word looks like on it.
"""

from typing import Final

EXEC_KINDS: Final = frozenset(
    [
        "shell",
        "shell_stream",
        "read",
        "write",
        "delete",
        "ls",
        "grep",
        "fetch",
        "diagnostics",
        "background_shell",
        "list_mcp_resources",
        "read_mcp_resource",
        "write_shell_stdin",
        "request_context",
        "unknown",
        "mcp_state",
        "execute_hook",
        "subagent",
        "force_background_shell",
        "force_background_subagent",
        "subagent_await",
        "smart_mode_classifier",
        "canvas_diagnostics",
        "shell_precheck",
        "mcp_precheck",
        "web_fetch_precheck",
        "git_diff",
        "mini_swe_bash",
        "conversation_search",
        "store_conflict",
    ]
)
FAILURES: Final = (
    "unauthenticated",
    "usage_limit",
    "rate_limit",
    "overflow",
    "bad_model",
    "deprecated",
    "unavailable",
    "internal",
    "bare",
    "quota",
    "outdated",
    "schema",
    "policy",
    "plan",
    "not_in_plan",
    "gone",
    "late",
    "region",
    "team_region",
    "max_mode",
    "denied",
    "no_exec",
    "picture",
    "eof",
)
"""What `sim: fail` can name. Each wire has a table of its own that says what it looks like there."""
QUERY_KINDS: Final = frozenset(
    [
        "web_search",
        "ask_question",
        "create_plan",
        "web_fetch",
        "switch_mode",
        "setup_vm",
        "pull_request",
        "mcp_auth",
        "generate_image",
        "kind_13",
        "connect_scm",
    ]
)
