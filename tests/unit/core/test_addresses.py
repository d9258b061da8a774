"""What a gateway may be told to look at: public addresses, and nothing that leads inside by another name."""

from caretway.core.addresses import is_public

PUBLIC = ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "2a00:1450:4001::1", "2620:4f:8000::1"]
INSIDE = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00:ec2::254", "fc00::1"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%eth0"],
    "shared": ["100.64.0.1", "100.127.255.255"],
    "nothing": ["0.0.0.0", "::"],
    "reserved": ["240.0.0.1", "255.255.255.255", "5f00::1", "4000::1", "100::1"],
    "protocols": ["192.0.0.1", "192.0.0.9", "192.0.0.170", "2001:20::1", "2001:1::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "benchmarks": ["198.18.0.1", "2001:2::1"],
    "multicast": ["224.0.0.1", "239.1.1.1", "ff02::1", "ff0e::1"],
    "site-local": ["fec0::1", "feff::1"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1", "64:ff9b:1:fffe::1"],
    "6to4": ["2002:7f00:1::", "2002:a00:1::1", "2002:c0a8:101::1", "2002:808:808::1", "192.88.99.1"],
    "Teredo": ["2001::1", "2001:0:7f00:1::", "2001:0:808:808::f5ff:fffe"],
    "IPv4 inside IPv6": [
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:8.8.8.8",
        "::127.0.0.1",
        "::10.0.0.1",
        "::8.8.8.8",
    ],
    "no address": ["", "localhost", "127.1", "0x7f000001", "2130706433", "127.0.0.1:80", "[::1]"],
}


def test_public() -> None:
    for address in PUBLIC:
        assert is_public(address), address


def test_not_public() -> None:
    for kind, address in [(kind, address) for kind, found in INSIDE.items() for address in found]:
        assert not is_public(address), (kind, address)
