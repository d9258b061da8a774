"""Converts a client tool's outcome into the typed result of the exec (shell, read, write, delete, ls, grep, glob,
fetch): success, not found, rejected or error. One function for each kind. Pure.

Nothing is looked up or retried: the model gets the client's result in the type that it expects. The caller sets the
exec's id on the messages.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from google.protobuf.message import Message
from msgspec import Struct, field

from ...core.json_bounds import crowded
from ...core.request import Image, Text, ToolResult
from ...cursor.wire.messages import pb
from .exec_intent import written_text
from .execs import fill

# ---- The outcome of the client's tool: failed, refused by a person, or successful. Also unwraps images and JSON lists
# with one entry, and replaces lone surrogates.
#
# Clients report a failure in three ways: the protocol's error flag, an exit code, or words. Words count only if they
# are short, begin like an error and, where the text might be a file's content, name the requested file.

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
    """None if the client did not report it."""
    refused: bool = False
    """A person refused the call."""
    image: bytes | None = None
    raw: bool = False
    """The text is a command's output, without a tool's formatting."""


def sayable(text: str) -> str:
    """The text with lone surrogates replaced: JSON can escape them, but protobuf needs valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def only_entry(result: ToolResult) -> ToolResult:
    """The single entry's result, if a tool that takes lists answered with a JSON list of one object."""
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
    """Whether the text is an error message. With `path`, the message must name the file."""
    message = text.strip()
    if not message or len(message) > _SHORT or message.count("\n") > 4:
        return False
    if _ERROR.match(message) is None:
        return False
    return path is None or posixpath.basename(path.rstrip("/")) in message


# ---- Extracts a file's content from a read tool's output: removes line numbers, frames, `<system-reminder>` and
# truncation notes, only where they are certain.
#
# Line numbers are removed only if every line has a number and the numbers count up by one.


class FileText(Struct, frozen=True):
    content: str
    total_lines: int
    truncated: bool = False
    """Whether the client reports that the file has more lines."""


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
"""Formats of line numbers: number and arrow; `cat -n` with six columns; five digits and a bar."""
_NUMBERED_IN_FRAME: Final = (re.compile(r"(\d{1,9}): ?(.*)", re.DOTALL), *_NUMBERED)
"""Inside a frame the simplest format, number and colon, is also certain enough."""


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
    """Remove the notes for the model that clients append to the content."""
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


# ---- Builds the wire's directory tree from a listing tool's text and the requested path: `ls -1Ap`, indented trees,
# bullets, types and sizes, whole paths; at most 32 levels deep.
#
# A line in an unknown format is taken as a file's name.

MAX_DEPTH: Final = 32
"""Deeper entries go to the last level, because messages have a nesting limit."""

_LINE: Final = re.compile(r"(?P<indent>[ \t│|]*(?:[├└+`][─-]{1,3} ?)?)(?P<bullet>- )?(?P<name>.*)")
_TITLE: Final = re.compile(
    r"(?:files|contents|entries|items) (?:in|of) .*:|(?:directory )?listing (?:for|of) .*:|absolute path: .*"
    r"|note: .*|\(.*\)|<.*>",
    re.IGNORECASE,
)
_KIND_BEFORE: Final = re.compile(r"\[(DIR|FILE)\]\s+(.*)")
_KIND_AFTER: Final = re.compile(r"(.*?) \((directory|file)(?:, [^()]*)?\)")
_SIZE_AFTER: Final = re.compile(r"(.*\S) +\[\d+K?\]")
_PLACE: Final = re.compile(r"<path>([^\n<]*)</path>")


