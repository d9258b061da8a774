"""Connections and the system's limit of open files."""

import pytest

from caretway.server.descriptors import RESERVED, connections_that_fit, fitting, raise_soft_limit, soft_limit

resource = pytest.importorskip("resource")


@pytest.mark.parametrize(
    ("wanted", "soft", "fit"),
    [(2048, None, 2048), (2048, 2**20, 2048), (2048, 1024, 1024 - RESERVED), (2048, 100, 16), (8, 1024, 8)],
)
def test_what_fits(wanted: int, soft: int | None, fit: int) -> None:
    assert fitting(wanted, soft) == fit


def test_the_soft_limit_is_raised_and_what_does_not_fit_is_said(caplog: pytest.LogCaptureFixture) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        assert connections_that_fit(2048) == 512 - RESERVED
        assert "max_connections" in caplog.text and "512" in caplog.text
        raise_soft_limit(300)
        assert soft_limit() == 300 + RESERVED
        raise_soft_limit(100)  # never lowered
        assert connections_that_fit(300) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
