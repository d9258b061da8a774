"""Did the client's tool fail? Told by the error flag, an exit code, or words (short, beginning like an error, naming
the file). Also a person's refusal, an image, a JSON list with one entry, lone surrogates.

Clients report a failure in three ways: the protocol's error flag, an exit code, or words. Words are believed only when
they are short, begin like an error and, where the text might be a file's own, name the file in question.
"""

import posixpath
import re
from typing import Final

import msgspec
from msgspec import Struct

from ....core.json_bounds import crowded
from ....core.request import Image, Text, ToolResult

_ERROR: Final = re.compile(
    r"(?:error\b|failed\b|enoent\b|eacces\b|file not found|file does not exist|no such file|permission denied"
    r"|path does not exist|path is not|directory does not exist|(?:cat|sed|ls|rm|grep|find|(?:/bin/)?(?:ba|z|da)?sh)"
    r"(?:: [^\n]*)+$)",
    re.IGNORECASE,
)
_WRAPPED: Final = re.compile(r"<(tool_use_error|error)>(.*)</\1>", re.DOTALL)
_MISSING: Final = re.compile(
    r"no such file|not found|does(?: not|n't) exist|enoent|cannot find|not a file or directory", re.IGNORECASE
)
_REFUSED: Final = re.compile(
    r"user (?:has )?(?:doesn't want|does not want|rejected|denied|declined|refused)|(?:rejected|denied|declined) by"
    r" (?:the )?user|permission to use .{1,80} (?:was|has been) denied",
    re.IGNORECASE,
)
MAX_ENTRY_CHARS: Final = 4 * 1024 * 1024
_SHORT: Final = 1000
"""The longest text, in characters, that may be an error message."""


class Outcome(Struct, frozen=True):
    text: str
    failed: bool = False
    exit_code: int | None = None
    """None: not reported."""
    refused: bool = False
    """A person refused the call."""
    image: bytes | None = None
    raw: bool = False
    """The text is a command's output, not a tool's presentation of something."""

    @property
    def missing(self) -> bool:
        return self.failed and _MISSING.search(self.text) is not None


def sayable(text: str) -> str:
    """The text as protobuf accepts it: JSON can escape lone surrogates, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def only_entry(result: ToolResult) -> ToolResult:
    """Of a tool that was given a list with one thing: what it says of that thing. Some answer with a JSON list that
    has an object for each."""
    text = result.text
    if len(text) > MAX_ENTRY_CHARS or not text.lstrip().startswith(("[{", "[\n")) or crowded(text):
        return result
    try:
        entries = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return result
    entry = entries[0] if isinstance(entries, list) and len(entries) == 1 else None
    if not isinstance(entry, dict) or not isinstance(entry.get("success"), bool):
        return result
    failed = not entry["success"]
    said = entry.get("error") if failed and entry.get("error") else entry.get("result")
    if not isinstance(said, str):
        return result
    pictures = [part for part in result.content if isinstance(part, Image)]
    return ToolResult(result.call_id, (Text(said), *pictures), failed or result.is_error)


def read_outcome(result: ToolResult) -> Outcome:
    """The result of a dedicated tool."""
    text = sayable(result.text)
    failed = result.is_error
    if wrapped := _WRAPPED.fullmatch(text.strip()):
        text, failed = wrapped[2].strip(), True
    image = next((part.data for part in result.content if isinstance(part, Image)), None)
    return Outcome(text, failed, refused=refused(text, failed=failed), image=image)


def refused(text: str, *, failed: bool) -> bool:
    first = text.lstrip()[:_SHORT]
    return (failed or len(text) <= _SHORT) and _REFUSED.search(first.partition("\n")[0]) is not None


def sounds_failed(text: str, path: str | None = None) -> bool:
    """True for an error in words. With `path`, the words must name it."""
    message = text.strip()
    if not message or len(message) > _SHORT or message.count("\n") > 4:
        return False
    if _ERROR.match(message) is None:
        return False
    return path is None or posixpath.basename(path.rstrip("/")) in message
