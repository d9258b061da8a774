"""Addresses as the kernel lists them."""

import sys

import pytest

from caretway.cli.port_owner import proc_address


@pytest.mark.skipif(sys.byteorder != "little", reason="the kernel writes them in the machine's order")
@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("00000000000000000000000000000000", "::"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert str(proc_address(text)) == address
