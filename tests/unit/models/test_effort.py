"""A client's effort meets what a model offers."""

import pytest

from caretway.models.effort import fit_effort

THREE = (("effort", ("low", "medium", "high")),)
CASES = [
    (None, THREE, None),
    ("high", THREE, ("effort", "high")),
    ("xhigh", THREE, ("effort", "high")),
    ("minimal", THREE, ("effort", "low")),
    ("none", THREE, ("effort", "low")),
    ("medium", (("reasoning", ("low", "high")),), ("reasoning", "low")),
    ("high", (), None),
    ("high", (("fast", ("on", "off")),), None),
    ("turbo", THREE, None),
]


@pytest.mark.parametrize(("wanted", "offered", "fitted"), CASES)
def test_fit(
    wanted: str | None, offered: tuple[tuple[str, tuple[str, ...]], ...], fitted: tuple[str, str] | None
) -> None:
    assert fit_effort(wanted, offered) == fitted
