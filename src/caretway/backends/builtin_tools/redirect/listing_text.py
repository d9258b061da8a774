"""A directory tree out of a listing tool's text: `ls -1Ap`, indented trees, bullets, types and sizes, whole paths; at
most 32 levels deep.

In: text and the path that was asked for. Out: the wire's tree. A line in no known format is a file's name.
"""

import posixpath
import re
from typing import Final

from msgspec import Struct, field

from ....cursor.wire.messages import pb

MAX_DEPTH: Final = 32
"""Deeper entries are put on the last level: messages have a nesting limit."""

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
    """One name per line, `/` behind directories."""
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
    """The first line of a tree may be the directory itself."""
    bare = name.rstrip("/")
    return name.startswith("/") or bare == "." or (bool(path) and bare == path.rstrip("/"))


def _relative(name: str, place: str) -> str:
    """Tools that list paths repeat the directory in each."""
    prefix = place.rstrip("/") + "/"
    return name[len(prefix) :] if place and name.startswith(prefix) else name


def _node(folder: _Folder, path: str, *, top: bool = False) -> pb.LsDirectoryTreeNode:
    folders = [_node(inner, posixpath.join(path, name)) for name, inner in folder.folders.items()]
    return pb.LsDirectoryTreeNode(
        abs_path=path,
        children_dirs=folders,
        children_files=[pb.LsDirectoryTreeNode.File(name=name) for name in folder.files],
        # A directory without anything in it may be empty, or not have been opened.
        children_were_processed=top or bool(folder.folders or folder.files),
        num_files=len(folder.files) + sum(inner.num_files for inner in folders),
    )
