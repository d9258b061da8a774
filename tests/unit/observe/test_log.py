"""The line at the end of each response: what it says about tokens."""

import logging

import pytest

from caretway.core.events import RunUsage, Usage
from caretway.core.turn import TurnRecord
from caretway.observe.log import LogObserver

CASES = [
    (None, "in=- cached=- out=-"),
    (Usage(12_100, 9, 12_000), "in=12100 cached=12000 out=9"),
    (Usage(12_100, 9, estimated=True), "in=~12100 cached=- out=~9"),
    (Usage(5, 9, run=RunUsage(40, 20, 30, steps=3)), "in=5 cached=- out=9 run=40/30/-/20 steps=3"),
    (Usage(5, 9, run=RunUsage(40, 20, 30, 4, complete=False)), "in=5 cached=- out=9 run=40/30/4/20 steps=1+"),
]


@pytest.mark.parametrize(("usage", "told"), CASES)
def test_tokens(usage: Usage | None, told: str, caplog: pytest.LogCaptureFixture) -> None:
    record = TurnRecord("req", "openai_chat", "agent", "m", "fresh", "first message", True, "end", usage=usage)
    with caplog.at_level(logging.INFO, "caretway.turns"):
        LogObserver().response_ended(record)
    assert caplog.messages[0].endswith(told)
