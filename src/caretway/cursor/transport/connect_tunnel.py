"""HTTP's CONNECT, sans I/O: the request to the proxy, and the meaning of its answer (a tunnel, a missing password, no
proxy at all). Imported only if there is such a proxy.
"""

import base64
from typing import Final

import h11

from ...core.errors import said
from .proxies import Proxy
from .tunnels import not_a_proxy, refused, wants_password

MAX_ANSWER_BYTES: Final = 64 * 1024
_HTTP: Final = b"HTTP/1."


class ConnectTunnel:
    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self.open, self.rest = False, b""
        self._proxy = proxy
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER_BYTES)
        self._first = b""

    def begin(self) -> bytes:
        headers = [("host", self._where)]
        if self._proxy.user or self._proxy.password:
            known = f"{self._proxy.user}:{self._proxy.password}".encode()
            headers.append(("proxy-authorization", f"Basic {base64.b64encode(known).decode()}"))
        request = self._h11.send(h11.Request(method="CONNECT", target=self._where, headers=headers))
        return (request or b"") + (self._h11.send(h11.EndOfMessage()) or b"")

    def feed(self, data: bytes) -> bytes:
        self._first = (self._first + data)[: len(_HTTP)]
        if not _HTTP.startswith(self._first):
            raise not_a_proxy(self._proxy)  # at once: such a peer may wait for more
        try:
            self._h11.receive_data(data)
            event = self._h11.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = self._h11.next_event()
        except h11.RemoteProtocolError as broken:
            raise not_a_proxy(self._proxy) from broken
        if isinstance(event, h11.Response):
            self._judge(event)
        return b""

    def _judge(self, answer: h11.Response) -> None:
        status = answer.status_code
        if 200 <= status < 300:
            self.open, self.rest = True, self._h11.trailing_data[0]
            return
        if status == 407:
            schemes = [value.decode("latin-1") for name, value in answer.headers if name == b"proxy-authenticate"]
            raise wants_password(self._proxy, ", ".join(schemes))
        words = f"{status} {answer.reason.decode('latin-1')}".strip()
        raise refused(self._proxy, self._where, f"HTTP {said(words)}", may_repeat=status >= 500)
