"""`caretway status --cluster`, as it looks at 80 and at 60 columns, and its JSON."""

import json
from pathlib import Path

import pytest

from caretway.cli.cluster_status import ClusterReport, as_lines, redis_place, report_json
from caretway.cli.terminal import Style
from caretway.cluster.directory import SCHEMA, Replica
from caretway.cluster.spent import TotalRow

GOLDEN = Path(__file__).parent / "golden"
NOON = 1_794_916_800.0

REPLICAS = (
    Replica("0a1b", "https://10.0.0.7:32124", "0.2.0", NOON),
    Replica("77fe", "https://10.0.0.8:32124", "0.2.0", NOON + 90, draining=True, parked=12),
    Replica("c0de", "https://10.0.0.9:32124", "0.3.0", NOON + 3600, schema=SCHEMA + 1),
)
TOTALS = (
    TotalRow("2026-11-16", "claude-sonnet", "anna", 40, 400, 2, 1_203_111, 88_000, 3_400_000, 512.5),
    TotalRow("2026-11-17", "claude-sonnet", "", 2, 12, 0, 9_000, 400, 0, 0.2),
    TotalRow("2026-11-17", "gpt-5-codex-with-a-rather-long-name-for-a-model", "ci", 1, 1, 7, 950, 20),
)


def report(**changes: object) -> ClusterReport:
    given: dict[str, object] = {
        "name": "default",
        "redis": "10.0.0.5:6379",
        "replicas": REPLICAS,
        "totals": TOTALS,
        "schema": SCHEMA,
    }
    return ClusterReport(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 60])
def test_as_a_table(width: int) -> None:
    lines = as_lines(report(), Style(), width)
    assert max(map(len, lines)) <= width
    assert "\n".join(lines) + "\n" == (GOLDEN / f"status-cluster-{width}.txt").read_text()


def test_addresses_that_do_not_fit_have_a_line_of_their_own() -> None:
    far = Replica("0a1b", f"https://{'a' * 80}.example:32124", "0.2.0", NOON)
    lines = as_lines(report(replicas=(far,)), Style(), 80)
    assert max(map(len, lines)) <= 80 and "aaa.example:32124" in "".join(line.strip() for line in lines)


def test_a_cluster_that_is_empty() -> None:
    assert as_lines(report(replicas=(), totals=()), Style(), 80) == [
        "cluster  default, no gateways",
        "redis    there (10.0.0.5:6379)",
    ]


def test_as_json() -> None:
    found = json.loads(json.dumps(report_json(report())))
    assert found["redis"] == {"there": True, "address": "10.0.0.5:6379"}
    assert found["replicas"][1] == {
        "id": "77fe",
        "address": "https://10.0.0.8:32124",
        "version": "0.2.0",
        "since": "2026-11-17T12:01:30Z",
        "draining": True,
        "parked": 12,
        "schema": SCHEMA,
    }
    assert sum(row["runs"] for row in found["totals"]) == 43


def test_states_and_places() -> None:
    assert [one.state(SCHEMA) for one in REPLICAS] == ["ready", "draining", "other schema"]
    assert redis_place("rediss://anna:secret@redis.example/0") == "redis.example:6379"
