"""What the program says when it fails, and what a client is told. The texts are the described ones."""

import pytest

from caretway.backends.cli.faults import Circumstances, classify, plain, reset_time
from caretway.core.errors import ErrorKind

NOON = 1_794_000_000.0  # 2026-11-06

SAMPLES: list[tuple[str, ErrorKind]] = [
    ("Error: Authentication required. Please run 'agent login' first", ErrorKind.SIGNED_OUT),
    ("Not authenticated", ErrorKind.SIGNED_OUT),
    ("\x1b[31mNot logged in\x1b[0m", ErrorKind.SIGNED_OUT),
    ("ConnectError: [unauthenticated] Error", ErrorKind.SIGNED_OUT),
    ("HTTP 401 Unauthorized", ErrorKind.SIGNED_OUT),
    ("Authentication failed", ErrorKind.SIGNED_OUT),
    ("auth error: token invalid", ErrorKind.SIGNED_OUT),
    ("The provided API key is invalid.", ErrorKind.SIGNED_OUT),
    ("Error: the login keychain is locked", ErrorKind.SIGNED_OUT),
    ("auth", ErrorKind.SIGNED_OUT),
    ("Error: auth required", ErrorKind.SIGNED_OUT),
    ("Auth token missing", ErrorKind.SIGNED_OUT),
    ("OAuth session missing", ErrorKind.SIGNED_OUT),
    ("please authenticate", ErrorKind.SIGNED_OUT),
    ("not authorized", ErrorKind.SIGNED_OUT),
    ("model not found (auth required)", ErrorKind.MODEL_UNKNOWN),
    ("auth server: connect ECONNREFUSED 1.2.3.4:443", ErrorKind.UPSTREAM_DOWN),
    ("cannot read ./auth.json, auth-helper or lib/auth", ErrorKind.INTERNAL),
    ("Invalid model value: gpt-9", ErrorKind.MODEL_UNKNOWN),
    ("You've hit your usage limit. You've saved $5. Resets on 1/2/2030. continue with Auto", ErrorKind.QUOTA),
    ("quota exceeded", ErrorKind.QUOTA),
    ("You've hit your usage limit (authentication required to raise it)", ErrorKind.QUOTA),
    ("ConnectError: [failed_precondition] This model is not included in your plan", ErrorKind.FORBIDDEN),
    ("Error: 429", ErrorKind.RATE_LIMITED),
    ("rate limit exceeded", ErrorKind.RATE_LIMITED),
    ("Too Many Requests", ErrorKind.RATE_LIMITED),
    ("Cannot use this model: gpt-9. Available models: a, b", ErrorKind.MODEL_UNKNOWN),
    ("model not found", ErrorKind.MODEL_UNKNOWN),
    ("Model 'x-1' not found", ErrorKind.MODEL_UNKNOWN),
    ("invalid model", ErrorKind.MODEL_UNKNOWN),
    ("Unknown model: z (usage limit unauthorized)", ErrorKind.MODEL_UNKNOWN),
    ("context length exceeded", ErrorKind.CONTEXT_TOO_LONG),
    ("the prompt is too long", ErrorKind.CONTEXT_TOO_LONG),
    ("connect ECONNREFUSED 1.2.3.4:443", ErrorKind.UPSTREAM_DOWN),
    ("getaddrinfo ENOTFOUND api2.cursor.sh", ErrorKind.UPSTREAM_DOWN),
    ("ETIMEDOUT", ErrorKind.UPSTREAM_DOWN),
    ("TypeError: fetch failed", ErrorKind.UPSTREAM_DOWN),
    ("ConnectError: [unavailable] Error", ErrorKind.UPSTREAM_DOWN),
    ("Chat abc not found", ErrorKind.TURN_GONE),
    ("no such session", ErrorKind.TURN_GONE),
    ("Workspace Trust Required ... Pass --trust", ErrorKind.INTERNAL),
    ("it broke, says the author; authorize the plan in src/auth/x.ts", ErrorKind.INTERNAL),
    ("", ErrorKind.UPSTREAM_PROTOCOL),
]


@pytest.mark.seed("C08", "C09", "C10")
@pytest.mark.parametrize(("said", "kind"), SAMPLES)
def test_table(said: str, kind: ErrorKind) -> None:
    assert classify(said, Circumstances("gpt-9", now=NOON)).kind is kind


@pytest.mark.seed("C10")
def test_a_model_error_names_what_there_is() -> None:
    error = classify("Cannot use this model: gpt-9. Available models: auto, sonnet-4.5", Circumstances("gpt-9"))
    assert "gpt-9" in error.message
    assert "auto, sonnet-4.5" in error.hint
    assert error.param == "model"


@pytest.mark.seed("C09")
def test_a_quota_error_says_when_it_ends_and_what_else_there_is() -> None:
    said = "You've hit your usage limit. Your limits will reset on 11/16/2026. Switch to continue with Auto."
    error = classify(said, Circumstances(now=NOON))
    assert "2026-11-16" in error.hint
    assert "Auto" in error.hint
    assert error.retry_after is not None
    assert 8 * 86400 < error.retry_after < 11 * 86400


@pytest.mark.parametrize("said", ["reset on 13/45/2026", "resets soon", "reset on 1/2"])
def test_a_date_that_is_none(said: str) -> None:
    assert reset_time(said, NOON) == (None, "")


def test_a_date_in_the_past_still_waits_a_little() -> None:
    assert reset_time("reset on 1/1/2020", NOON) == (60.0, "2020-01-01")


def test_the_bare_code_is_decided_by_the_prompts_size() -> None:
    said = "ConnectError: [resource_exhausted] Error"
    refused = classify(said, Circumstances(model="gpt-5.4", prompt_chars=1000))
    assert (refused.kind, refused.code) == (ErrorKind.REFUSED, "refused_without_reason")
    assert "region" in refused.hint and "--agent" not in refused.hint, "nothing that is about another backend"
    assert classify(said, Circumstances(prompt_chars=400_000)).kind is ErrorKind.CONTEXT_TOO_LONG
    assert classify(said, Circumstances(prompt_chars=60_000, window=20_000)).kind is ErrorKind.CONTEXT_TOO_LONG


@pytest.mark.seed("C11")
def test_ends_without_words() -> None:
    assert "exit code 7" in classify("", Circumstances(exit_code=7)).message
    assert "signal 9" in classify("", Circumstances(exit_code=-9)).message


@pytest.mark.seed("C12")
def test_colours_are_taken_off() -> None:
    assert plain("\x1b[1;31mNot \x1b[0mlogged\x1b]8;;x\x07 in") == "Not logged in"
