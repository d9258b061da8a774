"""What an account has used of its plan: how Cursor tells it, what follows from it, and how it is asked for."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.agent import period_usage
from caretway.backends.agent.period_usage import Pools, UsageCheck, pools_of, spent_pool
from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.ports import UnaryResponse
from caretway.cursor.transport.usage_api import UsageApi, read_object, read_period

NOW = 1_796_000_000.0
RESET = {"billingCycleStart": "1793491200000", "billingCycleEnd": "1796083200000"}
UNTIL = 1_796_083_200.0

TOLD: list[tuple[str, Any, Pools | None]] = [
    (
        "some of both pools",
        {**RESET, "planUsage": {"autoPercentUsed": 12.5, "apiPercentUsed": 80, "limit": 2000, "remaining": 400}},
        Pools(12.5, 80.0, resets_at=UNTIL),
    ),
    ("zeros are left out", {"planUsage": {"apiPercentUsed": 100, "limit": 2000}}, Pools(0.0, 100.0)),
    ("money alone, spent", {"planUsage": {"totalSpend": 2000, "limit": "2000"}}, Pools(0.0, 100.0)),
    ("money alone, left", {"planUsage": {"limit": 2000, "remaining": 500}}, Pools(0.0, 75.0)),
    ("nothing used yet", {"planUsage": {"limit": 2000, "remaining": 2000}}, Pools()),
    (
        "more is paid for",
        {"planUsage": {"apiPercentUsed": 100}, "spendLimitUsage": {"individualLimit": 500, "individualRemaining": 20}},
        Pools(0.0, 100.0, more_paid=True),
    ),
    (
        "more was paid for",
        {"planUsage": {"apiPercentUsed": 100}, "spendLimitUsage": {"individualLimit": 500, "individualUsed": 500}},
        Pools(0.0, 100.0),
    ),
    (
        "what is paid for has no limit",
        {"planUsage": {"apiPercentUsed": 100}, "spendLimitUsage": {"individualLimit": 2_147_483_647}},
        Pools(0.0, 100.0, more_paid=True),
    ),
    (
        "a team pays for more",
        {"planUsage": {"apiPercentUsed": 100}, "spendLimitUsage": {"pooledLimit": 500, "pooledRemaining": 20}},
        Pools(0.0, 100.0, more_paid=True),
    ),
    ("a seat of a team", {**RESET, "displayMessage": "x"}, None),
    ("a time that is none", {"planUsage": {"apiPercentUsed": 1}, "billingCycleEnd": "9" * 30}, Pools(0.0, 1.0)),
    ("no numbers", {"planUsage": {"apiPercentUsed": "nan", "autoPercentUsed": True, "limit": []}}, Pools()),
    ("a list", [1], None),
]


def read_usage(body: bytes) -> Pools | None:
    return pools_of(read_period(read_object(body)))


@pytest.mark.parametrize(("told", "usage"), [row[1:] for row in TOLD], ids=[row[0] for row in TOLD])
def test_read(told: Any, usage: Pools | None) -> None:
    assert read_usage(msgspec.json.encode(told)) == usage


@given(
    st.binary() | st.recursive(st.none() | st.floats() | st.text(), lambda of: st.lists(of)).map(msgspec.json.encode)
)
def test_any_bytes(body: bytes) -> None:
    read_usage(body)


@given(st.dictionaries(st.sampled_from(["planUsage", "billingCycleEnd"]), st.integers() | st.text() | st.floats()))
def test_any_values(values: dict[str, Any]) -> None:
    usage = read_usage(msgspec.json.encode({"planUsage": {"apiPercentUsed": 100}, **values}))
    if usage is not None:
        spent_pool(usage, "gpt-5.4", NOW)


JUDGED = [
    (Pools(0, 100, resets_at=UNTIL), "gpt-5.4", ('"Other Models"', "2026-12-01", "composer-2.5")),
    (Pools(100, 20), "composer-2.5", ('"Cursor Models"', "other makers", "dashboard")),
    (Pools(130, 100), "gpt-5.4", ('"Other Models"', "dashboard")),
    (Pools(100, 99.9), "gpt-5.4", None),
    (Pools(0, 100), "auto", None),
    (Pools(0, 100, more_paid=True), "gpt-5.4", ('"Other Models"', "on-demand", "composer-2.5")),
]


@pytest.mark.parametrize(("usage", "model", "says"), JUDGED)
def test_the_pool_of_the_model_decides(usage: Pools, model: str, says: tuple[str, ...] | None) -> None:
    error = spent_pool(usage, model, NOW)
    if says is None:
        assert error is None
        return
    assert error is not None
    assert error.kind is ErrorKind.QUOTA
    assert all(words in str(error) for words in says), str(error)
    assert ("have usage left" in str(error)) == (min(usage.own, usage.other) < 100)


def test_a_reset_that_is_over_is_not_told() -> None:
    error = spent_pool(Pools(0, 100, resets_at=NOW - 1), "gpt-5.4", NOW)
    assert error is not None
    assert error.retry_after is None and "resets" not in str(error)
    error = spent_pool(Pools(0, 100, resets_at=UNTIL), "gpt-5.4", NOW)
    assert error is not None and error.retry_after == UNTIL - NOW


class UsageEndpoint:
    """Where usage is asked for."""

    def __init__(self, answer: UnaryResponse | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.opens = asyncio.Event()
        self.opens.set()

    async def call(self, path: str, body: bytes) -> UnaryResponse:
        self.asked += 1
        await self.opens.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def check(self) -> UsageCheck:
        return UsageCheck(UsageApi(self.call).current, lambda: NOW)


JSON = {"content-type": "application/json"}
SPENT = UnaryResponse(200, JSON, msgspec.json.encode({"planUsage": {"apiPercentUsed": 100}}))


async def test_refusals_that_come_together_make_one_call() -> None:
    endpoint = UsageEndpoint(SPENT)
    endpoint.opens.clear()
    check = endpoint.check()
    waiting = [asyncio.ensure_future(check.spent("me", model)) for model in ("gpt-5.4", "gpt-5.4", "auto")]
    await asyncio.sleep(0)
    waiting[0].cancel()  # one who does not wait any more takes nothing from the others
    endpoint.opens.set()
    other, own = await asyncio.gather(*waiting[1:])
    assert (other is not None, own, endpoint.asked) == (True, None, 1)
    assert await check.spent("me", "gpt-5.4") is not None
    assert endpoint.asked == 1
    await check.spent("somebody else", "gpt-5.4")
    assert endpoint.asked == 2, "another account starts anew"


async def test_an_answer_is_good_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(period_usage, "FRESH_S", 0.0)
    endpoint = UsageEndpoint(SPENT)
    check = endpoint.check()
    for asked in (1, 2):
        assert await check.spent("me", "gpt-5.4") is not None
        assert endpoint.asked == asked


NOTHING_KNOWN = [
    UnaryResponse(403, {}, b""),
    UnaryResponse(200, {}, b"<html>"),
    UnaryResponse(200, JSON, b"<html>"),
    UnaryResponse(200, JSON, b"{}"),
    GatewayError(ErrorKind.UPSTREAM_DOWN, "gone"),
    GatewayError(ErrorKind.SIGNED_OUT, "who are you"),
]


@pytest.mark.parametrize("answer", NOTHING_KNOWN)
async def test_what_goes_wrong_means_that_nothing_is_known(answer: UnaryResponse | Exception) -> None:
    endpoint = UsageEndpoint(answer)
    check = endpoint.check()
    assert await check.spent("me", "gpt-5.4") is None
    asked = endpoint.asked
    assert await check.spent("me", "gpt-5.4") is None
    assert endpoint.asked == asked, "it is not asked again at once"


async def test_no_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(period_usage, "PATIENCE_S", 0.01)
    endpoint = UsageEndpoint(SPENT)
    endpoint.opens.clear()
    assert await endpoint.check().spent("me", "gpt-5.4") is None
