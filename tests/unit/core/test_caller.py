"""Clients by their user agents: short names that people know, whatever is sent."""

import pytest

from caretway.core.caller import MAX_CLIENT_CHARS, Caller, caller_of, client_name


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14", "opencode"),
        ("claude-cli/2.1.197 (external, cli)", "claude-code"),
        ("codex_exec/0.166.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.166.0)", "codex"),
        ("codex_cli_rs/0.50.0 (Mac OS 15.0)", "codex"),
        ("OpenAI/Python 3.49.0", "openai-python"),
        ("AsyncOpenAI/Python 3.49.0", "openai-python"),
        ("Anthropic/Python 2.8.0", "anthropic-python"),
        ("OpenAI/JS 5.23.2", "openai-js"),
        ("ai/6.0.326 ai-sdk/provider-utils/4.0.65 runtime/node.js/v20.20.2", "ai-sdk"),
        ("ai-sdk/openai/3.0.139 ai-sdk/provider-utils/4.0.65", "ai-sdk"),
        ("langchain-anthropic/1.7.7", "langchain-anthropic"),
        ("curl/8.5.0", "curl"),
        ("python-httpx", "python-httpx"),
        ("Mozilla/5.0 (X11; Linux)", "mozilla"),
        ("", ""),
        ("   ", ""),
        ("\x1b[31mred/1", ""),
        ("日本/1", ""),
        ("a" * 5000, "a" * MAX_CLIENT_CHARS),
    ],
)
def test_names(agent: str, name: str) -> None:
    assert client_name(agent) == name
    assert caller_of("laptop", agent) == Caller("laptop", name)
