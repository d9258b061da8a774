"""The table of refusals, row by row: what is seen, what it means, what to type."""

from itertools import product

import pytest

from caretway.core.errors import RETRYABLE, ErrorKind
from caretway.cursor.transport.faults import fault_from_connect, retryable, unheard
from caretway.cursor.transport.refusals import (
    CHAT_CAUSES,
    PROGRAM_CAUSES,
    REFUSALS,
    SUSPECTS,
    TELLS,
    AskedRun,
    is_own,
    may_be_conversation,
    refusal_of,
    says_nothing,
    suspects,
)
from caretway.cursor.wire.envelope import ConnectError
from caretway.cursor.wire.messages import ai

K = ErrorKind
E = ai.ErrorDetails
RUN = AskedRun("gpt-5.4", tools=True, history=True, continued=True)
PROVIDER = "We're having trouble connecting to the model provider."

TABLE = [
    ("bare", ConnectError("resource_exhausted", "Error"), K.REFUSED, "refused_without_reason", "composer-2.5"),
    (
        "bare",
        ConnectError("resource_exhausted", error=E.ERROR_RESOURCE_EXHAUSTED),
        K.REFUSED,
        None,
        "--agent-quirks model=",
    ),
    ("gone", ConnectError("not_found", "Error"), K.MODEL_UNKNOWN, None, "caretway models"),
    (
        "not in plan",
        ConnectError("failed_precondition", "This model is not included in your plan"),
        K.FORBIDDEN,
        "plan_or_team_refused",
        "caretway models",
    ),
    ("plan", ConnectError("failed_precondition", "Error"), K.FORBIDDEN, "plan_or_team_refused", "caretway models"),
    (
        "team_region",
        ConnectError("failed_precondition", "This region is not yet available for your team"),
        K.FORBIDDEN,
        "team_region_refused",
        "--run-url",
    ),
    ("late", ConnectError("invalid_argument", "Error"), K.BAD_REQUEST, "refused_as_invalid", "1 MiB"),
    ("denied", ConnectError("permission_denied"), K.FORBIDDEN, None, "caretway login"),
    (
        "schema",
        ConnectError("internal", error=E.ERROR_PROVIDER_ERROR, detail=PROVIDER, info=(("providerStatusCode", "400"),)),
        K.BAD_REQUEST,
        "tool_schema_refused",
        "anyOf",
    ),
    (
        "policy",
        ConnectError("failed_precondition", error=E.ERROR_MODEL_BLOCKED, title="Review Data Policy"),
        K.FORBIDDEN,
        "model_blocked",
        "https://cursor.com/dashboard/restricted_models/gpt-5.4",
    ),
    (
        "outdated",
        ConnectError("permission_denied", error=E.ERROR_OUTDATED_CLIENT),
        K.UPSTREAM_DEPRECATED,
        None,
        "--agent-client-version",
    ),
    (
        "outdated",
        ConnectError("resource_exhausted", "Update Required"),
        K.UPSTREAM_DEPRECATED,
        None,
        "--agent-client-version",
    ),
    (
        "region",
        ConnectError("permission_denied", error=E.ERROR_UNSUPPORTED_REGION),
        K.FORBIDDEN,
        "region_refused",
        "proxy",
    ),
    ("region", ConnectError("unknown", "Model not available in your region"), K.FORBIDDEN, "region_refused", "proxy"),
    (
        "max_mode",
        ConnectError("invalid_argument", error=E.ERROR_MAX_MODE_REQUIRED),
        K.FORBIDDEN,
        "max_mode_required",
        "gpt-5.4@max",
    ),
    ("picture", ConnectError("internal", "Unable to parse image"), K.BAD_REQUEST, "picture_refused", "256 KiB"),
    ("no_exec", ConnectError("internal", "No exec result"), K.UPSTREAM_ERROR, "no_exec_result", "--trace"),
    # no row: the kind says enough
    (None, ConnectError("resource_exhausted", "You've hit your usage limit"), K.QUOTA, None, "dashboard"),
    (None, ConnectError("resource_exhausted", error=E.ERROR_PRO_USER_USAGE_LIMIT), K.QUOTA, None, "dashboard"),
    (None, ConnectError("internal", error=E.ERROR_PROVIDER_ERROR, detail=PROVIDER), K.UPSTREAM_ERROR, None, "again"),
    (None, ConnectError("unavailable", "Error"), K.UPSTREAM_DOWN, None, "again"),
    (None, ConnectError("not_found", "no such model", error=E.ERROR_BAD_MODEL_NAME), K.MODEL_UNKNOWN, None, "models"),
    # the enum decides, whatever the words say
    (None, ConnectError("unknown", "update required", error=E.ERROR_PRO_USER_USAGE_LIMIT), K.QUOTA, None, "dashboard"),
]


@pytest.mark.parametrize(
    ("row", "error", "kind", "code", "typed"), TABLE, ids=[f"{row[0]}-{row[1].code}" for row in TABLE]
)
def test_row(row: str | None, error: ConnectError, kind: ErrorKind, code: str | None, typed: str) -> None:
    found = refusal_of(error)
    assert (found.row if found else None) == row
    fault = fault_from_connect(error, RUN)
    assert fault.kind is kind
    assert code is None or fault.code == code
    assert typed in fault.hint
    if fault.kind not in RETRYABLE:  # some clients repeat whatever has these words in it
        assert "exhausted" not in str(fault) and "unavailable" not in str(fault)
        assert not retryable(error)


