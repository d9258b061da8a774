"""Handshakes with a proxy, sans I/O: SOCKS5 (RFC 1928 and 1929) and HTTP's CONNECT (`connect_tunnel`).
Input: bytes of the proxy. Output: bytes for the proxy, until `open`. `rest` has bytes after the handshake, which come
from the destination. A refusal is a GatewayError with the reason and a remedy; a wrong password is not repeatable.
"""

import ipaddress
from typing import Final, Protocol

from ...core.errors import ErrorKind, GatewayError, said
from .proxies import DIRECT, SETTING, Proxy

_NO_PASSWORD, _PASSWORD, _NONE_OF_THESE = 0, 2, 0xFF
_LONGEST: Final = 255
"""Bytes in a name or password of SOCKS5."""
SOCKS_REFUSALS: Final = {
    1: "it failed",
    2: "its rules forbid it",
    3: "the network cannot be reached",
    4: "the host cannot be reached, or its name is not known there",
    5: "the host refused the connection",
    6: "the host did not answer in time",
    7: "it makes no connections for others",
    8: "it does not support this kind of address",
}


class Tunnel(Protocol):
    open: bool
    rest: bytes

    def begin(self) -> bytes:
        """The first bytes for the proxy."""
        ...

    def feed(self, data: bytes) -> bytes:
        """The answer to the proxy, often empty. Raises GatewayError if the proxy refuses."""
        ...


def tunnel_to(proxy: Proxy, host: str, port: int) -> Tunnel:
    """`host`: a name that the proxy resolves, or an address."""
    if proxy.kind not in ("http", "https"):
        return _Socks5(proxy, host, port)
    from .connect_tunnel import ConnectTunnel

    return ConnectTunnel(proxy, host, port)


class _Socks5:
    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self.open, self.rest = False, b""
        self._proxy = proxy
        self._where = f"{host}:{port}"
        self._request = b"\x05\x01\x00" + _socks_address(proxy, host) + port.to_bytes(2, "big")
        self._buffer = b""
        self._step = self._on_method

    def begin(self) -> bytes:
        has_password = bool(self._proxy.user or self._proxy.password)
        return bytes([5, 2, _NO_PASSWORD, _PASSWORD] if has_password else [5, 1, _NO_PASSWORD])

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        answer = b""
        while not self.open and (more := self._step()) is not None:
            answer += more
        if self.open:
            self.rest, self._buffer = self._buffer, b""
        return answer

    def _take(self, size: int) -> bytes | None:
        if len(self._buffer) < size:
            return None
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _on_method(self) -> bytes | None:
        if self._buffer and self._buffer[0] != 5:
            raise not_a_proxy(self._proxy)
        if (answer := self._take(2)) is None:
            return None
        if answer[1] == _PASSWORD:
            self._step = self._on_password
            return b"\x01" + _counted(self._proxy, self._proxy.user) + _counted(self._proxy, self._proxy.password)
        if answer[1] != _NO_PASSWORD:
            raise wants_password(self._proxy, "" if answer[1] == _NONE_OF_THESE else f"method {answer[1]}")
        self._step = self._on_reply
        return self._request

    def _on_password(self) -> bytes | None:
        if (answer := self._take(2)) is None:
            return None
        if answer[1] != 0:
            raise wants_password(self._proxy, "")
        self._step = self._on_reply
        return self._request

    def _on_reply(self) -> bytes | None:
        """Skip the reply: version, code, a reserved byte, and an address of 4 or 16 bytes or with a length byte."""
        buffer = self._buffer
        if len(buffer) < 5:
            return None
        if buffer[0] != 5:
            raise not_a_proxy(self._proxy)
        if buffer[1] != 0:
            why = SOCKS_REFUSALS.get(buffer[1], f"code {buffer[1]}")
            raise refused(self._proxy, self._where, why, may_repeat=buffer[1] not in (2, 7, 8))
        size = {1: 4, 3: 1 + buffer[4], 4: 16}.get(buffer[3])
        if size is None:
            raise not_a_proxy(self._proxy)
        if self._take(4 + size + 2) is None:
            return None
        self.open = True
        return b""


def _socks_address(proxy: Proxy, host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return b"\x03" + _counted(proxy, host)
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


def _counted(proxy: Proxy, text: str) -> bytes:
    data = text.encode()
    if len(data) > _LONGEST:
        raise GatewayError(
            ErrorKind.BAD_REQUEST,
            f"SOCKS5 takes names and passwords of up to {_LONGEST} bytes",
            hint=f"Shorten those in {proxy.source}.",
        )
    return bytes([len(data)]) + data


# ---- what can go wrong


def wants_password(proxy: Proxy, schemes: str) -> GatewayError:
    """The error for a missing or wrong password. `schemes`: the proxy's authentication schemes, if known."""
    given = bool(proxy.user or proxy.password)
    what = "does not accept the user and password" if given else "wants a user and a password"
    hint = (
        f"Write them into {proxy.source}: {proxy.kind}://USER:PASSWORD@{proxy.name}, with @ : / and % in them as "
        "%40 %3A %2F and %25."
    )
    if schemes and "basic" not in schemes.lower():
        offered = said(schemes)
        hint = f"It takes other credentials only ({offered}): run a local proxy that knows them, such as px or cntlm."
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN, f"the proxy {proxy.name} {what}", hint=hint, code="proxy_password", repeatable=False
    )


def refused(proxy: Proxy, where: str, why: str, *, may_repeat: bool) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"the proxy {proxy.name} does not connect to {where}: {why}",
        hint=f"Ask its administrator to allow this address. {without(proxy, where)}",
        code="proxy_refused",
        repeatable=may_repeat,
    )


def proxy_down(proxy: Proxy, why: str) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"cannot connect to the proxy {proxy.name}: {why}",
        hint=f"Start the proxy, or correct {proxy.source}; `{SETTING}={DIRECT}` goes without it.",
        code="proxy_down",
    )


def proxy_broke_off(proxy: Proxy, where: str) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"the proxy {proxy.name} closed the connection before it had opened one to {where}",
        hint=f"Check {proxy.source}: a proxy of another kind, or one with its own rules, does this. "
        f"{without(proxy, where)}",
        code="proxy_broke_off",
    )


def not_a_proxy(proxy: Proxy) -> GatewayError:
    known = "SOCKS5" if proxy.kind.startswith("socks") else "HTTP"
    other = "http://" if known == "SOCKS5" else "socks5h://"
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"what answers at {proxy.name} is not a proxy that speaks {known}",
        hint=f"Check {proxy.source}: the port, and the kind (perhaps {other}{proxy.name}).",
        code="proxy_unknown",
        repeatable=False,
    )


def not_through(proxy: Proxy, *, looked_up: bool) -> str:
    """The hint after a failed connection without a reason. `looked_up`: the name was not found here."""
    if looked_up:
        return (
            f"Write socks5h instead of socks5 into {proxy.source}, then the proxy looks it up: socks5h://{proxy.name}."
        )
    return (
        f"Check the proxy in {proxy.source}: its kind (http, https, socks5h) and port, and whether it lets this host "
        f"through; `{SETTING}={DIRECT}` goes without it."
    )


def without(proxy: Proxy, where: str) -> str:
    return f"To reach this host without the proxy: `NO_PROXY={where.rpartition(':')[0]}`."
