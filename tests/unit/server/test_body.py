"""What bodies may take: one in size, all together in size, and none that is compressed."""

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.server.body import Bodies, BodyLimits, too_slow

LIMITS = BodyLimits(size=100, in_all=150, idle=3, total=30)
ANNOUNCED: list[tuple[dict[str, str], ErrorKind | None]] = [
    ({}, None),
    ({"content-length": "100"}, None),
    ({"content-length": "101"}, ErrorKind.TOO_LARGE),
    ({"content-length": "9" * 5000}, ErrorKind.TOO_LARGE),
    ({"content-encoding": "identity"}, None),
    ({"content-encoding": "gzip"}, ErrorKind.BAD_REQUEST),
    ({"content-encoding": "Identity"}, None),
]


@pytest.mark.parametrize(("headers", "kind"), ANNOUNCED)
def test_what_a_head_announces(headers: dict[str, str], kind: ErrorKind | None) -> None:
    found = None
    try:
        Bodies(LIMITS).expect(headers)
    except GatewayError as error:
        found = error.kind
    assert found is kind


def test_one_body_and_all_bodies() -> None:
    bodies = Bodies(LIMITS)
    bodies.take(100, 100)
    with pytest.raises(GatewayError) as one:
        Bodies(LIMITS).take(101, 101)
    with pytest.raises(GatewayError) as all_of_them:
        bodies.take(51, 51)
    assert (one.value.kind, all_of_them.value.kind) == (ErrorKind.TOO_LARGE, ErrorKind.OVERLOADED)
    bodies.give_back(151)
    bodies.take(100, 100)


def test_a_slow_body_is_told_its_limits() -> None:
    assert "3 s of silence, 30 s in all" in too_slow(LIMITS).message
