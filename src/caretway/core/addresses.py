"""Decides whether an address is public, for URLs from foreign data. Pure."""

import ipaddress
from typing import Final

_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(block)
    for block in (
        "192.0.0.0/24",  # protocol assignments, all of them
        "192.88.99.0/24",  # relays of 6to4
        "2001::/23",  # protocol assignments; Teredo wraps an IPv4 address
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4 wraps an IPv4 address
        "3fff::/20",  # documentation
    )
)


def is_public(address: str) -> bool:
    """Whether a text is a public address; False if it is no address. Python's `is_global` excludes reserved ranges, but
    accepts addresses that wrap another address or are internal: NAT64, 6to4, IPv4 inside IPv6, site-local, multicast.
    So of IPv6 only global unicast counts here, without ranges that wrap other addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id is not None or found not in _UNICAST):
        return False
    return found.is_global and not found.is_multicast and not any(found in block for block in _NOT_PUBLIC)
