"""What an exec asks for, as a role and values under the property names that clients use: paths, commands, timeouts in
milliseconds or seconds, lines from 0 or 1. Tables; knows no schema and no result."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from ....cursor.wire.messages import pb
from .fitting import Form, Need, Value
from .roles import ToolRole


class Intent(Struct, frozen=True):
    role: ToolRole
    values: tuple[Value, ...]
    label: str | None = None
    """The text for a required free-text label."""
    ranged: bool = False
    """Only a part of a file is asked for."""
    fills: tuple[Form, ...] = ()
    """What may be said where a tool requires it, though nobody asked for it."""


PATH: Final = (
    *("file_path", "path", "filename", "file", "file_name", "target_file", "absolute_path"),
    *("absolute_file_path", "relative_path"),
)
PATHS: Final = ("paths", "file_paths", "files")
FOLDER: Final = (
    *("path", "directory", "dir", "dir_path", "directory_path", "target_directory", "folder", "folder_path"),
    *("absolute_path", "relative_workspace_path", "relative_path"),
)
SEARCHED: Final = ("path", "directory", "dir", "dir_path", "search_path", "target_directory", "folder", "search_dir")
COMMAND: Final = ("command", "cmd", "script", "commands", "shell_command", "command_line")
WORKDIR: Final = ("workdir", "cwd", "working_directory", "working_dir", "work_dir", "directory", "dir_path", "dir")
BACKGROUND: Final = ("run_in_background", "is_background", "background")
MILLISECONDS: Final = ("timeout_ms", "timeout_millis", "timeout_milliseconds")
SECONDS: Final = ("timeout_secs", "timeout_seconds", "timeout_sec", "timeout_s")
YIELD: Final = ("yield_time_ms",)
"""How long Codex waits for a command before it reports what there is and lets the command run on."""
START: Final = ("offset", "start_line", "line_start", "start", "start_line_one_indexed", "from_line")
COUNT: Final = ("limit", "max_lines", "num_lines", "line_count", "lines")
END: Final = ("end_line", "line_end", "end", "end_line_one_indexed_inclusive", "to_line")
PATTERN: Final = ("pattern", "regex", "regexp", "search_pattern", "query")
GLOB: Final = ("pattern", "glob_pattern", "glob", "query")
INCLUDE: Final = ("include", "glob", "glob_pattern", "file_pattern", "include_pattern", "includes")
CONTENT: Final = ("content", "contents", "file_text", "text", "file_content", "data")
URL: Final = ("url", "uri", "link")
ENTRIES: Final = ("files", "requests", "reads")
"""Lists of objects, one for each thing that is wanted."""
_APPROVAL: Final = Form(("requires_approval", "needs_approval"), True)
"""Whether a person is to be asked is the client's business: it may."""
_FORMATS: Final = tuple(Form(("format", "output_format"), name) for name in ("markdown", "text"))
_WHOLE_PAGE: Final = "Return the content of the page."

_IN_MS: Final = re.compile(r"milli|\bms\b", re.IGNORECASE)
_IN_SECONDS: Final = re.compile(r"second|\bsecs?\b", re.IGNORECASE)
_FROM_ZERO: Final = re.compile(r"\b0-(?:based|indexed)|zero-(?:based|indexed)", re.IGNORECASE)


def _one(names: tuple[str, ...], value: object, need: Need = Need.MUST) -> Value:
    return Value((Form(names, value),), need)


def _file(path: str) -> Value:
    return Value((Form(PATH, path), Form(PATHS, [path]), *_entries(path)))


def _entries(path: str, **more: object) -> Iterator[Form]:
    """A list with one object that names the file; strict tools want to hear that there are no ranges."""
    for name in ("path", "file_path", "filePath"):
        yield Form(ENTRIES, [{name: path, **more}])
        if not more:
            yield Form(ENTRIES, [{name: path, "line_ranges": None}])


def command(text: str, label: str = "") -> Intent:
    """A shell that runs `text` in its current directory. Some tools take an argument vector."""
    forms = (Form(COMMAND, text), Form(("command", "cmd", "argv"), ["bash", "-lc", text]), Form(("commands",), [text]))
    return Intent(ToolRole.SHELL, (Value(forms),), label=label or text, fills=(_APPROVAL,))


def shell(args: pb.ShellArgs, *, folder: str = "", text: str = "") -> Intent:
    """`folder`: where the tool must run it. `text`: the command, if not the one of the exec."""
    intent = command(text or args.command, args.description)
    values = list(intent.values)
    if folder:
        values.append(_one(WORKDIR, folder))
    if args.is_background:
        values.append(_one(BACKGROUND, True))
    if args.timeout > 0:
        values.append(_timeout(args.timeout))
    if args.description:
        values.append(_one(("description", "explanation"), args.description, Need.MAY))
    return Intent(ToolRole.SHELL, tuple(values), label=intent.label, fills=intent.fills)