class _Folder(Struct):
    folders: dict[str, "_Folder"] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)

    def add(self, name: str, *, is_folder: bool, depth: int) -> "_Folder | None":
        """Add a name or a path. Returns the folder that it names."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if not parts:
            return None
        node = self
        for part in parts if is_folder else parts[:-1]:
            if depth >= MAX_DEPTH:
                break
            node = node.folders.setdefault(part, _Folder())
            depth += 1
        if is_folder:
            return node
        node.files[parts[-1]] = None
        return None


def flat(text: str, path: str) -> pb.LsDirectoryTreeNode:
    """The tree of a listing with one name per line and `/` after directories."""
    root = _Folder()
    for line in text.split("\n"):
        name = line.removesuffix("\r")
        root.add(name, is_folder=name.endswith("/"), depth=0)
    return _node(root, path or ".", top=True)


def tree(text: str, path: str) -> pb.LsDirectoryTreeNode:
    root = _Folder()
    place = path
    if heading := _PLACE.search(text[:4096]):
        place = heading[1] or place
    levels: list[tuple[int, _Folder]] = []  # (column of the name, folder), outermost first
    for line in text.split("\n"):
        match = _LINE.fullmatch(line.rstrip())
        if match is None or not match["name"]:
            continue
        name, is_folder = _entry(match["name"])
        column = len(match["indent"].expandtabs(4)) + len(match["bullet"] or "")
        if column == len(match["bullet"] or "") and _TITLE.fullmatch(name):
            continue
        if not levels and not root.folders and not root.files and is_folder and _is_root(name, path):
            place = name.rstrip("/") or "/"
            continue
        while levels and levels[-1][0] >= column:
            levels.pop()
        parent = levels[-1][1] if levels else root
        relative = _relative(name, place) if not levels else name
        folder = parent.add(relative, is_folder=is_folder, depth=len(levels))
        if folder is not None and len(levels) < MAX_DEPTH:
            levels.append((column, folder))
    return _node(root, place or ".", top=True)


def _entry(name: str) -> tuple[str, bool]:
    """(name, is a directory)."""
    if before := _KIND_BEFORE.fullmatch(name):
        return before[2], before[1] == "DIR"
    if after := _KIND_AFTER.fullmatch(name):
        return after[1], after[2] == "directory"
    if size := _SIZE_AFTER.fullmatch(name):
        name = size[1]
    return name, name.endswith("/")


def _is_root(name: str, path: str) -> bool:
    """Whether the first line of a tree names the listed directory itself."""
    bare = name.rstrip("/")
    return name.startswith("/") or bare == "." or (bool(path) and bare == path.rstrip("/"))


def _relative(name: str, place: str) -> str:
    """The name without the listed directory, which some tools repeat in each path."""
    prefix = place.rstrip("/") + "/"
    return name[len(prefix) :] if place and name.startswith(prefix) else name


def _node(folder: _Folder, path: str, *, top: bool = False) -> pb.LsDirectoryTreeNode:
    folders = [_node(inner, posixpath.join(path, name)) for name, inner in folder.folders.items()]
    return pb.LsDirectoryTreeNode(
        abs_path=path,
        children_dirs=folders,
        children_files=[pb.LsDirectoryTreeNode.File(name=name) for name in folder.files],
        # A directory without entries may be empty or may not have been listed.
        children_were_processed=top or bool(folder.folders or folder.files),
        num_files=len(folder.files) + sum(inner.num_files for inner in folders),
    )


# ---- Parses search results from a grep tool's text: `path:line:text`, matches grouped by file, counts, plain paths,
# context lines, truncation notes. Pure.

_NUMBER: Final = r"(\d{1,9})"
_MATCH: Final = re.compile(rf"(.+?):{_NUMBER}:(.*)")
_CONTEXT: Final = re.compile(rf"(.+?)-{_NUMBER}-(.*)")
_COUNT: Final = re.compile(rf"(.+):{_NUMBER}")
_ROW: Final = re.compile(rf"\s*(?:Line |L){_NUMBER}: ?(.*)|\s*{_NUMBER}[:|] ?(.*)")
"""A match below the line with its file's name."""
_HEADING: Final = re.compile(r"File: (.+)|(\S.*):")
_NOISE: Final = re.compile(
    r"--|(?:found|showing) \d+ .*|no (?:files|matches|results)(?: were)?(?: found)?\b.*|\(.*\)|---|```"
    r"|\[.*(?:truncated|omitted|limit).*\]|binary file .* matches",
    re.IGNORECASE,
)
_TRUNCATED: Final = re.compile(r"truncated|showing (?:only |first |the first )|results? limit|hidden\)", re.IGNORECASE)


class _Found(Struct):
    content: dict[str, list[pb.GrepContentMatch]] = field(default_factory=dict)
    paths: dict[str, None] = field(default_factory=dict)
    """Lines that belong to no match."""

    def add(self, file: str, number: str, text: str, *, context: bool = False) -> None:
        match = pb.GrepContentMatch(line_number=int(number), content=text, is_context_line=context)
        self.content.setdefault(file, []).append(match)


