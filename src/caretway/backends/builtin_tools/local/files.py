"""read, write, delete and ls in the workspace. Writes are atomic (temporary file, fsync, rename), keep owner and mode,
and refuse write-protected files; delete removes a link and not its target. Blocking.

`confine` checks paths. The tables below map each expected failure to its result type.
"""

import contextlib
import errno
import fnmatch
import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from google.protobuf.message import Message

from ....cursor.wire.messages import pb
from ....processes.child import decoded
from ..execs import fill
from .confine import NotAFile, PathRefused, Spot, Workspace, kind_of, shown
from .texts import BeyondEnd, as_utf8, excerpt, is_binary

# ---- ls in the workspace: breadth first, at most 1000 entries, 4 levels and 10 s; does not follow links, does not
# enter `.git` and `node_modules`, applies ignore patterns. Blocking.
#
# Links cannot cause a loop. Above a limit the upper levels are more useful than one deep branch.

MAX_ENTRIES: Final = 1000
MAX_DEPTH: Final = 4
SECONDS: Final = 10.0

CLOSED: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})
"""Directories that are shown but not entered, because they hold thousands of uninteresting entries."""

MORE: Final = "[... more entries, not shown]"


def ls(
    workspace: Workspace,
    args: pb.LsArgs,
    *,
    max_entries: int = MAX_ENTRIES,
    clock: Callable[[], float] = time.monotonic,
) -> pb.LsResult:
    seconds = min(SECONDS, args.timeout_ms / 1000) if args.timeout_ms else SECONDS
    deadline = clock() + seconds
    try:
        with workspace.locate(args.path) as spot:
            if spot.name is not None:
                missing = spot.found is None
                raise NotADirectoryError("no such directory" if missing else "not a directory")
            start = os.path.relpath(spot.folder.path, workspace.root)
            root = pb.LsDirectoryTreeNode(abs_path=shown(spot.folder.path))
    except (PathRefused, OSError) as failure:
        return failed(pb.LsResult(), args, failure)

    left = max_entries
    queue = deque([(root, start, 0)])
    while queue:
        node, path, depth = queue.popleft()
        if clock() > deadline:
            return pb.LsResult(timeout=pb.LsTimeout(directory_tree_root=root))
        if left <= 0:
            break  # directories in the queue are shown as not processed
        try:
            dirs, files, more = _entries(workspace, path, args.ignore, left)
        except (PathRefused, OSError) as failure:
            if node is root:
                return failed(pb.LsResult(), args, failure)
            continue  # unreadable or deleted: shown as not processed
        left -= len(dirs) + len(files)
        node.children_were_processed = not more
        node.children_files.extend(pb.LsDirectoryTreeNode.File(name=shown(name)) for name in files)
        if more:
            node.children_files.add(name=MORE)
        for name in dirs:
            child = node.children_dirs.add(abs_path=shown(os.path.join(workspace.root, os.path.normpath(path), name)))
            child.abs_path = os.path.normpath(child.abs_path)
            if name not in CLOSED and depth + 1 < MAX_DEPTH:
                queue.append((child, os.path.join(path, name), depth + 1))
    return pb.LsResult(success=pb.LsSuccess(directory_tree_root=root))


