"""What is counted, and that Prometheus' own parser reads it."""

import re
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from caretway.core.caller import Caller
from caretway.core.events import RunUsage, Usage
from caretway.core.records import RefusedRequest, RequestOrigin, RunRecord, TurnRecord
from caretway.observe.metrics import GAUGES, MAX_HISTOGRAMS, MAX_MODELS, MAX_SERIES, Metrics

NOW = dict.fromkeys(GAUGES, 7)
UNITS = ("_seconds", "_bytes", "_total", "_info", "_fds")
UNITLESS = {f"caretway_{name}" for name in GAUGES}
"""Names that were promised before there was a rule: counts of something that is now."""


def record(
    model: str = "m", outcome: str = "end", usage: Usage | None = None, first: float | None = 70, key: str = "ada"
) -> TurnRecord:
    return TurnRecord(
        request_id="req",
        dialect="openai_chat",
        backend="agent",
        model=model,
        session="fresh",
        reason="first message",
        stream=True,
        outcome=outcome,
        calls=2,
        first_event_ms=first,
        total_ms=90,
        usage=usage,
        caller=Caller(key),
    )


def run(
    usage: RunUsage | None, model: str = "m", outcome: str = "ended", again: bool = False, key: str = "ada"
) -> RunRecord:
    origin = RequestOrigin(Caller(key))
    return RunRecord("r", origin, "agent", model, model, "c", "fresh", "first message", outcome, usage, again=again)


def families(metrics: Metrics) -> dict[str, Metric]:
    found = list(text_string_to_metric_families(metrics.render(NOW).decode()))
    assert len({one.name for one in found}) == len(found), "a family is told once"
    return {one.name: one for one in found}


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """The sum of all series with these labels."""
    samples = [one for family in families(metrics).values() for one in family.samples if one.name == name]
    return sum(one.value for one in samples if labels.items() <= one.labels.items())


def test_what_is_counted() -> None:
    metrics = Metrics()
    metrics.response_ended(record(usage=Usage(10, 3, run=RunUsage(10, 3, 4))))
    metrics.response_ended(record(outcome="quota", usage=Usage(99, 99, estimated=True), first=None))
    same = {"dialect": "openai_chat", "backend": "agent", "model": "m", "key": "ada", "session": "fresh"}
    assert value(metrics, "caretway_responses_total", **same, outcome="end") == 1
    assert value(metrics, "caretway_responses_total", **same, outcome="quota") == 1
    assert value(metrics, "caretway_tokens_total") == 0, "tokens are counted by runs"
    assert value(metrics, "caretway_tool_calls_total", backend="agent", model="m") == 4
    assert value(metrics, "caretway_session_reasons_total", session="fresh", reason="first message") == 2
    where = {"backend": "agent", "model": "m", "session": "fresh"}
    assert value(metrics, "caretway_first_event_seconds_bucket", **where, le="0.05") == 0
    assert value(metrics, "caretway_first_event_seconds_bucket", **where, le="0.1") == 1
    assert value(metrics, "caretway_first_event_seconds_count", **where) == 1
    assert value(metrics, "caretway_response_duration_seconds_count", **where) == 2
    assert value(metrics, "caretway_parked_turns") == 7


def test_every_family_has_help_a_type_and_a_unit() -> None:
    metrics = Metrics()
    metrics.response_ended(record(usage=Usage(1, 1)))
    metrics.run_ended(run(RunUsage(1, 1)))
    text = metrics.render(NOW).decode()
    told = families(metrics)
    assert {one.type for one in told.values()} == {"counter", "gauge", "histogram"}
    for family in told.values():
        assert family.documentation.endswith("."), family.name
        assert (family.type != "unknown" and family.samples) or family.type == "counter", family.name
        full = f"{family.name}_total" if family.type == "counter" else family.name
        assert full.endswith(UNITS) or full in UNITLESS, full
        assert f"# HELP {full} " in text and f"# TYPE {full} {family.type}" in text
    assert text.count("# HELP ") == text.count("# TYPE ") == len(told)
    assert {"caretway_build_info", "process_cpu_seconds", "process_start_time_seconds"} <= told.keys()


def test_the_guide_names_every_metric() -> None:
    guide = Path(__file__).parents[3].joinpath("docs", "deploy.md").read_text()
    told = set(re.findall(r"`((?:caretway|process)_\w+)`", guide))
    metrics = Metrics()
    heads = re.findall(r"^# HELP (\S+)", metrics.render(NOW).decode(), re.MULTILINE)
    assert set(heads) - told == set()
    assert told - set(heads) <= {"process_resident_memory_bytes", "process_max_fds"}, "not on every platform"


def test_the_tokens_of_runs_are_counted_once_each() -> None:
    """Cursor's input includes what was read from and written to the cache; here no token has two kinds."""
    metrics = Metrics()
    metrics.run_ended(run(RunUsage(21_357, 300, 17_575, 411, 120)))
    metrics.run_ended(run(RunUsage(1_000, 7)))
    metrics.run_ended(run(RunUsage(100, 1, 4_000_000)))
    kinds = {"input": 3_371 + 1_000 + 0, "cache_read": 4_017_575, "cache_write": 411, "output": 308}
    for kind, count in kinds.items():
        assert value(metrics, "caretway_tokens_total", kind=kind, model="m") == count
    assert value(metrics, "caretway_reasoning_tokens_total", model="m") == 120
    assert value(metrics, "caretway_tokens_total") == sum(kinds.values())


def test_clients_cannot_make_labels_without_end_or_break_the_format() -> None:
    """Whatever clients call their models, the page stays below a size, and no response goes uncounted."""
    metrics = Metrics()
    for number in range(5 * MAX_SERIES):
        name = f'model "{number}"\n\\{{}}'
        metrics.run_ended(run(RunUsage(1, 1), name, key=f"key {number % 7}"))
        metrics.response_ended(record(model=name, outcome=f"outcome {number % 50}", key=f"key {number % 1000}"))
    told = families(metrics)
    models = {one.labels["model"] for one in told["caretway_tokens"].samples}
    assert len(models) == MAX_MODELS + 1 and "other" in models and 'model "0"\n\\{}' in models
    assert value(metrics, "caretway_responses_total") == 5 * MAX_SERIES
    assert value(metrics, "caretway_first_event_seconds_count") == 5 * MAX_SERIES
    assert len(told["caretway_responses"].samples) <= MAX_SERIES + 50
    counts = [one for one in told["caretway_first_event_seconds"].samples if one.name.endswith("_count")]
    assert len(counts) <= MAX_HISTOGRAMS + 1
    assert not re.search(rb"\n\\\{", metrics.render(NOW))


def test_a_run_that_is_told_twice_is_one_run() -> None:
    metrics = Metrics()
    metrics.run_ended(run(None, outcome="stopped"))
    metrics.run_ended(run(RunUsage(10, 3), outcome="stopped", again=True))
    metrics.run_ended(run(RunUsage(10, 3), key="bob"))
    assert value(metrics, "caretway_runs_total", outcome="stopped", key="ada") == 1
    assert value(metrics, "caretway_runs_total", outcome="ended", key="bob") == 1
    assert value(metrics, "caretway_tokens_total", kind="input", key="ada") == 10


def test_refused_requests() -> None:
    metrics = Metrics()
    for kind in ("auth", "auth", "rate_limit"):
        metrics.request_refused(RefusedRequest("r", "POST", "/v1/messages", 401, kind, kind, "No.", 0.0))
    assert value(metrics, "caretway_refused_requests_total", kind="auth") == 2
    assert value(metrics, "caretway_refused_requests_total") == 3
