"""Files in requests: text is text, everything else is refused with the way out."""

import base64

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import Text
from caretway.dialects.attachments import decode_file
from caretway.dialects.fields import FieldPath

AT = FieldPath("", "part")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


TAKEN = [
    ({"filename": "a.py", "file_data": f"data:text/x-python;base64,{b64(b'x = 1')}"}, "File: a.py\nx = 1\n"),
    ({"filename": "a.json", "file_data": f"data:application/json;base64,{b64(b'{}')}"}, "File: a.json\n{}\n"),
    ({"file_data": f"data:;base64,{b64('é'.encode())}"}, "é\n"),
    ({"file_data": b64(b"bare")}, "bare\n"),
    ({"filename": "bom", "file_data": b64(b"\xef\xbb\xbfx")}, "File: bom\nx\n"),
    ({"filename": "both", "file_id": "f", "file_data": b64(b"x")}, "File: both\nx\n"),
]


@pytest.mark.seed("B15")
@pytest.mark.parametrize(("file", "text"), TAKEN)
def test_text_files_are_text(file: dict[str, object], text: str) -> None:
    assert decode_file(file, AT, "file") == Text(text)


REFUSED = [
    ({"file_id": "f"}, ErrorKind.UNSUPPORTED, "file_id_not_supported"),
    ({"file_url": "https://x"}, ErrorKind.UNSUPPORTED, "file_url_not_supported"),
    ({"filename": "a.pdf", "file_data": b64(b"%PDF-1.7 x")}, ErrorKind.UNSUPPORTED, "file_not_supported"),
    ({"file_data": b64(b"\xff\xfe\x00x")}, ErrorKind.UNSUPPORTED, "file_not_supported"),
    ({"file_data": b64(b"a\0b")}, ErrorKind.UNSUPPORTED, "file_not_supported"),
    ({"file_data": "data:text/plain,plain"}, ErrorKind.BAD_REQUEST, None),
    ({"file_data": "not base64!"}, ErrorKind.BAD_REQUEST, None),
    ({}, ErrorKind.BAD_REQUEST, None),
]


@pytest.mark.parametrize(("file", "kind", "code"), REFUSED)
def test_what_is_refused(file: dict[str, object], kind: ErrorKind, code: str | None) -> None:
    with pytest.raises(GatewayError) as refused:
        decode_file(file, AT, "file")
    assert refused.value.kind is kind
    assert code in (None, refused.value.code)
