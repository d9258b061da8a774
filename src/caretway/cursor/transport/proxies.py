"""Chooses the proxy for an address, with a reason, from the environment's variables and the settings. Pure.

The variables are the usual ones: `HTTPS_PROXY` for https addresses, `HTTP_PROXY` for http addresses, `ALL_PROXY` for
both, `NO_PROXY` for exceptions; lower case wins over upper case. The setting `proxy` wins over all but `NO_PROXY`.
Loopback addresses are never reached through a proxy, unless the settings say so.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from ...core.errors import ErrorKind, GatewayError

ProxyKind = Literal["http", "https", "socks5", "socks5h"]
KINDS: Final[Mapping[str, ProxyKind]] = {
    "http": "http",
    "https": "https",
    "socks": "socks5",
    "socks5": "socks5",
    "socks5h": "socks5h",
}
"""The scheme of a proxy's URL -> its kind. Some desktops write `socks`."""
DEFAULT_PORTS: Final[Mapping[ProxyKind, int]] = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
SETTING: Final = "CARETWAY_PROXY"
DIRECT: Final = "off"
"""The value of the setting for no proxy, regardless of the environment."""
_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "http": ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"),
}
_EXCEPTIONS: Final = ("no_proxy", "NO_PROXY")
_FORM: Final = "Write it as http://HOST:PORT, https://HOST:PORT, socks5://HOST:PORT or socks5h://HOST:PORT"


class Proxy(Struct, frozen=True):
    kind: ProxyKind
    host: str
    port: int
    source: str
    """The variable that names it."""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        """Leaves out user and password."""
        return f"Proxy({self.url}, {self.source})"

    @property
    def name(self) -> str:
        """The address for messages, without user and password."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.kind}://{self.name}"

    @property
    def resolves(self) -> bool:
        """Whether the proxy resolves names itself."""
        return self.kind != "socks5"


class ProxyRoute(Struct, frozen=True):
    proxy: Proxy | None
    reason: str

    def __str__(self) -> str:
        return f"direct ({self.reason})" if self.proxy is None else f"through {self.proxy.url} ({self.reason})"


class ProxyRules(Struct, frozen=True):
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment, or its proxy variables."""
    setting: str = ""
    """A proxy's URL, `off`, or empty: the environment decides."""
    loopback: bool = False
    """Whether loopback addresses are reached through the proxy, too."""

    def __repr__(self) -> str:
        """Leaves out variables and setting, which may hold passwords."""
        return f"ProxyRules(loopback={self.loopback})"

    def route(self, scheme: str, host: str, port: int) -> ProxyRoute:
        """The route to an address. Raises GatewayError(BAD_REQUEST) if the proxy's address is invalid."""
        if self.setting.lower() == DIRECT:
            return ProxyRoute(None, f"{SETTING} is {DIRECT}")
        source, given = next(self._named(scheme), ("", ""))
        if not given:
            return ProxyRoute(None, "no proxy is set")
        host = host.lower().rstrip(".")
        if is_loopback(host) and not self.loopback:
            return ProxyRoute(None, "it is this machine")
        for name in _EXCEPTIONS:
            for entry in self.variables.get(name, "").replace(",", " ").split():
                if _excepts(entry.lower(), host, port):
                    return ProxyRoute(None, f"{name} has {entry}")
        return ProxyRoute(read_proxy(given, source), source)

    def _named(self, scheme: str) -> Iterator[tuple[str, str]]:
        if self.setting:
            yield SETTING, self.setting
        for name in _VARIABLES[scheme]:
            if value := self.variables.get(name, "").strip():
                yield name, value


def child_environment(environment: Mapping[str, str], setting: str) -> dict[str, str]:
    """The environment of child processes: the proxy variables unchanged, or as the setting says."""
    if not setting:
        return dict(environment)
    named = {name for names in _VARIABLES.values() for name in names}
    kept = {name: value for name, value in environment.items() if name not in named}
    return kept if setting.lower() == DIRECT else kept | dict.fromkeys(sorted(named), setting)


def read_proxy(given: str, source: str) -> Proxy:
    """Parse a proxy's URL; the default scheme is http. Errors never quote the URL, which may have a password."""
    text = given if "://" in given else f"http://{given}"
    if re.search("://.*[/?#].*@", text):
        # The text before the mark would be parsed as host and port, and quoted in errors.
        raise _unusable(source, "# / or ? in its password must be written as %23 %2F or %3F")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _unusable(source, "its address cannot be read") from None  # the cause would quote it
    kind = KINDS.get(parts.scheme)
    if kind is None:
        raise _unusable(source, f"proxies of the kind {parts.scheme!r} are not supported")
    if not host:
        raise _unusable(source, "it names no host")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Proxy(kind, host, port or DEFAULT_PORTS[kind], source, user, password)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _excepts(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY covers the host: `*`, a name with all below it, an address, a network; `:PORT` at
    its end limits it to that port."""
    if entry == "*":
        return True
    entry, wanted = _split_port(entry)
    if wanted is not None and wanted != port:
        return False
    address = _address(host)
    if "/" in entry and address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    if address is not None:
        return _address(entry) == address
    name = entry.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
    else:
        return entry, None
    return host, int(port) if port.isascii() and port.isdigit() else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _unusable(source: str, why: str) -> GatewayError:
    return GatewayError(
        ErrorKind.BAD_REQUEST, f"the proxy in {source} cannot be used: {why}", hint=f"{_FORM}, or unset {source}."
    )
