"""ls in the workspace: breadth first, at most 1000 entries, 4 levels and 10 s; links not followed, `.git` and
`node_modules` not entered, ignore patterns. Blocking.

A tree of links cannot loop. When there is too much to show, the upper levels are more useful than one deep branch.
"""

import fnmatch
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from ....cursor.wire.messages import pb
from .confine import PathRefused, Workspace, shown

MAX_ENTRIES: Final = 1000
MAX_DEPTH: Final = 4
SECONDS: Final = 10.0

CLOSED: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})
"""Shown but not entered: they have thousands of entries that nobody asked about."""

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
                return _error(args.path, "no such directory" if missing else "not a directory")
            start = os.path.relpath(spot.folder.path, workspace.root)
            root = pb.LsDirectoryTreeNode(abs_path=shown(spot.folder.path))
    except PathRefused as refused:
        return pb.LsResult(rejected=pb.LsRejected(path=args.path, reason=str(refused)))
    except OSError as failure:
        return _error(args.path, failure.strerror or str(failure))

    left = max_entries
    queue = deque([(root, start, 0)])
    while queue:
        node, path, depth = queue.popleft()
        if clock() > deadline:
            return pb.LsResult(timeout=pb.LsTimeout(directory_tree_root=root))
        if left <= 0:
            break  # what is still in the queue is shown as not processed
        try:
            dirs, files, more = _entries(workspace, path, args.ignore, left)
        except (PathRefused, OSError) as failure:
            if node is root:
                return _error(args.path, getattr(failure, "strerror", None) or str(failure))
            continue  # unreadable, or gone meanwhile: shown as not processed
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
    """(directories, everything else, whether there is more), each sorted."""
    dirs: list[str] = []
    files: list[str] = []
    with workspace.locate(path) as spot, spot.folder.entries() as entries:
        # Not sorted before the cut: sorting would mean reading a million names to show a thousand.
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


def _error(path: str, text: str) -> pb.LsResult:
    return pb.LsResult(error=pb.LsError(path=path, error=text))
