"""Confines paths to the workspace, against traversal by `..`, symbolic links, swapped links and NUL bytes. Opens only
regular files, never a device or FIFO. Standard library only.

A path is walked one component at a time from a descriptor of the workspace's root. Each component is opened relative to
the previous descriptor, without following links. A symbolic link is read and its target walked by the same rules. `..`
returns to the previous open descriptor, never through the file system, so nothing can change between check and use.
Hard links look like files. A device or a FIFO is recognised before opening, because opening one can have effects, and
again on the descriptor.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

MAX_LINKS: Final = 40
"""Symbolic links in one path, as in Linux."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS: Final = {
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFREG: "file",
}


class PathRefused(Exception):
    """The path may not be used; the text says why."""


class NotAFile(Exception):
    """The path does not lead to a regular file."""

    def __init__(self, actual: str) -> None:
        super().__init__(f"not a regular file but a {actual}")
        self.actual = actual


def kind_of(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "special file")


def shown(name: str) -> str:
    """A file's name as valid UTF-8, which messages require."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Folder:
    """An open directory."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd: int | None = fd

    @classmethod
    def root(cls, path: str) -> "Folder":
        return cls(path, os.open(path, _DIRECTORY))

    def enter(self, name: str) -> "Folder":
        """Open a subdirectory. Raises OSError if it has become a link."""
        return Folder(os.path.join(self.path, name), os.open(name, _DIRECTORY, dir_fd=self._fd))

    def look(self, name: str) -> os.stat_result | None:
        """The entry's status, without following links; None if the entry does not exist."""
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def link_target(self, name: str) -> str:
        return os.readlink(name, dir_fd=self._fd)

    def make(self, name: str) -> None:
        with suppress(FileExistsError):  # another process made it; `enter` checks that it is a directory
            os.mkdir(name, dir_fd=self._fd)

    def open_file(self, name: str) -> int:
        """A descriptor for reading a regular file. Raises NotAFile for other kinds without opening them."""
        info = self.look(name)
        if info is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if not stat.S_ISREG(info.st_mode):
            raise NotAFile(kind_of(info.st_mode))
        fd = os.open(name, READ, dir_fd=self._fd)
        if not stat.S_ISREG(mode := os.fstat(fd).st_mode):
            os.close(fd)
            raise NotAFile(kind_of(mode))
        return fd

    def create(self, name: str, mode: int) -> int:
        return os.open(name, CREATE, mode, dir_fd=self._fd)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._fd)

    def writable(self, name: str) -> bool:
        effective = os.access in os.supports_effective_ids
        return os.access(name, os.W_OK, dir_fd=self._fd, effective_ids=effective)

    def entries(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._fd)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@dataclass(frozen=True, slots=True)
class Spot:
    """The target of a path. Valid inside the `with` of `locate`."""

    folder: Folder
    name: str | None
    """The name inside `folder`; None if the path is `folder` itself."""
    found: os.stat_result | None
    """The target's status; None if it does not exist. It is a link only with `follow_last=False`."""

    @property
    def path(self) -> str:
        return self.folder.path if self.name is None else os.path.join(self.folder.path, self.name)

    def file_name(self) -> str:
        """The name. Raises NotAFile if the path is a directory."""
        if self.name is None:
            raise NotAFile("directory")
        return self.name


class Workspace:
    def __init__(self, root: str) -> None:
        spelled = os.path.abspath(root)
        self.root = os.path.realpath(root)
        self._spellings = {PurePath(self.root).parts, PurePath(spelled).parts}

    def components(self, path: str) -> tuple[str, ...]:
        """The path's components below the root, including `..`. Raises PathRefused."""
        if "\0" in path:
            raise PathRefused("the path contains a NUL byte")
        pure = PurePath(path)
        parts = pure.parts
        if pure.anchor:
            spelling = next((s for s in self._spellings if parts[: len(s)] == s), None)
            if spelling is None:
                raise PathRefused(f"the path is outside the workspace {self.root}")
            parts = parts[len(spelling) :]
        return parts

    @contextmanager
    def locate(self, path: str, *, follow_last: bool = True, make_parents: bool = False) -> Iterator[Spot]:
        """Find the path's target. Raises PathRefused if it is outside the workspace, OSError if a parent is missing."""
        todo = deque(self.components(path))
        stack = [Folder.root(self.root)]
        try:
            yield self._walk(stack, todo, follow_last=follow_last, make_parents=make_parents)
        finally:
            for folder in stack:
                folder.close()

    def _walk(self, stack: list[Folder], todo: deque[str], *, follow_last: bool, make_parents: bool) -> Spot:
        links = 0
        while todo:
            name = todo.popleft()
            if name == "..":
                if len(stack) == 1:
                    raise PathRefused(f"the path leads out of the workspace {self.root}")
                stack.pop().close()
                continue
            here = stack[-1]
            info = here.look(name)
            if info is None:
                if not todo:
                    return Spot(here, name, None)
                if not make_parents or ".." in todo:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
                here.make(name)
                stack.append(here.enter(name))
            elif stat.S_ISLNK(info.st_mode):
                if not todo and not follow_last:
                    return Spot(here, name, info)
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
                todo.extendleft(reversed(self._link(stack, here.link_target(name))))
            elif stat.S_ISDIR(info.st_mode):
                stack.append(here.enter(name))
            elif todo:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
            else:
                return Spot(here, name, info)
        return Spot(stack[-1], None, None)

    def _link(self, stack: list[Folder], target: str) -> tuple[str, ...]:
        try:
            parts = self.components(target)
        except PathRefused:
            raise PathRefused(f"the path leads out of the workspace {self.root} through a symbolic link") from None
        if PurePath(target).anchor:
            while len(stack) > 1:
                stack.pop().close()
        return parts
