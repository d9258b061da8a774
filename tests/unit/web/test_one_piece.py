"""The head of an answer leaves together with the first of its body."""

from types import SimpleNamespace
from typing import Any

from caretway.web.one_piece import OnePiece


class Socket:
    def __init__(self) -> None:
        self.said: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.said.append(data)

    def close(self) -> None:
        self.said.append(b"closed")

    def is_closing(self) -> bool:
        return self.said[-1:] == [b"closed"]


def pieces() -> tuple[Any, Any, Socket]:
    socket = Socket()
    cycle: Any = SimpleNamespace(transport=socket)
    cycle.transport = OnePiece(cycle)
    return cycle, cycle.transport, socket


def test_head_and_first_piece_are_one_write_and_the_rest_goes_directly() -> None:
    cycle, piece, socket = pieces()
    piece.write(b"HTTP/1.1 200 OK\r\n\r\n")
    assert socket.said == []
    piece.write(b"one")
    assert socket.said == [b"HTTP/1.1 200 OK\r\n\r\none"]
    assert cycle.transport is socket


def test_an_interim_answer_waits_for_nothing() -> None:
    _, piece, socket = pieces()
    piece.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    piece.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    piece.write(b"")
    assert socket.said == [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"]


def test_a_head_without_a_body_leaves_before_the_end() -> None:
    _, piece, socket = pieces()
    piece.write(b"HTTP/1.1 500 Oh\r\n\r\n")
    piece.close()
    assert socket.said == [b"HTTP/1.1 500 Oh\r\n\r\n", b"closed"]
    assert piece.is_closing()
