"""A short soak of each transport. `./scripts/soak` is the long one; docs/reliability.md has its figures."""

import pytest

from faults.__main__ import table
from faults.soak import Orders, Report, soak


@pytest.mark.timeout(400)
@pytest.mark.parametrize("transport", ["h2", pytest.param("http1", marks=pytest.mark.all)])
async def test_a_bad_network(transport: str) -> None:
    """So few turns say nothing about percents, and all about what must never be."""
    report = await soak(Orders(400, "suite", transport))
    assert sum(report.faults.values()) > 40, told(report)
    assert not report.complaints(min_right=0.9), told(report)


@pytest.mark.all
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("transport", ["h2", "http1"])
async def test_a_bad_network_for_longer(transport: str) -> None:
    report = await soak(Orders(4000, "longer", transport))
    assert not report.complaints(), told(report)


@pytest.mark.all
@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["h2", "http1"])
async def test_a_bad_network_for_the_sdk(transport: str) -> None:
    """Its bridge is killed, and so is the gateway."""
    report = await soak(Orders(200, "suite", transport, backend="sdk"))
    assert report.killed == {"helper": 1, "gateway": 1}, told(report)
    assert not report.complaints(min_right=0.9), told(report)


def told(report: Report) -> str:
    return "\n".join(table(report))
