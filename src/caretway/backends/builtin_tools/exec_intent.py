"""Turns an exec into a call of a client's tool: finds the tool's role by its name, and fits paths, commands, timeouts
and line numbers to the names and units of its schema. Results are converted elsewhere."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final

from msgspec import Struct

from ...core.request import ToolSpec
from ...cursor.wire.messages import pb
from ...schemas.check import SchemaChecker
from ...schemas.run import Unreadable

# ---- The role of a client tool by its name: shell, read, list, grep, glob, write, delete, fetch; vague and namespaced
# names, names that need evidence in the schema. Edit tools have no role.
#
# The name makes a tool a candidate; its JSON schema decides whether it can do the job (`fit`). An edit tool cannot do
# a write, because its old text must not be invented.


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
"""Names that have no role behind a namespace: `notes__delete` does not delete files."""

EVIDENCE: Final[dict[str, frozenset[str]]] = {
    "search": frozenset({"path", "directory", "dir", "glob", "include", "filepattern", "searchpath"}),
    "searchcodebase": frozenset({"queries", "patterns", "pattern", "regex"}),
}
"""Ambiguous names (web search, semantic search) -> arguments of which the tool must declare at least one."""

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


# ---- Fits an exec's values to a client tool's JSON schema: handles spellings of names and `anyOf` branches, and fills
# required properties only with a default, null, a label or the caller's `fills`. Never invents a value.
#
# Values may be renamed or left out. Knows nothing about tools or execs.


class Need(IntEnum):
    MUST = 0
    """Without the value the call would do something else."""
    SHOULD = 1
    """Without the value the result would be larger or less exact than requested."""
    MAY = 2


class Form(Struct, frozen=True):
    """One way to pass a value: the property names it may have, best first, and the value in that form."""

    names: tuple[str, ...]
    value: object
    says: re.Pattern[str] | None = None
    """The form is used only for a property whose description matches."""


class Value(Struct, frozen=True):
    """One value to pass. The first form that the schema accepts is used."""

    forms: tuple[Form, ...]
    need: Need = Need.MUST


_MAX_BRANCHES: Final = 8
LABELS: Final = frozenset({"description", "explanation"})


def fit(
    schema: Mapping[str, object],
    values: Sequence[Value],
    *,
    least: Need = Need.SHOULD,
    label: str | None = None,
    fills: Sequence[Form] = (),
) -> dict[str, object] | None:
    """The arguments for the schema. None if a value of need `least` or stronger has no property, or if a required
    property cannot be filled."""
    branches = _branches(schema)
    if branches:
        made = (fit(branch, values, least=least, label=label, fills=fills) for branch in branches)
        return next((one for one in made if one is not None and _Checker(schema).valid(one)), None)
    check = _Checker(schema)
    declared = _declared(schema)
    arguments: dict[str, object] = {}
    for value in values:
        place = _place(declared, check, value, arguments)
        if place is not None:
            name, argument = place
            arguments[name] = argument
        elif value.need <= least:
            return None
    for name in _required(schema):
        if name not in arguments and not _complete(arguments, name, declared, check, label, fills):
            return None
    return arguments if check.valid(arguments) else None


def _branches(schema: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The branches of a schema that consists of alternatives and declares no properties outside them."""
    for word in ("anyOf", "oneOf"):
        several = schema.get(word)
        if isinstance(several, list | tuple) and "properties" not in schema:
            rest = {key: of for key, of in schema.items() if key != word}
            return [{**rest, **one} for one in several[:_MAX_BRANCHES] if isinstance(one, Mapping) and _plain(one)]
    return []


def _plain(branch: Mapping[str, object]) -> bool:
    return branch.get("type", "object") == "object" and "anyOf" not in branch and "oneOf" not in branch


