"""File tools as shell commands, for clients that have only a shell: cat, sed, here-documents, grep, find. Handles
quoting, names that begin with `-`, and another working directory. Returns None if no plain command is equivalent.

One function per role. Uses only options that GNU and BSD tools share; no scripting language, no ripgrep.
"""

import posixpath
import re
import shlex
from typing import Final

from ...cursor.wire.messages import pb
from .local.globs import TYPES

MODES: Final[dict[str, str]] = {"": "n", "content": "n", "files_with_matches": "l", "count": "c"}
"""Output mode -> grep's option."""

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_MAX_ALTERNATIVES: Final = 32
_COMPOUND: Final = frozenset(";&|\n#<\\")
"""A command without these characters stays a single command after a prefix."""


def inside(folder: str, command: str) -> str | None:
    """The command in another directory; the directory of the client's shell does not change."""
    if "\0" in folder:
        return None
    go = f"cd -- {_path(folder)} &&"
    return f"({go} {command})" if _COMPOUND.isdisjoint(command) else f"({go} {{\n{command}\n}})"


def read(args: pb.ReadArgs) -> str | None:
    if not _sayable(args.path):
        return None
    start = max(args.offset, 1)
    if start == 1 and not args.limit:
        return f"cat -- {_path(args.path)}"
    end = str(start + args.limit - 1) if args.limit else "$"
    return f"sed -n '{start},{end}p' -- {_path(args.path)}"


def ls(args: pb.LsArgs) -> str | None:
    return f"ls -1Ap -- {_path(args.path or '.')}" if _sayable(args.path or ".") else None


def delete(args: pb.DeleteArgs) -> str | None:
    return f"rm -- {_path(args.path)}" if _sayable(args.path) else None


def write(args: pb.WriteArgs, text: str) -> str | None:
    if not _sayable(args.path) or "\0" in text:
        return None
    folder = posixpath.dirname(args.path)
    made = f"mkdir -p -- {_path(folder)} && " if folder.strip("/") else ""
    target = _path(args.path)
    if not text.endswith("\n"):  # a here-document would add a line break
        return f"{made}printf %s {shlex.quote(text)} > {target}"
    mark = _mark(text)
    return f"{made}cat > {target} <<'{mark}'\n{text}{mark}"


def _mark(text: str) -> str:
    lines = set(text.split("\n"))
    mark, number = "END_OF_FILE", 0
    while mark in lines:
        number += 1
        mark = f"END_OF_FILE_{number}"
    return mark


def grep(args: pb.GrepArgs) -> str | None:
    mode = MODES.get(args.output_mode)
    names = _included(args)
    root = args.path or "."
    if mode is None or names is None or args.multiline or not _sayable(root) or "\0" in args.pattern:
        return None
    words = ["grep", f"-rHIE{mode}{'i' if args.case_insensitive else ''}"]
    for option, lines in (("-B", args.context_before), ("-A", args.context_after), ("-C", args.context)):
        if lines > 0 and mode == "n":
            words.append(f"{option}{lines}")
    words += [f"--include={shlex.quote(name)}" for name in names]
    words += ["-e", shlex.quote(args.pattern), "--", _path(root)]
    # Exit code 1 (no match) counts as success; other codes stay failures.
    command = f"{' '.join(words)} || test $? -eq 1"
    if mode == "c":
        command = f"{{ {command}; }} | grep -v ':0$' || true"
    return f"{{ {command}; }} | head -n {args.head_limit}" if args.head_limit > 0 else command


def _included(args: pb.GrepArgs) -> list[str] | None:
    """Name patterns for `--include`; None if they cannot express the exec's type and glob."""
    names: list[str] = []
    if args.type:
        if args.type not in TYPES or args.glob:
            return None
        names.extend(f"*.{ending}" for ending in TYPES[args.type])
    if args.glob:
        alternatives = _alternatives(args.glob.removeprefix("**/"))
        if alternatives is None or any("/" in name or not name or name.startswith("!") for name in alternatives):
            return None
        names.extend(alternatives)
    return names


def glob(args: pb.GrepArgs) -> str | None:
    root = args.path or "."
    alternatives = _alternatives(args.glob)
    if alternatives is None or not _sayable(root) or "\0" in args.glob or args.glob.startswith("!"):
        return None
    tests = " -o ".join(_test(pattern) for pattern in alternatives)
    tests = f"\\( {tests} \\)" if len(alternatives) > 1 else tests
    command = f"find {_path(root)} -type f {tests} ! -path '*/.git/*'"
    return f"{command} | head -n {args.head_limit}" if args.head_limit > 0 else command


def _test(pattern: str) -> str:
    """The test for `find`: of a name, or of a whole path, where `*` also matches `/`."""
    pattern = pattern.removeprefix("./").removeprefix("**/")
    if "/" not in pattern:
        return f"-name {shlex.quote(pattern)}"
    anywhere = pattern if pattern.startswith("/") else f"*/{pattern}"
    return f"-path {shlex.quote(anywhere.replace('/**/', '/*').replace('**', '*'))}"


def _alternatives(pattern: str) -> list[str] | None:
    """`*.{a,b}` -> `*.a`, `*.b`; None if there are too many alternatives."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        current = todo.pop()
        braces = _BRACES.search(current)
        if braces is None:
            done.append(current)
        else:
            head, tail = current[: braces.start()], current[braces.end() :]
            todo.extend(f"{head}{choice}{tail}" for choice in reversed(braces[1].split(",")))
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            return None
    return done


def _sayable(path: str) -> bool:
    return bool(path) and "\0" not in path


def _path(path: str) -> str:
    """The path, quoted, and never taken for an option or for standard input."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