def _entries(workspace: Workspace, path: str, ignore: Sequence[str], limit: int) -> tuple[list[str], list[str], bool]:
    """(directories, other entries, whether there are more entries); both lists are sorted."""
    dirs: list[str] = []
    files: list[str] = []
    with workspace.locate(path) as spot, spot.folder.entries() as entries:
        # The cut comes before the sort, to avoid reading a million names to show a thousand.
        wanted = (entry for entry in entries if not _ignored(entry.name, path, ignore))
        for entry in islice(wanted, limit):
            (dirs if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        more = next(wanted, None) is not None
    return sorted(dirs), sorted(files), more


def _ignored(name: str, path: str, patterns: Sequence[str]) -> bool:
    relative = os.path.normpath(os.path.join(path, name))
    for pattern in patterns:
        bare = pattern.removeprefix("**/").removesuffix("/**").rstrip("/")
        if fnmatch.fnmatchcase(name, bare) or fnmatch.fnmatchcase(relative, bare):
            return True
    return False


_BY_NUMBER: Final = {
    "permission_denied": (errno.EACCES, errno.EPERM, errno.EROFS),
    "no_space": (errno.ENOSPC, errno.EDQUOT),
    "file_busy": (errno.EBUSY, errno.ETXTBSY),
    "file_not_found": (errno.ENOENT, errno.ENOTDIR),
}
"""Variant of a result -> error numbers of the operating system."""

Failure = PathRefused | NotAFile | OSError
Result = TypeVar("Result", bound=Message)


@dataclass(frozen=True, slots=True)
class FileLimits:
    output_bytes: int
    max_file_bytes: int


def reason(failure: Failure) -> str:
    """The reason without absolute paths."""
    return (failure.strerror or str(failure)) if isinstance(failure, OSError) else str(failure)


def failed(result: Result, args: Message, failure: Failure) -> Result:
    """The result with the failure, in the most exact variant that the result's type has."""
    number = failure.errno if isinstance(failure, OSError) else None
    wanted = next((variant for variant, numbers in _BY_NUMBER.items() if number in numbers), "error")
    if isinstance(failure, PathRefused):
        wanted = "rejected"
    elif isinstance(failure, NotAFile):
        wanted = "not_file" if isinstance(result, pb.DeleteResult) else "invalid_file"
    fill(result, wanted if wanted in result.DESCRIPTOR.fields_by_name else "error", args, reason(failure))
    if isinstance(result, pb.DeleteResult) and isinstance(failure, NotAFile):
        result.not_file.actual_type = failure.actual
    return result


# ------------------------------------------------------------------------------------------------------------- read


def read(workspace: Workspace, args: pb.ReadArgs, limits: FileLimits) -> pb.ReadResult:
    try:
        with workspace.locate(args.path) as spot:
            fd = spot.folder.open_file(spot.file_name())
            with open(fd, "rb") as file:
                size = os.fstat(fd).st_size
                data = file.read(limits.max_file_bytes + 1)
    except (PathRefused, NotAFile, OSError) as failure:
        return failed(pb.ReadResult(), args, failure)
    complete = len(data) <= limits.max_file_bytes
    data = as_utf8(data[: limits.max_file_bytes])
    if is_binary(data):
        invalid = pb.ReadInvalidFile(path=args.path, reason=f"a binary file of {size} bytes cannot be read as text")
        return pb.ReadResult(invalid_file=invalid)
    ranged = args.HasField("offset") or args.HasField("limit")
    try:
        part = excerpt(
            data,
            offset=args.offset if args.HasField("offset") else None,
            limit=args.limit if args.HasField("limit") else None,
            max_bytes=limits.output_bytes,
            max_chars=args.max_chars if args.HasField("max_chars") else None,
            complete=complete,
        )
    except BeyondEnd as beyond:
        return pb.ReadResult(error=pb.ReadError(path=args.path, error=str(beyond)))
    success = pb.ReadSuccess(
        path=args.path,
        content=part.text,
        total_lines=part.total_lines,
        file_size=size,
        truncated=part.truncated,
        range_applied=ranged,
    )
    return pb.ReadResult(success=success)


# ------------------------------------------------------------------------------------------------------------ write


def write(workspace: Workspace, args: pb.WriteArgs, limits: FileLimits) -> pb.WriteResult:
    data = args.file_bytes or args.file_text.encode()
    if len(data) > limits.max_file_bytes:
        error = f"{len(data)} bytes are more than the {limits.max_file_bytes} that may be written at once"
        return pb.WriteResult(error=pb.WriteError(path=args.path, error=error))
    try:
        with workspace.locate(args.path, make_parents=True) as spot:
            _replace(spot, data)
    except (PathRefused, NotAFile, OSError) as failure:
        result = failed(pb.WriteResult(), args, failure)
        if result.HasField("permission_denied"):
            result.permission_denied.directory, result.permission_denied.operation = os.path.dirname(args.path), "write"
        return result
    success = pb.WriteSuccess(path=args.path, lines_created=data.count(b"\n") + 1, file_size=len(data))
    if args.return_file_content_after_write:
        success.file_content_after_write = decoded(data)
    return pb.WriteResult(success=success)


def _replace(spot: Spot, data: bytes) -> None:
    name, before = spot.file_name(), spot.found
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise NotAFile(kind_of(before.st_mode))
    if before is not None and not spot.folder.writable(name):
        # A rename needs no permission on the old file, so it would replace a write-protected file.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    temporary = f".caretway-{secrets.token_hex(8)}"
    fd = spot.folder.create(temporary, 0o666)  # a new file gets its mode from the umask
    try:
        with open(fd, "wb") as file:
            if before is not None:
                with contextlib.suppress(PermissionError):  # keep the owner if that is permitted
                    os.fchown(fd, before.st_uid, before.st_gid)
                os.fchmod(fd, before.st_mode & 0o777)  # never setuid, because the content is new
            file.write(data)
            file.flush()
            os.fsync(fd)
        spot.folder.replace(temporary, name)
    except BaseException:
        with contextlib.suppress(OSError):
            spot.folder.unlink(temporary)
        raise


# ----------------------------------------------------------------------------------------------------------- delete


def delete(workspace: Workspace, args: pb.DeleteArgs, limits: FileLimits) -> pb.DeleteResult:
    """Deletes a link itself, never its target."""
    try:
        with workspace.locate(args.path, follow_last=False) as spot:
            name, info = spot.file_name(), spot.found
            if info is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            before = ""
            if stat.S_ISREG(info.st_mode):
                before = _previous(spot, name, limits.output_bytes)
            elif not stat.S_ISLNK(info.st_mode):
                raise NotAFile(kind_of(info.st_mode))
            spot.folder.unlink(name)
            success = pb.DeleteSuccess(
                path=args.path, deleted_file=shown(spot.path), file_size=info.st_size, prev_content=before
            )
            return pb.DeleteResult(success=success)
    except (PathRefused, NotAFile, OSError) as failure:
        return failed(pb.DeleteResult(), args, failure)


def _previous(spot: Spot, name: str, limit: int) -> str:
    """The old content if it is small text; otherwise empty, also for an unreadable file."""
    try:
        with open(spot.folder.open_file(name), "rb") as file:
            data = file.read(limit + 1)
    except (OSError, NotAFile):
        return ""
    return "" if len(data) > limit or is_binary(data) else decoded(data)