def _declared(schema: Mapping[str, object]) -> Mapping[str, object] | None:
    """Property name -> its schema; None when the schema leaves the names open."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        return properties
    return None if schema.get("additionalProperties") is not False else {}


def _required(schema: Mapping[str, object]) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list | tuple) else []


def _place(
    declared: Mapping[str, object] | None, check: "_Checker", value: Value, taken: Mapping[str, object]
) -> tuple[str, object] | None:
    for form in value.forms:
        if declared is None:
            # The schema declares no names: use the usual name, except for optional values.
            if form.says is None and value.need is not Need.MAY and form.names[0] not in taken:
                return form.names[0], form.value
            continue
        for wanted in form.names:
            for name in _spelled(declared, wanted):
                if name in taken or not _says(form, declared[name]):
                    continue
                if check.takes(name, form.value):
                    return name, form.value
    return None


def _spelled(declared: Iterable[str], wanted: str) -> list[str]:
    """The declared names that mean `wanted`, its exact spelling first."""
    bare = plain(wanted)
    names = [name for name in declared if plain(name) == bare]
    return sorted(names, key=lambda name: name != wanted)


def _says(form: Form, of: object) -> bool:
    if form.says is None:
        return True
    description = of.get("description") if isinstance(of, Mapping) else None
    return isinstance(description, str) and form.says.search(description) is not None


def _complete(
    arguments: dict[str, object],
    name: str,
    declared: Mapping[str, object] | None,
    check: "_Checker",
    label: str | None,
    fills: Sequence[Form],
) -> bool:
    """Fill a required property if that adds no information. Returns False if it cannot."""
    of = declared.get(name) if declared is not None else None
    offers: list[object] = []
    if label is not None and plain(name) in LABELS:
        offers.append(label)
    if isinstance(of, Mapping):
        if "default" in of:
            offers.append(of["default"])
        offers.append(None)
    offers += [form.value for form in fills if plain(name) in map(plain, form.names)]
    for offer in offers:
        if check.takes(name, offer):
            arguments[name] = offer
            return True
    return False


class _Checker:
    """A checker for the schema. An unreadable schema accepts nothing."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._checker = SchemaChecker(schema)

    def takes(self, name: str, value: object) -> bool:
        """Whether the schema accepts this value for this property, regardless of other properties."""
        try:
            return not any(problem.path[:1] == (name,) for problem in self._checker.problems({name: value}))
        except Unreadable:
            return False

    def valid(self, arguments: dict[str, object]) -> bool:
        try:
            return self._checker.first(arguments) is None
        except Unreadable:
            return False


class Intent(Struct, frozen=True):
    role: ToolRole
    values: tuple[Value, ...]
    label: str | None = None
    """The text for a required free-text label."""
    ranged: bool = False
    """The exec asks for a part of a file."""
    fills: tuple[Form, ...] = ()
    """Values that the exec does not ask for, used only where a tool requires them."""


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
"""How long Codex waits for a command before it reports the output so far and lets the command continue."""
START: Final = ("offset", "start_line", "line_start", "start", "start_line_one_indexed", "from_line")
COUNT: Final = ("limit", "max_lines", "num_lines", "line_count", "lines")
END: Final = ("end_line", "line_end", "end", "end_line_one_indexed_inclusive", "to_line")
PATTERN: Final = ("pattern", "regex", "regexp", "search_pattern", "query")
GLOB: Final = ("pattern", "glob_pattern", "glob", "query")
INCLUDE: Final = ("include", "glob", "glob_pattern", "file_pattern", "include_pattern", "includes")
CONTENT: Final = ("content", "contents", "file_text", "text", "file_content", "data")
URL: Final = ("url", "uri", "link")
ENTRIES: Final = ("files", "requests", "reads")
"""Lists with one object for each requested file."""
_APPROVAL: Final = Form(("requires_approval", "needs_approval"), True)
"""Permission for the client to ask a person."""
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
    """Lists with one object that names the file. Strict tools require an explicit null for the line ranges."""
    for name in ("path", "file_path", "filePath"):
        yield Form(ENTRIES, [{name: path, **more}])
        if not more:
            yield Form(ENTRIES, [{name: path, "line_ranges": None}])


def command(text: str, label: str = "") -> Intent:
    """A shell that runs `text` in its current directory. Some tools take an argument vector."""
    forms = (Form(COMMAND, text), Form(("command", "cmd", "argv"), ["bash", "-lc", text]), Form(("commands",), [text]))
    return Intent(ToolRole.SHELL, (Value(forms),), label=label or text, fills=(_APPROVAL,))


def shell(args: pb.ShellArgs, *, folder: str = "", text: str = "") -> Intent:
    """The intent of a shell exec. `folder`: the required working directory. `text`: replaces the exec's command."""
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
    """The timeout in the unit of the property's name or description. A bare `timeout` is taken as milliseconds."""
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
    # Cursor's grep defaults to `content`; other tools have other defaults.
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
    """The text of a write; None if its bytes are not UTF-8."""
    if args.file_text or not args.file_bytes:
        return args.file_text
    try:
        return args.file_bytes.decode()
    except UnicodeDecodeError:
        return None
