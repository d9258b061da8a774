"""A file's content out of a read tool's output: line numbers, frames, `<system-reminder>` and truncation notes removed,
only where they are certain.

Line numbers are removed only if every line has one and they count up by one. Anything doubtful stays.
"""

import re
from typing import Final

from msgspec import Struct


class FileText(Struct, frozen=True):
    content: str
    total_lines: int
    truncated: bool = False
    """The client says that the file goes on."""


_REMINDER: Final = "</system-reminder>"
_MAX_REMINDERS: Final = 8
_FRAME: Final = re.compile(
    r"\A(?:<path>[^\n]*</path>\n<type>file</type>\n)?<(?P<tag>file|content)>\n(?P<body>.*?)\n?</(?P=tag)>\s*\Z",
    re.DOTALL,
)
_NOTE: Final = re.compile(
    r"\n?\n\((?:End of file|Showing lines|Output capped|Output truncated|File has more lines)(?P<says>[^\n]*)\)\s*\Z"
)
_TOTAL: Final = re.compile(r"total (\d{1,9}) lines|of (\d{1,9})\b")
_GOES_ON: Final = re.compile(r"to continue|beyond line|to read more|more lines", re.IGNORECASE)

_NUMBERED: Final = (
    re.compile(r" *(\d{1,9})→(.*)", re.DOTALL),
    re.compile(r"(?=.{6}\t|\d{7,9}\t) *(\d{1,9})\t(.*)", re.DOTALL),
    re.compile(r"(\d{5,9})\| ?(.*)", re.DOTALL),
)
"""Line numbers that tools print: an arrow; `cat -n` in its six columns; five digits and a bar."""
_NUMBERED_IN_FRAME: Final = (re.compile(r"(\d{1,9}): ?(.*)", re.DOTALL), *_NUMBERED)
"""Inside a frame even the simplest form is certain enough."""


def read_file_text(text: str, path: str) -> FileText:
    text = _without_reminders(text)
    head = f"Content of {path}:\n"  # Continue
    if text.startswith(head):
        return plain_text(text[len(head) :])
    frame = _FRAME.match(text)
    if frame is None:
        return plain_text(_without_numbers(text, _NUMBERED))
    body = frame["body"]
    total, truncated = None, False
    if note := _NOTE.search(body, max(0, len(body) - 400)):
        count = _TOTAL.search(note[0])
        total = int(count[1] or count[2]) if count else None
        truncated = _GOES_ON.search(note[0]) is not None
        body = body[: note.start()]
    content = _without_numbers(body, _NUMBERED_IN_FRAME)
    return FileText(content, count_lines(content) if total is None else total, truncated)


def plain_text(text: str) -> FileText:
    return FileText(text, count_lines(text))


def count_lines(text: str) -> int:
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _without_reminders(text: str) -> str:
    """Clients add notes for the model after the content: a few at most."""
    for _ in range(_MAX_REMINDERS):
        bare = text.rstrip()
        start = bare.rfind("<system-reminder>") if bare.endswith(_REMINDER) else -1
        if start < 0 or (start > 0 and bare[start - 1] != "\n"):
            return text
        text = bare[:start].rstrip("\n")
    return text


def _without_numbers(text: str, forms: tuple[re.Pattern[str], ...]) -> str:
    lines = text.removesuffix("\n").split("\n")
    for form in forms:
        content: list[str] = []
        number = None
        for line in lines:
            match = form.fullmatch(line)
            if match is None or (number is not None and int(match[1]) != number + 1):
                break
            number = int(match[1])
            content.append(match[2])
        else:
            return "\n".join(content) + ("\n" if text.endswith("\n") else "")
    return text
