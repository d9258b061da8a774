"""Stands between a client and the gateway, passes every request and its answer on as they come, and notes both."""

import http.client
import json
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ONE_HOP = {"connection", "transfer-encoding", "keep-alive", "host", "content-length"}
_RUN = re.compile(rb'"caretway":\s*\{"run":\s*\{[^}]*\}')  # of the whole run, not of this answer
_TOKENS = re.compile(rb'"(?:prompt_tokens|input_tokens)":\s*(\d+)')
_CACHED = re.compile(rb'"cache_(?:read|creation)_input_tokens":\s*(\d+)')  # Anthropic counts it beside the others
_FROM_CACHE = re.compile(rb'"cache_read_input_tokens":\s*(\d+)')


@dataclass
class Exchange:
    path: str
    headers: dict[str, str]
    body: dict
    status: int = 0
    told: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""

    @property
    def outcome(self) -> tuple[str, str]:
        return self.told.get("x-caretway-session", ""), self.told.get("x-caretway-session-reason", "")

    @property
    def tools(self) -> set[str]:
        return {str(tool.get("name") or tool.get("function", {}).get("name")) for tool in self.body.get("tools") or ()}

    @property
    def tokens(self) -> int:
        """What the model was given to read, by the answer's own count."""
        answer = _RUN.sub(b"", self.answer)
        read = [int(one) for one in _TOKENS.findall(answer)]
        return (read[-1] if read else 0) + sum(int(one) for one in _CACHED.findall(answer))

    @property
    def uncached(self) -> int:
        """Without what was read from a cache, in Anthropic's words."""
        return self.tokens - sum(int(one) for one in _FROM_CACHE.findall(_RUN.sub(b"", self.answer)))


class Recorder:
    def __init__(self, base: str) -> None:
        address = urllib.parse.urlsplit(base)
        self.exchanges: list[Exchange] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.exchanges, f"{address.hostname}:{address.port}"))
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(exchanges: list[Exchange], gateway: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _ONE_HOP}
            connection = http.client.HTTPConnection(gateway, timeout=300)
            exchange = Exchange(self.path, headers, _object(body))
            exchanges.append(exchange)
            try:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                exchange.status = answer.status
                exchange.told = {name.lower(): value for name, value in answer.getheaders()}
                self.send_response(answer.status)
                for name, value in exchange.told.items():
                    if name not in _ONE_HOP:
                        self.send_header(name, value)
                self.send_header("connection", "close")
                self.end_headers()
                while piece := answer.read1(65536):
                    exchange.answer += piece
                    self.wfile.write(piece)
                    self.wfile.flush()
            finally:
                connection.close()
                self.close_connection = True

        do_GET = do_POST = do_HEAD = _pass

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _object(body: bytes) -> dict:
    try:
        read = json.loads(body or b"{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
