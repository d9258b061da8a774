"""A short soak of a cluster of each kind. `./scripts/soak --cluster` is the long one."""

import pytest

from faults.cluster import ClusterOrders, Trouble, soak_cluster, table


@pytest.mark.all
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("trouble", "loops"), [("kill", 60), ("redis", 24), ("rolling", 60)])
async def test_no_loop_is_lost_and_no_call_is_run_twice(trouble: Trouble, loops: int) -> None:
    report = await soak_cluster(ClusterOrders(loops, trouble, "suite"))
    told = "\n".join(table(report))
    assert not report.complaints() and report.troubles, told
    assert any("passed on" in how for how in report.steps), told
