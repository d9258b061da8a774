"""Which proxy serves which address: a table of environments, and nothing of a password in any message."""

import pytest

from caretway.core.errors import GatewayError
from caretway.cursor.transport.proxies import Proxy, ProxyRules, child_environment, read_proxy

A, B = "http://a:1", "http://b:2"
API = ("https", "api2.cursor.sh", 443)

CHOICES: list[tuple[str, dict[str, str], tuple[str, str, int], str]] = [
    ("nothing is set", {}, API, "direct (no proxy is set)"),
    ("empty is not set", {"HTTPS_PROXY": " ", "ALL_PROXY": B}, API, f"through {B} (ALL_PROXY)"),
    ("https", {"HTTPS_PROXY": A, "ALL_PROXY": B}, API, f"through {A} (HTTPS_PROXY)"),
    ("lower case wins", {"HTTPS_PROXY": A, "https_proxy": B}, API, f"through {B} (https_proxy)"),
    ("all", {"ALL_PROXY": "socks5h://s"}, API, "through socks5h://s:1080 (ALL_PROXY)"),
    ("http is for http", {"HTTP_PROXY": A}, API, "direct (no proxy is set)"),
    ("http", {"HTTP_PROXY": A, "HTTPS_PROXY": B}, ("http", "x.com", 80), f"through {A} (HTTP_PROXY)"),
    ("this machine", {"ALL_PROXY": A}, ("http", "localhost", 80), "direct (it is this machine)"),
    ("this machine, below", {"ALL_PROXY": A}, ("http", "a.localhost.", 80), "direct (it is this machine)"),
    ("this machine by address", {"ALL_PROXY": A}, ("http", "127.8.0.1", 80), "direct (it is this machine)"),
    ("this machine, version 6", {"ALL_PROXY": A}, ("http", "::1", 80), "direct (it is this machine)"),
]


@pytest.mark.parametrize(("variables", "asked", "route"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES])
def test_the_environment_decides(variables: dict[str, str], asked: tuple[str, str, int], route: str) -> None:
    assert str(ProxyRules(variables).route(*asked)) == route


EXCEPTIONS = [
    ("*", "api2.cursor.sh", True),
    ("cursor.sh", "api2.cursor.sh", True),
    (".cursor.sh", "api2.cursor.sh", True),
    (".cursor.sh", "cursor.sh", True),
    ("*.cursor.sh", "api2.cursor.sh", True),
    ("CURSOR.SH", "API2.Cursor.sh.", True),
    ("sor.sh", "api2.cursor.sh", False),
    ("api2.cursor.sh:443", "api2.cursor.sh", True),
    ("api2.cursor.sh:444", "api2.cursor.sh", False),
    ("example.com, cursor.sh", "api2.cursor.sh", True),
    ("example.com cursor.sh", "api2.cursor.sh", True),
    (",,. *.", "api2.cursor.sh", False),
    ("10.0.0.0/8", "10.1.2.3", True),
    ("10.0.0.0/8", "11.1.2.3", False),
    ("10.0.0.0/99", "10.1.2.3", False),
    ("10.0.0.0/8", "api2.cursor.sh", False),
    ("10.1.2.3", "10.1.2.3", True),
    ("10.1.2.3:443", "10.1.2.3", True),
    ("2.3", "10.1.2.3", False),
    ("fd00::/8", "fd12::1", True),
    ("[fd12::1]:443", "fd12::1", True),
    ("[fd12::1]:80", "fd12::1", False),
    ("fd12::1", "fd12:0::1", True),
]


@pytest.mark.parametrize(("no_proxy", "host", "exempt"), EXCEPTIONS)
def test_exceptions(no_proxy: str, host: str, exempt: bool) -> None:
    route = ProxyRules({"HTTPS_PROXY": A, "NO_PROXY": no_proxy}).route("https", host, 443)
    assert (route.proxy is None) is exempt
    assert not exempt or route.reason.startswith("NO_PROXY has ")


def test_the_setting_wins() -> None:
    variables = {"HTTPS_PROXY": A, "NO_PROXY": "x.com"}
    assert str(ProxyRules(variables, B).route(*API)) == f"through {B} (CARETWAY_PROXY)"
    assert str(ProxyRules(variables, "OFF").route(*API)) == "direct (CARETWAY_PROXY is off)"
    assert ProxyRules(variables, B).route("https", "x.com", 443).proxy is None
    assert str(ProxyRules(variables, loopback=True).route("https", "localhost", 1)) == f"through {A} (HTTPS_PROXY)"


ADDRESSES = [
    ("proxy.corp:3128", Proxy("http", "proxy.corp", 3128, "X")),
    ("http://proxy.corp", Proxy("http", "proxy.corp", 80, "X")),
    ("https://proxy.corp/", Proxy("https", "proxy.corp", 443, "X")),
    ("socks://127.0.0.1:7890/", Proxy("socks5", "127.0.0.1", 7890, "X")),
    ("SOCKS5H://[::1]:9", Proxy("socks5h", "::1", 9, "X")),
    ("http://us%40er:p%3Aw@h:1", Proxy("http", "h", 1, "X", "us@er", "p:w")),
    ("user:word@h:1", Proxy("http", "h", 1, "X", "user", "word")),
]


@pytest.mark.parametrize(("given", "proxy"), ADDRESSES)
def test_addresses(given: str, proxy: Proxy) -> None:
    assert read_proxy(given, "X") == proxy


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("socks4://me:hunter22@h:1", "'socks4' are not supported"),
        ("ftp://me:hunter22@h", "'ftp' are not supported"),
        ("http://me:hunter22@h:port", "cannot be read"),
        ("http://me:hunter22@[h", "cannot be read"),
        ("http://me:hunter22@", "names no host"),
        ("http://me:22#hunter22@h:1", "# / or ? in its password must be written as %23 %2F or %3F"),
        ("http://me:22/hunter22@h:1", "# / or ? in its password must be written as %23 %2F or %3F"),
        ("me:22?hunter22@h:1", "# / or ? in its password must be written as %23 %2F or %3F"),
        ("http://me:hunter22#x@h:1", "# / or ? in its password must be written as %23 %2F or %3F"),
    ],
)
def test_what_makes_no_sense_is_named_without_its_password(given: str, why: str) -> None:
    with pytest.raises(GatewayError, match="HTTPS_PROXY") as caught:
        ProxyRules({"HTTPS_PROXY": given}).route(*API)
    assert why in caught.value.message and "unset HTTPS_PROXY" in caught.value.hint
    assert "hunter22" not in str(caught.value) and "hunter22" not in repr(caught.value.__cause__)


def test_nothing_shows_the_password() -> None:
    rules = ProxyRules({"HTTPS_PROXY": "http://me:hunter22@h:1"}, "http://me:hunter22@h:1")
    route = rules.route(*API)
    assert "hunter22" not in f"{rules!r} {route!r} {route} {route.proxy!r}"


def test_programs_that_we_start_get_the_same_proxy() -> None:
    environment = {"PATH": "/bin", "HTTPS_PROXY": A, "all_proxy": A, "NO_PROXY": "x"}
    assert child_environment(environment, "") == environment
    assert child_environment(environment, "off") == {"PATH": "/bin", "NO_PROXY": "x"}
    changed = child_environment(environment, B)
    assert {changed[name] for name in ("HTTPS_PROXY", "https_proxy", "all_proxy", "HTTP_PROXY")} == {B}
    assert changed["NO_PROXY"] == "x"
