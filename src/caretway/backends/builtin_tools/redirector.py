"""Translates an exec into a call of one of the client's tools.

For each kind of exec there are several ways, best first: a dedicated tool that takes every argument, a shell, a
dedicated tool that takes the essential arguments. The first way that fits a tool's schema is used. Namespaced tools
come last.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...core.request import Text, ToolResult, ToolSpec, are_added
from ...cursor.wire.messages import pb
from . import answers, by_shell, exec_intent, execs
from .answers import Outcome, Reply, only_entry, read_outcome
from .exec_intent import ClientToolbox, Intent, Need, ToolRole, fit
from .execs import Redirect

# ---- Extracts exit code and output from a shell tool's text in the formats of Claude Code, Codex, Gemini, goose and
# JSON; recognises a timeout and a command that still runs. A format counts only at the beginning or end of the text.
#
# Output that only mentions exit codes stays output.

MAX_EXIT_CODE: Final = 2**31 - 1
_TAIL: Final = 4096
"""Characters at the end of a result that are searched for a format."""


class Ending(Struct, frozen=True):
    """A pattern with the group `code`. The matched text is not part of the output."""

    pattern: re.Pattern[str]
    only_failed: bool = False
    """The pattern applies only if the protocol says that the call failed."""


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
    # Continue: "Error (exit code 2): ...", its only form of an exit code.
    Ending(re.compile(rf"\A(?:Error: )?Error \(exit code {_CODE}\): ")),
    # goose, pi: the last line.
    Ending(re.compile(rf"(?:\A|\n\n?)\(?Command exited with code {_CODE}\)?\s*\Z")),
    # Gemini CLI: a block of fields at the end.
    Ending(
        re.compile(rf"(?:\A|\n)Exit Code: {_CODE}(?:\n(?:Signal|Background PIDs|Process Group PGID): [^\n]*)*\s*\Z")
    ),
    # Tags on a separate line at either end.
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
    # Code 0 does not explain a failure, so it is dropped.
    exit_code = code if code or not failed else None
    return Outcome(text, failed, exit_code, refused=plain.refused and exit_code is None, raw=True)


def _split(text: str, *, failed: bool) -> tuple[str, int | None, str | None]:
    """(output, exit code, id of the session in which the command still runs); the last two may be None."""
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
    """The exit code in the wire's range. A code outside it, such as a signal's, becomes 1."""
    number = int(code)
    return number if 0 <= number <= MAX_EXIT_CODE else 1


def _json(text: str) -> tuple[str, int] | None:
    """(output, exit code) from a JSON object, as in Codex's first shell tool and many scripts; otherwise None."""
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


Answer = Callable[[Outcome], list[Reply]]


class RedirectRoute(Struct, frozen=True):
    intent: Intent
    answer: Answer
    least: Need = Need.SHOULD
    """Values with this need or a stronger need must be passed."""


