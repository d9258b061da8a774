"""Shared by all tests: the two tiers. Without `--all` what takes long is left out; with it nothing is, and skips fail.
`--passed=FILE` lists there what passed; `--all --not-in=FILE` leaves that out.

Unit tests may not open sockets: what needs one belongs in tests/contract.
"""

import ctypes
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("watched_answers",)
"""Every answer of a gateway is read by the SDKs' types."""

R = TypeVar("R", pytest.TestReport, pytest.CollectReport)


# No test depends on how fast the machine is at the moment. Some properties have fewer examples, because each is dear.
settings.register_profile("few", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("many", settings.get_profile("few"), max_examples=600)


give_back = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run everything, and let nothing be skipped")
    parser.addoption("--passed", type=Path, metavar="FILE", help="write the names of the tests that passed")
    parser.addoption("--not-in", type=Path, metavar="FILE", help="leave out the tests that FILE names")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("many" if config.getoption("--all") else "few")
    if not (hasattr(config, "workerinput") or Path(".hypothesis", "unicode_data").exists()):
        subprocess.run([sys.executable, "-c", _FIRST_TEXT], check=True)


_FIRST_TEXT = "from hypothesis import find, strategies; find(strategies.text(), lambda text: True)"
"""Run once, in a process of its own: Hypothesis's first text takes 200 MB, and leaves its table in a file."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = config.getoption("--not-in")
    passed = set(known.read_text(encoding="utf-8").splitlines()) if known else set()
    everything = config.getoption("--all")
    kept = [item for item in items if item.nodeid not in passed and (everything or not item.get_closest_marker("all"))]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """At a file's end, give back what its large inputs needed: glibc keeps it, up to 200 MB in each process."""
    if nextitem is None or nextitem.path != item.path:
        give_back(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if file := config.getoption("--passed"):
        names = sorted(report.nodeid for report in terminalreporter.stats.get("passed", ()))
        file.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _strict(item.config, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _strict(collector.config, (yield))


def _strict(config: pytest.Config, report: R) -> R:
    if config.getoption("--all") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and with --all nothing may be: {report.longrepr}"
    return report
