"""What the memory for blocks of header fields gives is what HPACK's decoder would give, whatever came before."""

from types import MappingProxyType

from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.transport.h2_frames import MAX_KNOWN, FieldReader, Fields
from caretway.cursor.transport.identity import read_fields

NAMES = st.sampled_from([b"content-type", b"date", b"x-trace", b"server"])
VALUES = st.sampled_from([b"a", b"b", b"application/connect+proto", b"w" * 60])
HEADS = st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=4)


@given(st.lists(st.tuples(HEADS, st.sampled_from([None, None, 0, 64, 4096])), max_size=40))
def test_the_same_as_the_decoder(blocks: list[tuple[list[tuple[bytes, bytes, bool]], int | None]]) -> None:
    encoder, decoder, reader = Encoder(), Decoder(), FieldReader()
    for head, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode([(b":status", b"200"), *head])
        expected = read_fields((bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True))
        assert reader.read(block).headers == expected


def test_what_is_judged() -> None:
    encoder, reader = Encoder(), FieldReader()
    head = encoder.encode([(":status", "404"), ("content-length", "12"), ("a", "1"), ("a", "2")])
    headers = {":status": "404", "content-length": "12", "a": "1, 2"}
    assert reader.read(head) == Fields(MappingProxyType(headers), 404, 12)
    odd = reader.read(encoder.encode([(":status", "2 0"), ("content-length", "-1")]))
    assert (odd.status, odd.length) == (None, None)
    long = reader.read(encoder.encode([(":status", "2" * 5000), ("content-length", "9" * 5000)]))
    assert (long.status, long.length) == (None, None)
    assert reader.read(encoder.encode([("x-trailer", "t")])).status is None


def test_the_memory_is_small_and_is_used() -> None:
    reader = FieldReader()
    first = reader.read(b"\x88")
    assert reader.read(b"\x88") is first
    for number in range(3 * MAX_KNOWN):
        name = b"\x00\x01x"  # a literal that leaves the table alone
        reader.read(name + b"\x02%02d" % number)
    assert len(reader._known) <= MAX_KNOWN
    reader.read(b"\x88")
    reader.read(b"\x40\x01y\x01z")  # one that does not
    assert reader._known == {}
