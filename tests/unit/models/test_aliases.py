"""What clients ask for by default, and what an account has."""

import pytest

from caretway.models.aliases import known_alias

CURSOR = ["default", "claude-4.5-sonnet", "claude-4.5-opus-high", "gpt-5.1", "gpt-5.1-codex", "gemini-3-pro", "grok-4"]
SIMULATED = ["sim-auto", "sim-fast", "sim-think"]

CASES = [
    ("claude-sonnet-4-5-20250929", CURSOR, "claude-4.5-sonnet"),
    ("claude-sonnet-4-5", CURSOR, "claude-4.5-sonnet"),
    ("claude-3-5-sonnet-latest", CURSOR, "claude-4.5-sonnet"),
    ("claude-opus-4-1", CURSOR, "claude-4.5-opus-high"),
    ("claude-haiku-4-5-20251001", CURSOR, "claude-4.5-sonnet"),
    ("gpt-5-codex", CURSOR, "gpt-5.1-codex"),
    ("gpt-5.1", CURSOR, "gpt-5.1"),
    ("gpt-5", CURSOR, "gpt-5.1"),
    ("gpt-4o", CURSOR, "gpt-5.1"),
    ("gpt-3.5-turbo", CURSOR, "gpt-5.1"),
    ("o3", CURSOR, "gpt-5.1"),
    ("gemini-2.5-pro", CURSOR, "gemini-3-pro"),
    ("claude-sonnet-4-5", SIMULATED, "sim-auto"),
    ("gpt-5.5", SIMULATED, "sim-auto"),
    ("claude-sonnet-4-5", ["only-mine"], None),
    ("composer-1", CURSOR, None),
    ("my-own-model", CURSOR, None),
]


@pytest.mark.parametrize(("name", "known", "meant"), CASES, ids=[f"{row[0]} of {row[1][0]}" for row in CASES])
def test_alias(name: str, known: list[str], meant: str | None) -> None:
    assert known_alias(name, known) == meant
