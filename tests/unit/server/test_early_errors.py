"""What is said to a client whose request could not be read."""

import httptools
import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.server.early_errors import early_error, not_http
from caretway.server.exchange import ResponseWriter


def refuse(path: str, response: ResponseWriter, error: GatewayError) -> None:
    response.wake_at(1.0, lambda: None)
    response.send(400, f"{path} {error.message}".encode())


def test_the_bytes_of_a_refusal() -> None:
    error = GatewayError(ErrorKind.BAD_REQUEST, "no")
    data = early_error(refuse, b"/v1/messages?a=\xe9", error)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ndate: ")
    assert head.endswith(b"\r\nconnection: close")
    assert body == b"/v1/messages no"
    alone = early_error(refuse, b"/v1/messages", error, head_only=True)
    assert b"content-length: 15" in alone and alone.endswith(b"connection: close\r\n\r\n")


def test_a_reason_of_the_parser_is_told_and_one_of_a_callback_is_not() -> None:
    class Callbacks:
        def on_url(self, url: bytes) -> None:
            raise ValueError("a secret")

    with pytest.raises(httptools.HttpParserError) as broken:
        httptools.HttpRequestParser(object()).feed_data(b"\x00rubbish\r\n\r\n")
    told = not_http(broken.value, b"\x00rubbish")
    assert told.code == "invalid_http"
    assert len(told.message) > len("This is not valid HTTP.")
    with pytest.raises(httptools.HttpParserError) as raised:
        httptools.HttpRequestParser(Callbacks()).feed_data(b"GET / HTTP/1.1\r\n\r\n")
    assert not_http(raised.value, b"GET /").message == "This is not valid HTTP."


def test_tls_on_the_plain_port_is_recognised() -> None:
    with pytest.raises(httptools.HttpParserError) as broken:
        httptools.HttpRequestParser(object()).feed_data(b"\x16\x03\x01\x02\x00\x01")
    told = not_http(broken.value, b"\x16\x03\x01\x02\x00\x01")
    assert told.code == "tls_on_plain_port" and "http:// instead of https://" in told.hint