def files(text: str) -> pb.GrepUnionResult:
    """The result for a text in which every line is a path."""
    paths = list(dict.fromkeys(line.strip() for line in _lines(text)))
    truncated = _is_truncated(text)
    return pb.GrepUnionResult(files=pb.GrepFilesResult(files=paths, total_files=len(paths), client_truncated=truncated))


def matches(text: str, mode: str, *, with_context: bool) -> pb.GrepUnionResult:
    """The result in the requested mode if the text has that format; otherwise in the mode of the text."""
    if mode == "count" and (counts := _counts(text)) is not None:
        return pb.GrepUnionResult(count=counts)
    if mode == "files_with_matches" and not any(_MATCH.fullmatch(line) for line in _lines(text)):
        return files(text)
    output = _content(text, with_context=with_context)
    if mode == "files_with_matches":
        paths = list(output.content)
        return pb.GrepUnionResult(files=pb.GrepFilesResult(files=paths, total_files=len(paths)))
    if not output.content and output.paths:
        return files(text)
    lines = [match for several in output.content.values() for match in several]
    return pb.GrepUnionResult(
        content=pb.GrepContentResult(
            matches=[pb.GrepFileMatch(file=file, matches=several) for file, several in output.content.items()],
            total_lines=len(lines),
            total_matched_lines=sum(not match.is_context_line for match in lines),
            client_truncated=_is_truncated(text),
        )
    )


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        bare = line.removesuffix("\r")
        if bare.strip() and not _NOISE.fullmatch(bare.strip()):
            yield bare


def _content(text: str, *, with_context: bool) -> _Found:
    output = _Found()
    heading = ""
    for line in _lines(text):
        row = _ROW.fullmatch(line) if heading else None
        if row:
            output.add(heading, row[1] or row[3], row[2] if row[1] else row[4])
        elif match := _MATCH.fullmatch(line):
            output.add(match[1], match[2], match[3])
        elif with_context and (context := _CONTEXT.fullmatch(line)):
            output.add(context[1], context[2], context[3], context=True)
        elif title := _HEADING.fullmatch(line):
            heading = title[1] or title[2]
        else:
            heading = line.strip()  # ripgrep prints the bare path above its matches
            output.paths[heading] = None
    return output


def _counts(text: str) -> pb.GrepCountResult | None:
    counts: list[pb.GrepFileCount] = []
    for line in _lines(text):
        match = _COUNT.fullmatch(line.strip())
        if match is None:
            return None
        counts.append(pb.GrepFileCount(file=match[1], count=int(match[2])))
    total = min(sum(entry.count for entry in counts), 2**31 - 1)
    return pb.GrepCountResult(
        counts=counts, total_files=len(counts), total_matches=total, client_truncated=_is_truncated(text)
    )


def _is_truncated(text: str) -> bool:
    """Whether the first line or one of the last lines reports a truncation."""
    edges = [*text[:300].split("\n")[:1], *text[-300:].split("\n")[-3:]]
    return any(_NOISE.fullmatch(line.strip()) and _TRUNCATED.search(line) for line in edges)


Reply = pb.ExecClientMessage


def _exit_code(outcome: Outcome) -> int:
    if outcome.exit_code is not None:
        return outcome.exit_code
    return 1 if outcome.failed else 0


def shell(args: pb.ShellArgs, outcome: Outcome) -> list[Reply]:
    result = pb.ShellResult()
    if outcome.refused:
        fill(result, "rejected", args, outcome.text)
    else:
        fill(result, "failure" if outcome.failed else "success", args, "")
        ended = result.failure if outcome.failed else result.success
        ended.exit_code, ended.stdout = _exit_code(outcome), outcome.text
    return [Reply(shell_result=result)]


def shell_stream(args: pb.ShellArgs, outcome: Outcome) -> list[Reply]:
    if outcome.refused:
        rejected = pb.ShellStream()
        fill(rejected, "rejected", args, outcome.text)
        return [Reply(shell_stream=rejected)]
    events = [pb.ShellStream(start=pb.ShellStreamStart(command=args.command))]
    if outcome.text:
        events.append(pb.ShellStream(stdout=pb.ShellStreamStdout(data=outcome.text)))
    events.append(pb.ShellStream(exit=pb.ShellStreamExit(code=_exit_code(outcome), cwd=args.working_directory)))
    return [Reply(shell_stream=event) for event in events]