def _timeout(milliseconds: int) -> Value:
    """The unit is in the name, or else in the description; a bare `timeout` is in milliseconds in most clients."""
    seconds = -(-milliseconds // 1000)
    forms = (
        Form(MILLISECONDS, milliseconds),
        Form(SECONDS, seconds),
        Form(("timeout",), milliseconds, _IN_MS),
        Form(("timeout",), seconds, _IN_SECONDS),
        Form(("timeout",), milliseconds),
        Form(YIELD, milliseconds),
    )
    return Value(forms, Need.MAY)


def read(args: pb.ReadArgs) -> Intent:
    start = max(0, args.offset)
    values = [_file(args.path)]
    if start:
        values.append(Value((Form(START, start - 1, _FROM_ZERO), Form(START, start)), Need.SHOULD))
    if args.limit:
        end = max(start, 1) + args.limit - 1
        values.append(Value((Form(COUNT, args.limit), Form(END, end)), Need.SHOULD))
    return Intent(ToolRole.READ, tuple(values), ranged=len(values) > 1)


def read_entry(args: pb.ReadArgs) -> Intent:
    """A part of a file, for tools that take a list of files with their ranges."""
    start = max(1, args.offset)
    end = start + args.limit - 1
    forms = [*_entries(args.path, start_line=start, end_line=end), *_entries(args.path, line_ranges=[[start, end]])]
    return Intent(ToolRole.READ, (Value(tuple(forms)),), ranged=True)


def ls(args: pb.LsArgs) -> Intent:
    values = [_one(FOLDER, args.path) if args.path else _one(FOLDER, ".", Need.MAY)]
    if args.ignore:
        values.append(_one(("ignore", "ignore_patterns", "exclude"), list(args.ignore), Need.MAY))
    return Intent(ToolRole.LIST, tuple(values), fills=(Form(("recursive",), False),))


def glob(args: pb.GrepArgs) -> Intent:
    values = [_one(GLOB, args.glob)]
    if args.path:
        values.append(_one(SEARCHED, args.path))
    if args.head_limit > 0:
        values.append(_one(("limit", "max_results", "head_limit"), args.head_limit, Need.MAY))
    return Intent(ToolRole.GLOB, tuple(values))


def grep(args: pb.GrepArgs) -> Intent:
    values = [Value((Form(PATTERN, args.pattern), Form(("queries", "patterns"), [args.pattern])))]
    if args.path:
        values.append(_one(SEARCHED, args.path))
    if args.glob:
        values.append(Value((Form(INCLUDE, args.glob), Form(INCLUDE, [args.glob])), Need.SHOULD))
    if args.case_insensitive:
        forms = (
            Form(("-i", "case_insensitive", "ignore_case", "insensitive"), True),
            Form(("case_sensitive",), False),
        )
        values.append(Value(forms, Need.SHOULD))
    if args.type:
        values.append(_one(("type", "file_type"), args.type, Need.SHOULD))
    if args.multiline:
        values.append(_one(("multiline",), True, Need.SHOULD))
    # Left out, the mode is `content` in Cursor's grep and something else in others.
    values.append(_one(("output_mode",), args.output_mode or "content", Need.MAY))
    values.extend(
        _one(names, number, Need.MAY)
        for names, number in (
            (("-B", "context_before", "before_context"), args.context_before),
            (("-A", "context_after", "after_context"), args.context_after),
            (("-C", "context", "context_lines"), args.context),
            (("head_limit", "limit", "max_results"), args.head_limit),
            (("offset",), args.offset),
        )
        if number > 0
    )
    return Intent(ToolRole.GREP, tuple(values))


def write(args: pb.WriteArgs, text: str) -> Intent:
    lines = Form(("line_count",), text.count("\n") + (not text.endswith("\n")))
    return Intent(ToolRole.WRITE, (_file(args.path), _one(CONTENT, text)), fills=(lines,))


def delete(args: pb.DeleteArgs) -> Intent:
    return Intent(ToolRole.DELETE, (_file(args.path),))


def fetch(args: pb.FetchArgs) -> Intent:
    request = {"url": args.url, "prompt": _WHOLE_PAGE}
    forms = Form(URL, args.url), Form(("urls",), [args.url]), Form(("requests",), [request])
    return Intent(ToolRole.FETCH, (Value(forms),), fills=_FORMATS)


def written_text(args: pb.WriteArgs) -> str | None:
    """The text of a write; None when its bytes are not text."""
    if args.file_text or not args.file_bytes:
        return args.file_text
    try:
        return args.file_bytes.decode()
    except UnicodeDecodeError:
        return None
