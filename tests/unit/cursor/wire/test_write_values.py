"""JSON values as protobuf has them, read back by protobuf itself."""

import sys

from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.write_values import write_value

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