def _read(args: pb.ReadArgs, outcome: Outcome, *, ranged: bool) -> pb.ReadResult:
    result = pb.ReadResult()
    if _went_wrong(result, args, outcome, args.path):
        return result
    success = result.success
    success.path = args.path
    if outcome.image is not None:
        success.data, success.file_size = outcome.image, len(outcome.image)
        return result
    file = plain_text(outcome.text) if outcome.raw else read_file_text(outcome.text, args.path)
    success.content, success.total_lines = file.content, file.total_lines
    success.file_size = len(file.content.encode())
    success.truncated, success.range_applied = file.truncated and not ranged, ranged
    return result


def read(args: pb.ReadArgs, outcome: Outcome, *, ranged: bool = False) -> list[Reply]:
    return [Reply(read_result=_read(args, outcome, ranged=ranged))]


def redacted_read(args: pb.ReadArgs, outcome: Outcome, *, ranged: bool = False) -> list[Reply]:
    return [Reply(redacted_read_result=_read(args, outcome, ranged=ranged))]


def write(args: pb.WriteArgs, outcome: Outcome) -> list[Reply]:
    result = pb.WriteResult()
    if not _went_wrong(result, args, outcome):
        text = written_text(args) or ""
        result.success.path = args.path
        result.success.lines_created = count_lines(text)
        result.success.file_size = len(text.encode())
        if args.return_file_content_after_write:
            result.success.file_content_after_write = text
    return [Reply(write_result=result)]


def delete(args: pb.DeleteArgs, outcome: Outcome) -> list[Reply]:
    result = pb.DeleteResult()
    if not _went_wrong(result, args, outcome):
        result.success.path = result.success.deleted_file = args.path
    return [Reply(delete_result=result)]


def ls(args: pb.LsArgs, outcome: Outcome) -> list[Reply]:
    result = pb.LsResult()
    if not _went_wrong(result, args, outcome, args.path):
        read_listing = flat if outcome.raw else tree
        result.success.directory_tree_root.CopyFrom(read_listing(outcome.text, args.path))
    return [Reply(ls_result=result)]


def grep(args: pb.GrepArgs, outcome: Outcome) -> list[Reply]:
    result = pb.GrepResult()
    if not _went_wrong(result, args, outcome, args.path or args.pattern):
        with_context = max(args.context, args.context_before, args.context_after) > 0
        _found(result.success, args, matches(outcome.text, args.output_mode or "content", with_context=with_context))
    return [Reply(grep_result=result)]


def glob(args: pb.GrepArgs, outcome: Outcome) -> list[Reply]:
    result = pb.GrepResult()
    if outcome.failed or outcome.refused:  # words do not count: every line may be a path
        fill(result, "error", args, outcome.text)
    else:
        _found(result.success, args, files(outcome.text))
    return [Reply(grep_result=result)]


_MODES = {"content": "content", "files": "files_with_matches", "count": "count"}


def _found(success: pb.GrepSuccess, args: pb.GrepArgs, results: pb.GrepUnionResult) -> None:
    success.pattern, success.path = args.pattern, args.path
    success.output_mode = _MODES[results.WhichOneof("result") or "content"]
    success.workspace_results[args.path or "."].CopyFrom(results)


def fetch(args: pb.FetchArgs, outcome: Outcome) -> list[Reply]:
    result = pb.FetchResult()
    if not _went_wrong(result, args, outcome):
        result.success.url, result.success.content = args.url, outcome.text
        result.success.status_code = 200  # the tool reports success but not the status code
    return [Reply(fetch_result=result)]


def _went_wrong(result: Any, args: Message, outcome: Outcome, path: str | None = None) -> bool:
    """Write a refused or failed call into the result, in the most exact variant of its type. Returns False if the
    call was successful. With `path`, only words that name the file count as a failure."""
    variants = result.DESCRIPTOR.fields_by_name
    failed = outcome.failed or (outcome.image is None and sounds_failed(outcome.text, path))
    if outcome.refused and "rejected" in variants:
        fill(result, "rejected", args, outcome.text)
    elif failed and "file_not_found" in variants and _MISSING.search(outcome.text) is not None:
        fill(result, "file_not_found", args, outcome.text)
    elif failed or outcome.refused:
        fill(result, "error", args, outcome.text)
    else:
        return False
    return True
