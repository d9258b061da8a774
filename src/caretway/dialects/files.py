"""Files in a request of OpenAI's APIs -> text: which are text (by what they hold), what is refused (PDF, files that are
stored or fetched elsewhere), strict base64, large ones in steps.

For the `file` part of Chat Completions and the `input_file` part of Responses.
"""

from collections.abc import Mapping
from typing import Final

from ..core.request import Text
from .fields import At, FieldPath, invalid_value, needed_string, optional_string, unsupported
from .images import decode_base64

_ELSEWHERE: Final = {"file_id": "This gateway stores no files.", "file_url": "Files are not fetched from the network."}
_SEND: Final = "Send its text, or the file itself as base64 in `file_data`."
_PDF: Final = b"%PDF-"


def decode_file(file: Mapping[str, object], at: At, kind: str) -> Text:
    """The file's name and its text. `kind`: the part's type, for the code of an error."""
    for key, why in _ELSEWHERE.items():
        if file.get("file_data") is None and file.get(key) is not None:
            raise unsupported(FieldPath(at, key), why, code=f"{key}_not_supported", hint=_SEND)
    place = FieldPath(at, "file_data")
    given = needed_string(file, "file_data", at)
    head, comma, payload = given.partition(",")
    if head[:5].lower() == "data:" and not (comma and head.lower().rstrip().endswith("base64")):
        raise invalid_value(place, "the data: URL must be base64 (data:text/plain;base64,...).")
    try:
        data = decode_base64((payload if comma else given).strip())
    except ValueError as error:
        raise invalid_value(place, f"the file is not valid base64 ({str(error)[:80]}).") from error
    name = optional_string(file, "filename", at) or ""
    return Text(f"File: {name}\n{_text(data, name, place, kind)}\n" if name else f"{_text(data, name, place, kind)}\n")


def _text(data: bytes, name: str, place: FieldPath, kind: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text and not data.startswith(_PDF):
        return text
    what = "PDF files" if data.startswith(_PDF) or name.lower().endswith(".pdf") else "Files that are not text"
    raise unsupported(place, f"{what} cannot be sent to Cursor.", code=f"{kind}_not_supported", hint="Send its text.")
