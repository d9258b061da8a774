"""Families of series: what a scraper reads, judged by Prometheus' own parser, and how many series there can be."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from caretway.observe.metrics import OTHER, CounterFamily, Family, HistogramFamily, Names, gauge_lines

WAIT = Family("t_wait_seconds", "How long.", ("model",), frozenset({"model"}))
SEEN = Family("t_seen_total", "How often.", ("kind", "model"), frozenset({"model"}))


def parsed(lines: list[str]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


@given(st.dictionaries(st.text(max_size=8), st.integers(0, 10**12), max_size=6), st.text(max_size=20))
def test_whatever_a_name_is_the_parser_reads_it_back(counts: dict[str, int], told: str) -> None:
    family = Family("t_seen_total", told, ("model",))
    counter = CounterFamily(family)
    for model, count in counts.items():
        counter.add((model,), count)
    assert parsed(counter.lines()) == {("t_seen_total", (("model", model),)): count for model, count in counts.items()}


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_a_histogram_adds_up(waits: list[float]) -> None:
    histogram = HistogramFamily(WAIT, (0.5, 1.0, 10.0))
    for wait in waits:
        histogram.spread(("m",)).observe(wait)
    found = parsed(histogram.lines())
    if not waits:
        assert found == {}
        return
    for limit in (0.5, 1.0, 10.0):
        assert found["t_wait_seconds_bucket", (("le", str(limit)), ("model", "m"))] == sum(w <= limit for w in waits)
    assert found["t_wait_seconds_bucket", (("le", "+Inf"), ("model", "m"))] == len(waits)
    assert found["t_wait_seconds_count", (("model", "m"),)] == len(waits)
    assert math.isclose(found["t_wait_seconds_sum", (("model", "m"),)], sum(waits), abs_tol=1e-5)


def test_names_beyond_the_limit_share_one() -> None:
    names = Names(2)
    assert [names.label(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def test_series_beyond_the_limit_share_their_closed_labels() -> None:
    counter = CounterFamily(SEEN, limit=3)
    for number in range(10):
        for kind in ("x", "y"):
            counter.add((kind, f"m{number}"))
    found = parsed(counter.lines())
    assert sum(found.values()) == 20, "nothing is lost"
    assert len(found) == 3 + 2
    histogram = HistogramFamily(WAIT, (1.0,), limit=3)
    for number in range(10):
        histogram.spread((f"m{number}",)).observe(0.1)
    counts = {labels: n for (name, labels), n in parsed(histogram.lines()).items() if name.endswith("_count")}
    assert sum(counts.values()) == 10
    assert len(counts) == 4


def test_gauges() -> None:
    assert gauge_lines(Family("t_now", "Now.\nReally."), {(): 2.5}) == [
        r"# HELP t_now Now.\nReally.",
        "# TYPE t_now gauge",
        "t_now 2.5",
    ]
