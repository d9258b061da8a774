"""The counters in Prometheus' text format."""

from caretway.core.events import RunUsage, Usage
from caretway.core.turn import TurnRecord
from caretway.observe.metrics import MAX_MODELS, Metrics


def record(model: str = "m", outcome: str = "end", usage: Usage | None = None, first: float | None = 70) -> TurnRecord:
    return TurnRecord(
        "req", "openai_chat", "agent", model, "fresh", "first message", True, outcome, 2, first, 90, usage
    )


def test_what_is_counted() -> None:
    metrics = Metrics()
    metrics.response_ended(record(usage=Usage(10, 3, run=RunUsage(10, 3, 4))))
    metrics.response_ended(record(outcome="quota", usage=Usage(99, 99, estimated=True), first=None))
    lines = metrics.render({"parked_turns": 7}).decode().splitlines()
    assert "caretway_parked_turns 7" in lines
    same = 'dialect="openai_chat",backend="agent",session="fresh"'
    assert f'caretway_responses_total{{{same},outcome="end"}} 1' in lines
    assert f'caretway_responses_total{{{same},outcome="quota"}} 1' in lines
    assert not any(line.startswith("caretway_tokens_total") for line in lines), "tokens are counted by runs"
    assert "caretway_tool_calls_total 4" in lines
    assert 'caretway_first_event_seconds_bucket{le="0.05"} 0' in lines
    assert 'caretway_first_event_seconds_bucket{le="0.1"} 1' in lines
    assert 'caretway_first_event_seconds_bucket{le="+Inf"} 1' in lines


def test_the_tokens_of_runs_are_counted_once_each() -> None:
    """Cursor's input includes what was read from and written to the cache; here no token has two kinds."""
    metrics = Metrics()
    metrics.run_ended("m", RunUsage(21_357, 300, 17_575, 411, 120))
    metrics.run_ended("m", RunUsage(1_000, 7))
    metrics.run_ended("m", RunUsage(100, 1, 4_000_000))
    lines = metrics.render({}).decode().splitlines()
    kinds = {"input": 3_371 + 1_000 + 0, "cache_read": 4_017_575, "cache_write": 411, "output": 308}
    for kind, count in kinds.items():
        assert f'caretway_tokens_total{{kind="{kind}",model="m"}} {count}' in lines
    assert 'caretway_reasoning_tokens_total{model="m"} 120' in lines
    assert sum(line.startswith("caretway_tokens_total{") for line in lines) == len(kinds)


def test_clients_cannot_make_labels_without_end_or_break_the_format() -> None:
    metrics = Metrics()
    for number in range(MAX_MODELS + 50):
        metrics.run_ended(f'model "{number}"\n', RunUsage(1, 1))
    text = metrics.render({}).decode()
    assert text.count('kind="input"') == MAX_MODELS + 1
    assert 'model="other"' in text
    assert r'model="model \"0\"\n"' in text
