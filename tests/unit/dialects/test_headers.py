"""Headers of ours, the same in every dialect."""

import pytest

from caretway.core.errors import GatewayError
from caretway.dialects.headers import bridge, session_hint
from caretway.dialects.registry import dialects


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("on", True), (" ON ", True), ("true", True), ("1", True), ("off", False), ("no", False), ("", None)],
)
def test_whether_mcp_tools_are_wanted(value: str, wanted: bool | None) -> None:
    assert bridge({"x-caretway-mcp": value}) is wanted


def test_without_the_header_the_setting_decides() -> None:
    assert bridge({}) is None


def test_any_other_word_is_refused() -> None:
    with pytest.raises(GatewayError, match="use on or off, not 'perhaps'"):
        bridge({"x-caretway-mcp": "perhaps"})


def test_every_dialect_reads_it() -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    for dialect in dialects():
        asked = {"model": "m", "prompt": "hi"} if dialect.name == "openai_completions" else dict(body)
        assert dialect.decode(asked, {"x-caretway-mcp": "on"}).bridge is True


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ({}, ""),
        ({"x-claude-code-session-id": "a"}, "a"),
        ({"x-claude-code-session-id": "a", "x-claude-code-agent-id": "e"}, "e"),
        ({"session-id": "b", "x-session-id": "c"}, "b"),
        ({"session-id": "b", "thread-id": "d"}, "d"),
        ({"x-opencode-session": "x" * 500}, "x" * 128),
    ],
)
def test_a_client_s_own_name_for_its_conversation(headers: dict[str, str], hint: str) -> None:
    assert session_hint(headers) == hint
