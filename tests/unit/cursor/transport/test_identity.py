"""How the gateway introduces itself, and the old checksum."""

import pytest

from caretway.cursor.transport.identity import Identity, checksum


def test_headers_name_the_gateway() -> None:
    told = Identity("sdk", "caretway-1", time_zone="UTC").headers()
    assert (told["user-agent"], told["x-cursor-client-type"], told["x-cursor-timezone"]) == ("caretway-1", "sdk", "UTC")
    assert "x-cursor-timezone" not in Identity("sdk", "caretway-1").headers()


@pytest.mark.seed("E04")
def test_the_checksum_holds_for_half_an_hour_and_depends_on_the_token() -> None:
    first = checksum("header.payload.signature", 1_800_000_000.0)
    assert checksum("header.payload.signature", 1_800_000_000.0 + 1700) == first
    assert checksum("header.payload.signature", 1_800_000_000.0 + 3_600_000) != first
    assert checksum("another", 1_800_000_000.0) != first
    assert len(first.partition("/")[0]) == 8 + 8
