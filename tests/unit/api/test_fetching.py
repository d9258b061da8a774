"""The answer to a GET as its parser fills it in, however it is cut."""

import httptools
import pytest

from caretway.api.images import Fetched

SIZED = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"
)
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\nbody"


@pytest.mark.parametrize(("data", "complete"), [(SIZED, True), (CHUNKED, True), (ENDLESS, False)])
def test_an_answer_however_it_is_cut(data: bytes, complete: bool) -> None:
    for cut in range(1, len(data)):
        fetched = Fetched()
        parser = httptools.HttpResponseParser(fetched)
        parser.feed_data(data[:cut])
        parser.feed_data(data[cut:])
        assert (bytes(fetched.body), fetched.headers["content-type"], fetched.begun) == (b"body", "image/png", True)
        assert fetched.complete is complete