def test_every_row_is_in_the_table() -> None:
    assert {row.row for row in REFUSALS} == {row[0] for row in TABLE if row[0]}


def test_only_the_end_of_a_run_has_a_row() -> None:
    assert fault_from_connect(ConnectError("resource_exhausted")).kind is K.RATE_LIMITED
    assert fault_from_connect(ConnectError("not_found")).kind is K.UPSTREAM_ERROR


SILENT = [
    (ConnectError("resource_exhausted"), True),
    (ConnectError("resource_exhausted", "Error"), True),
    (ConnectError("resource_exhausted", "[resource_exhausted] Error"), True),
    (ConnectError("resource_exhausted", "resource_exhausted"), True),
    (ConnectError("resource_exhausted", "Error", error=E.ERROR_RATE_LIMITED), False),
    (ConnectError("resource_exhausted", "Error", detail="Slow down"), False),
    (ConnectError("resource_exhausted", "Slow down"), False),
]


@pytest.mark.parametrize(("error", "silent"), SILENT)
def test_what_says_nothing(error: ConnectError, silent: bool) -> None:
    assert says_nothing(error) is silent
    assert bool(may_be_conversation(error)) is silent


CONVERSATION = {"resource_exhausted": True, "not_found": True, "invalid_argument": True, "internal": False}


@pytest.mark.parametrize(("code", "may"), CONVERSATION.items())
def test_what_may_be_about_a_kept_conversation(code: str, may: bool) -> None:
    assert bool(may_be_conversation(ConnectError(code, "Error"))) is may


LEFT = [
    (RUN, "region shape version usage plan schema ids conversation capacity"),
    (AskedRun("gpt-5.4"), "region shape version usage plan capacity"),
    (AskedRun("gpt-5.4", tools=True), "region shape version usage plan schema capacity"),
    (AskedRun("gpt-5.4", history=True), "region shape version usage plan ids capacity"),
    (AskedRun("composer-2.5"), "shape version plan capacity"),
    (AskedRun("gpt-5.4", only=PROGRAM_CAUSES), "region usage plan capacity"),
    (AskedRun("gpt-5.4", only=CHAT_CAUSES), "region version usage plan capacity"),
    (AskedRun("composer-2.5", only=PROGRAM_CAUSES), "plan capacity"),
    (AskedRun("gpt-5.4", tools=True, history=True, heard=True), "usage capacity"),
    (AskedRun("composer-2.5", heard=True), "capacity"),
]


@pytest.mark.parametrize(("run", "left"), LEFT, ids=[row[1] for row in LEFT])
def test_the_run_rules_causes_out(run: AskedRun, left: str) -> None:
    assert suspects(run) == tuple(left.split())


def test_every_cause_is_named_in_order_and_has_a_way_to_tell() -> None:
    assert len(SUSPECTS) == 9
    assert {name for about, _ in TELLS for name in about} == set(SUSPECTS)
    flags = product((False, True), repeat=5)
    for own, tools, history, continued, heard in flags:
        run = AskedRun("auto" if own else "gpt-5.4", tools, history, continued, heard)
        hint = fault_from_connect(ConnectError("resource_exhausted"), run).hint
        places = [hint.index(SUSPECTS[name].what) for name in suspects(run)]
        assert places == sorted(places)
        for number in range(1, len(places) + 1) if len(places) > 1 else ():
            assert hint.count(f"({number})") == 2, "named once, and told apart once"
        assert "wait a little" not in hint.lower()


def test_another_model_is_asked_than_the_one_that_was_refused() -> None:
    error = ConnectError("resource_exhausted")
    assert "ask the model `composer-2.5`" in fault_from_connect(error, RUN).hint
    assert "ask another model of `caretway models`" in fault_from_connect(error, AskedRun("composer-2.5")).hint


def test_not_found_in_the_middle_of_an_answer_is_no_unknown_model() -> None:
    assert fault_from_connect(ConnectError("not_found"), AskedRun("gpt-5.4", heard=True)).kind is K.UPSTREAM_ERROR


@pytest.mark.parametrize("code", ["not_found", "invalid_argument", "resource_exhausted"])
@pytest.mark.parametrize("run", [AskedRun("gpt-5.4"), AskedRun("gpt-5.4", tools=True)])
def test_a_first_message_that_is_refused_is_no_matter_of_the_conversation(code: str, run: AskedRun) -> None:
    fault = fault_from_connect(ConnectError(code, "Error"), run)
    assert "conversation" not in f"{fault} {fault.hint}"
    later = fault_from_connect(ConnectError(code, "Error"), RUN)
    assert "conversation" in f"{later} {later.hint}"


def test_own_models() -> None:
    assert is_own("composer-2.5") and is_own("auto") and is_own("default")
    assert not is_own("claude-fable-5")


def test_a_stream_without_a_word() -> None:
    fault = unheard()
    assert (fault.kind, fault.code, fault.may_repeat) == (K.UPSTREAM_DOWN, "empty_stream", False)
    assert "--run-url" in fault.hint and "proxy" in fault.hint