class Redirector:
    """Translates execs for the tools of one request."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = ClientToolbox(tools)

    def translate(self, exec_: pb.ExecServerMessage) -> Redirect | None:
        """The call that does what the exec asks for; None if no tool of the client fits."""
        kind = exec_.WhichOneof("message")
        ways = WAYS.get(kind) if kind else None
        if ways is None:
            return None
        able = list(ways(exec_))
        for namespaced in (False, True):
            for way in able:
                for tool in self._tools.tools(way.intent.role, namespaced=namespaced):
                    intent = way.intent
                    arguments = fit(tool.schema, intent.values, least=way.least, label=intent.label, fills=intent.fills)
                    if arguments is not None:
                        listed = any(isinstance(value, list) for value in arguments.values())
                        convert = partial(_convert, way, listed)
                        return Redirect(
                            tool.name, msgspec.json.encode(arguments).decode(), convert, carries_text=kind in _SHELLS
                        )
        return None


def _convert(way: RedirectRoute, listed: bool, exec_id: int, result: ToolResult) -> list[bytes]:
    result, added = _apart(result)
    if listed:
        result = only_entry(result)
    outcome = (read_shell_outcome if way.intent.role is ToolRole.SHELL else read_outcome)(result)
    if added:
        outcome = replace(outcome, text=outcome.text + added)
    messages: list[bytes] = []
    for reply in way.answer(outcome):
        reply.id = exec_id
        messages.append(execs.answer(reply))
    return [*messages, execs.stream_close(exec_id)]


def _apart(result: ToolResult) -> tuple[ToolResult, str]:
    """(the tool's own answer, the text that was added to it), because added text is not part of the tool's format."""
    last = result.content[-1] if result.content else None
    if isinstance(last, Text) and are_added(last):
        return replace(result, content=result.content[:-1]), last.text
    return result, ""


def _shell(args: pb.ShellArgs, answer: Callable[[pb.ShellArgs, Outcome], list[Reply]]) -> Iterator[RedirectRoute]:
    if not args.command:
        return
    folder = "" if args.working_directory == "." else args.working_directory
    yield RedirectRoute(exec_intent.shell(args, folder=folder), partial(answer, args))
    if folder and (moved := by_shell.inside(folder, args.command)):
        yield RedirectRoute(exec_intent.shell(args, text=moved), partial(answer, args))


def _routes(intent: Intent, command: str | None, answer: Answer) -> Iterator[RedirectRoute]:
    """The ways for an intent: a dedicated tool, a shell, the dedicated tool with fewer arguments."""
    yield RedirectRoute(intent, answer)
    if command is not None:
        yield RedirectRoute(exec_intent.command(command), answer)
    yield RedirectRoute(intent, answer, Need.MUST)


def _read(args: pb.ReadArgs, answer: Callable[..., list[Reply]]) -> Iterator[RedirectRoute]:
    if not args.path:
        return
    intent = exec_intent.read(args)
    for number, way in enumerate(_routes(intent, by_shell.read(args), partial(answer, args, ranged=intent.ranged))):
        # Without all arguments the client reads more of the file than the range.
        yield way if way.least is not Need.MUST else RedirectRoute(intent, partial(answer, args), Need.MUST)
        if number == 0 and intent.ranged and args.limit:
            yield RedirectRoute(exec_intent.read_entry(args), partial(answer, args, ranged=True))


def _ls(args: pb.LsArgs) -> Iterator[RedirectRoute]:
    return _routes(exec_intent.ls(args), by_shell.ls(args), partial(answers.ls, args))


def _search(args: pb.GrepArgs) -> Iterator[RedirectRoute]:
    """The ways for a grep exec: with a pattern it searches in files, with only a glob it searches for files."""
    if args.pattern:
        yield from _routes(exec_intent.grep(args), by_shell.grep(args), partial(answers.grep, args))
    elif args.glob:
        yield from _routes(exec_intent.glob(args), by_shell.glob(args), partial(answers.glob, args))


def _write(args: pb.WriteArgs) -> Iterator[RedirectRoute]:
    text = exec_intent.written_text(args)
    if args.path and text is not None:
        yield from _routes(exec_intent.write(args, text), by_shell.write(args, text), partial(answers.write, args))


def _delete(args: pb.DeleteArgs) -> Iterator[RedirectRoute]:
    if args.path:
        yield from _routes(exec_intent.delete(args), by_shell.delete(args), partial(answers.delete, args))


def _fetch(args: pb.FetchArgs) -> Iterator[RedirectRoute]:
    if args.url:
        yield RedirectRoute(exec_intent.fetch(args), partial(answers.fetch, args))


_SHELLS: Final = ("shell_args", "shell_stream_args")
WAYS: Final[dict[str, Callable[[pb.ExecServerMessage], Iterator[RedirectRoute]]]] = {
    "shell_args": lambda exec_: _shell(exec_.shell_args, answers.shell),
    "shell_stream_args": lambda exec_: _shell(exec_.shell_stream_args, answers.shell_stream),
    "read_args": lambda exec_: _read(exec_.read_args, answers.read),
    "redacted_read_args": lambda exec_: _read(exec_.redacted_read_args, answers.redacted_read),
    "ls_args": lambda exec_: _ls(exec_.ls_args),
    "grep_args": lambda exec_: _search(exec_.grep_args),
    "write_args": lambda exec_: _write(exec_.write_args),
    "delete_args": lambda exec_: _delete(exec_.delete_args),
    "fetch_args": lambda exec_: _fetch(exec_.fetch_args),
}
"""Exec kind -> its ways. Other kinds (diagnostics, a shell that outlives its call, MCP resources) have no equivalent
among clients' tools."""
