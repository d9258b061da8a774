"""Which client tool does what, by its name: shell, read, list, grep, glob, write, delete, fetch; vague and namespaced
names, names that need evidence in the schema. Edit tools are left out.

Names only decide which tools are candidates; a tool's JSON schema decides whether it can do the job (`fitting`). An
edit is not a write, and its old text must not be made up.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

from ....core.request import ToolSpec


class ToolRole(Enum):
    SHELL = "shell"
    READ = "read"
    LIST = "list"
    GREP = "grep"
    GLOB = "glob"
    WRITE = "write"
    DELETE = "delete"
    FETCH = "fetch"


NAMES: Final[dict[ToolRole, tuple[str, ...]]] = {
    ToolRole.SHELL: (
        *("bash", "shell", "exec_command", "shell_command", "run_shell_command", "run_terminal_cmd"),
        *("run_terminal_command", "run_in_terminal", "local_shell", "developer__shell", "run_command"),
        *("run_commands", "execute_command", "execute_bash", "run_bash", "bash_command", "terminal", "execute", "exec"),
    ),
    ToolRole.READ: ("read", "read_file", "view_file", "file_read", "open_file", "read_files", "view", "cat"),
    ToolRole.LIST: (
        *("list", "ls", "list_dir", "list_directory", "list_files", "list_folder", "dir_list"),
        *("read_dir", "read_directory", "directory_tree", "tree"),
    ),
    ToolRole.GREP: (
        *("grep", "ripgrep", "rg", "grep_search", "search_file_content", "search_files", "search_code"),
        *("search_text", "search_codebase", "content_search", "code_search", "search"),
    ),
    ToolRole.GLOB: ("glob", "glob_file_search", "glob_search", "find_files", "file_search", "file_glob_search"),
    ToolRole.WRITE: (
        "write",
        "write_file",
        "write_to_file",
        "create_file",
        "create_new_file",
        "file_write",
        "save_file",
    ),
    ToolRole.DELETE: ("delete", "delete_file", "remove_file", "file_delete", "rm", "remove"),
    ToolRole.FETCH: (
        *("webfetch", "web_fetch", "fetch", "fetch_url", "fetch_webpage", "fetch_web_content", "url_fetch"),
        "read_url",
    ),
}
"""The clearest names first. Case, `_` and `-` do not matter: `readFile` is `read_file`."""

VAGUE: Final = frozenset(
    {
        *("search", "list", "view", "execute", "exec", "read", "write", "delete", "remove", "fetch", "tree"),
        *("terminal", "search_code", "code_search", "content_search", "search_text", "dir_list"),
    }
)
"""With a namespace these may mean anything: `notes__delete` does not delete files."""

EVIDENCE: Final[dict[str, frozenset[str]]] = {
    "search": frozenset({"path", "directory", "dir", "glob", "include", "filepattern", "searchpath"}),
    "searchcodebase": frozenset({"queries", "patterns", "pattern", "regex"}),
}
"""Names that also have other meanings (searching the web, or by meaning): the tool must declare one of these
arguments."""

_NAMESPACE: Final = re.compile(r"__|[./:-]")


def plain(name: str) -> str:
    """A name without the parts that clients spell differently."""
    return name.replace("_", "").replace("-", "").lower()


_ROLES: Final[dict[str, tuple[ToolRole, int]]] = {
    plain(name): (role, rank) for role, names in NAMES.items() for rank, name in enumerate(names)
}
"""Each name has one role."""
_VAGUE: Final = frozenset(map(plain, VAGUE))


class ClientToolbox:
    """The client's tools by role: exact names first, namespaced ones separately."""

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._direct: dict[ToolRole, list[tuple[int, ToolSpec]]] = {}
        self._namespaced: dict[ToolRole, list[tuple[int, ToolSpec]]] = {}
        for tool in tools:
            self._sort_in(tool)
        for shelf in (self._direct, self._namespaced):
            for ranked in shelf.values():
                ranked.sort(key=lambda entry: entry[0])

    def _sort_in(self, tool: ToolSpec) -> None:
        name = plain(tool.name)
        known = _ROLES.get(name)
        own = known if known is not None and _has_evidence(name, tool) else None
        if own is not None:
            self._direct.setdefault(own[0], []).append((own[1], tool))
        taken = {own[0]} if own is not None else set()
        for found in _NAMESPACE.finditer(tool.name):
            inner = plain(tool.name[found.end() :])
            known = None if inner == name or inner in _VAGUE else _ROLES.get(inner)
            if known is not None and known[0] not in taken:
                taken.add(known[0])
                self._namespaced.setdefault(known[0], []).append((known[1], tool))

    def tools(self, role: ToolRole, *, namespaced: bool) -> list[ToolSpec]:
        shelf = self._namespaced if namespaced else self._direct
        return [tool for _, tool in shelf.get(role, ())]


def _has_evidence(name: str, tool: ToolSpec) -> bool:
    wanted = EVIDENCE.get(name)
    if wanted is None:
        return True
    properties = tool.schema.get("properties")
    return isinstance(properties, dict) and any(plain(key) in wanted for key in properties if isinstance(key, str))
