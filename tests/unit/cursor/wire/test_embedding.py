"""Messages put together from ready bytes are those that the real encoder writes."""

import sys
from typing import Final

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.embedding import (
    AppendOutOfRange,
    AppendReader,
    AppendSyntax,
    AppendWriter,
    embed,
    read_append,
    tag,
    write_value,
)
from caretway.cursor.wire.messages import ai, pb

from .recordings import Run, numbered_runs, runs

RUNS: Final = numbered_runs()
LONGEST: Final = runs("native-execs-h1")[0]


def in_order(run: Run) -> list[bytes]:
    return [message for _, message in sorted(run.appends)]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_recorded_numbers_have_no_gaps(run: Run) -> None:
    assert sorted(number for number, _ in run.appends) == list(range(len(run.appends)))


def test_recorded_appends_overtake_each_other() -> None:
    """Why a reader must sort: most recorded runs did not arrive in the order in which they were numbered."""
    assert sum(run.appends != sorted(run.appends) for run in RUNS) > len(RUNS) // 2


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_reader_restores_the_recorded_order(run: Run) -> None:
    reader = AppendReader()
    assert [message for append in run.appends for message in reader.feed(*append)] == in_order(run)


@pytest.mark.seed("E07")
@given(st.permutations(LONGEST.appends))
def test_reader_restores_any_shuffle(shuffled: list[tuple[int, bytes]]) -> None:
    reader = AppendReader()
    out: list[bytes] = []
    for number, message in shuffled:
        assert reader.expected(number) is (number == len(out))
        out += reader.feed(number, message)
    assert out == in_order(LONGEST)


@given(st.lists(st.integers(0, 20), max_size=80))
def test_each_number_counts_once(numbers: list[int]) -> None:
    """The first message of a number is the one that counts, whether it was handed out already or still waits."""
    reader = AppendReader()
    first: dict[int, bytes] = {}
    out: list[bytes] = []
    for turn, number in enumerate(numbers):
        message = b"%d/%d" % (number, turn)
        assert reader.seen(number) is (number in first)
        ready = reader.feed(number, message)
        if number in first:
            assert ready == []
        first.setdefault(number, message)
        out += ready
    whole = next(number for number in range(22) if number not in first)
    assert out == [first[number] for number in range(whole)]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_whole_run_repeated_gives_nothing(run: Run) -> None:
    reader = AppendReader()
    for append in run.appends:
        reader.feed(*append)
    assert [reader.feed(*append) for append in run.appends] == [[]] * len(run.appends)


@pytest.mark.parametrize(("number", "fits"), [(-1, False), (0, True), (8, True), (9, False), (2**63 - 1, False)])
def test_far_ahead_is_refused(number: int, fits: bool) -> None:
    reader = AppendReader(max_ahead=8)
    if fits:
        reader.feed(number, b"")
        assert reader.seen(number)
    else:
        with pytest.raises(AppendOutOfRange, match=f"append {number} while 0 is next"):
            reader.feed(number, b"")


def test_a_refused_append_leaves_no_trace() -> None:
    reader = AppendReader(max_ahead=1)
    with pytest.raises(AppendOutOfRange):
        reader.feed(2, b"c")
    assert reader.feed(0, b"a") == [b"a"]
    assert reader.feed(2, b"c") == []
    assert reader.feed(1, b"b") == [b"b", b"c"]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_writer_and_reader_agree_on_a_recorded_run(run: Run) -> None:
    writer, reader = AppendWriter("id-1"), AppendReader()
    read = [read_append(writer.write(message)) for message in in_order(run)]
    assert [(request_id, number) for request_id, number, _ in read] == [("id-1", n) for n in range(len(read))]
    assert [out for _, number, message in read for out in reader.feed(number, message)] == in_order(run)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_writer_uses_the_recorded_carrier(run: Run) -> None:
    """The official client puts lower-case hex into `data`; so do we."""
    assert {row.carrier for row in run.said} == {"data"}
    for message in in_order(run):
        body = ai.BidiAppendRequest.FromString(AppendWriter("id").write(message))
        assert (body.data, body.data_binary) == (message.hex(), b"")


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_both_carriers_are_read(run: Run) -> None:
    for number, message in run.appends:
        for carrier in ({"data": message.hex()}, {"data": message.hex().upper()}, {"data_binary": message}):
            body = ai.BidiAppendRequest(append_seqno=number, request_id=ai.BidiRequestId(request_id="r"), **carrier)
            assert read_append(body.SerializeToString()) == ("r", number, message)


BROKEN: Final = {
    "odd hex": ai.BidiAppendRequest(data="abc").SerializeToString(),
    "no hex": ai.BidiAppendRequest(data="zz").SerializeToString(),
    "hex with letters from elsewhere": ai.BidiAppendRequest(data="०१").SerializeToString(),
    "cut protobuf": AppendWriter("id").write(b"hello")[:-1],
    "no protobuf": b"\xff\xff\xff",
    "text that is not UTF-8": b"\x0a\x02\xff\xff",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_broken_appends(body: bytes) -> None:
    with pytest.raises(AppendSyntax):
        read_append(body)


def test_an_empty_append_is_an_empty_message() -> None:
    assert read_append(b"") == ("", 0, b"")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)


@given(JSON)
def test_read_back_by_protobuf(value: object) -> None:
    assert MessageToDict(Value.FromString(write_value(value))) == value


def test_a_number_beyond_all_doubles() -> None:
    for number in (10**400, -(10**400)):
        read = Value.FromString(write_value({"maximum": number})).struct_value["maximum"]
        assert isinstance(read, float)
        assert abs(read) == sys.float_info.max and (read > 0) == (number > 0)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 300_000])
def test_a_text_inside_messages(size: int) -> None:
    text = "w" * size
    real = pb.RequestContextSuccess(request_context=pb.RequestContext(cloud_rule=text)).SerializeToString()
    context = embed(tag(pb.RequestContext, "cloud_rule"), text.encode())
    assert embed(tag(pb.RequestContextSuccess, "request_context"), context) == real


def test_fields_in_the_order_of_their_numbers() -> None:
    real = pb.AgentRunRequest(conversation_id="c", run_id="r", mcp_tools=pb.McpTools())
    parts = (("mcp_tools", b""), ("conversation_id", b"c"), ("run_id", b"r"))
    assert b"".join(embed(tag(pb.AgentRunRequest, name), data) for name, data in parts) == real.SerializeToString()
