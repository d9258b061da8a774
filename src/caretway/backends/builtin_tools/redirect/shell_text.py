"""Exit code and output out of a shell tool's text, in the formats of Claude Code, Codex, Gemini, goose and JSON; a
timeout, a command that still runs. Only at the very beginning or end of the text.

Output that only mentions exit codes stays output.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from ....core.request import ToolResult
from .outcome import Outcome, read_outcome

MAX_EXIT_CODE: Final = 2**31 - 1
_TAIL: Final = 4096
"""How many characters at the end of a result are searched for a format."""


class Ending(Struct, frozen=True):
    """A pattern with the group `code`; what it matches is not part of the output."""

    pattern: re.Pattern[str]
    only_failed: bool = False
    """Used only when the protocol says that the call failed."""


_CODE: Final = r"(?P<code>-?\d{1,10})"
_STATUS_LINE: Final = (
    r"(?:Command: [^\n]*|Chunk ID: [^\n]*|Wall time:? [^\n]*|Original token count: [^\n]*|Total output lines: [^\n]*"
    r"|Process running with session ID (?P<session>\d{1,10})"
    rf"|(?:Process exited with code|Exit code:) {_CODE})\n"
)
_CODEX: Final = re.compile(rf"(?:{_STATUS_LINE})+Output:(?:\n|\Z)")
_NOTHING: Final = frozenset({"(no output)", "(Bash completed with no output)", "(empty)"})

ENDINGS: Final[tuple[Ending, ...]] = (
    # Claude Code: "Exit code 1" and then the output, with the error flag.
    Ending(re.compile(rf"\A(?:Error: )?Exit code:? {_CODE}(?:\n+|\Z)"), only_failed=True),
    # Continue: "Error (exit code 2): ...", the only form in which it reports one.
    Ending(re.compile(rf"\A(?:Error: )?Error \(exit code {_CODE}\): ")),
    # goose, pi: the last line.
    Ending(re.compile(rf"(?:\A|\n\n?)\(?Command exited with code {_CODE}\)?\s*\Z")),
    # Gemini CLI: a block of fields at the end.
    Ending(
        re.compile(rf"(?:\A|\n)Exit Code: {_CODE}(?:\n(?:Signal|Background PIDs|Process Group PGID): [^\n]*)*\s*\Z")
    ),
    # Tags, on a line of their own at either end.
    Ending(re.compile(rf"\A\s*<exit_code>{_CODE}</exit_code>\s*?(?:\n|\Z)")),
    Ending(re.compile(rf"(?:\A|\n)[ \t]*<exit_code>{_CODE}</exit_code>\s*\Z")),
)
_KILLED: Final = re.compile(
    r"<(?:bash_|shell_)?metadata>[^<]*(?:exceed\w* (?:the )?timeout|timed out|aborted)[^<]*</(?:bash_|shell_)?metadata>"
    r"\s*\Z|Command timed out[^\n]{0,80}\Z"
)
_JSON_CODES: Final = ("exit_code", "exitCode", "returncode", "return_code")


def read_shell_outcome(result: ToolResult) -> Outcome:
    plain = read_outcome(result)
    text, code, running = _split(plain.text, failed=plain.failed)
    failed = plain.failed or bool(code) or _KILLED.search(text, max(0, len(text) - _TAIL)) is not None
    if text.strip() in _NOTHING:
        text = ""
    if running:
        text += f"{'' if not text or text.endswith(chr(10)) else chr(10)}[still running as session {running}]\n"
    # A failure with code 0 is none that the code explains.
    exit_code = code if code or not failed else None
    return Outcome(text, failed, exit_code, refused=plain.refused and exit_code is None, raw=True)


def _split(text: str, *, failed: bool) -> tuple[str, int | None, str | None]:
    """(output, exit code, id of the session in which the command still runs)."""
    if (fields := _json(text)) is not None:
        return (*fields, None)
    if head := _CODEX.match(text):
        code, session = head["code"], head["session"]
        return text[head.end() :], _bounded(code) if code else None, session
    for ending in ENDINGS:
        match = ending.pattern.match(text) or ending.pattern.search(text, max(0, len(text) - _TAIL))
        if match and (failed or not ending.only_failed):
            return text[: match.start()] + text[match.end() :], _bounded(match["code"]), None
    return text, None, None


def _bounded(code: str) -> int:
    """The exit code as the wire can hold it. Codes of signals and of Windows all become a failure."""
    number = int(code)
    return number if 0 <= number <= MAX_EXIT_CODE else 1


def _json(text: str) -> tuple[str, int] | None:
    """Clients that answer with an object: Codex's first shell tool, and many scripts."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if not isinstance(value, dict):
        return None
    metadata = value.get("metadata")
    if isinstance(value.get("output"), str) and isinstance(metadata, dict):
        code = _json_code(metadata)
        return None if code is None else (value["output"], code)
    if isinstance(value.get("stdout"), str) and (code := _json_code(value)) is not None:
        stderr = value.get("stderr")
        return value["stdout"] + (stderr if isinstance(stderr, str) else ""), code
    return None


def _json_code(fields: Mapping[str, object]) -> int | None:
    for name in _JSON_CODES:
        code = fields.get(name)
        if isinstance(code, int) and not isinstance(code, bool):
            return _bounded(str(code))
    return None
