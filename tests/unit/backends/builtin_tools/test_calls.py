"""Which tool of which client does an exec, with which arguments. Every argument object is checked with jsonschema."""

from typing import Any

import pytest

from caretway.core.request import ToolSpec

from .client_tools import CLIENTS, call, tool, tools_of, translate

SHELL = {"command": "cat nonce.txt"}
CASES: list[tuple[str, str, dict[str, Any], tuple[str, dict[str, Any]] | None]] = [
    # ---- shell
    ("opencode", "shell", SHELL, ("bash", {"command": "cat nonce.txt"})),
    ("claude-code", "shell", SHELL, ("Bash", {"command": "cat nonce.txt"})),
    ("codex", "shell", SHELL, ("exec_command", {"cmd": "cat nonce.txt"})),
    ("goose", "shell", SHELL, ("shell", {"command": "cat nonce.txt"})),
    ("goose-responses", "shell", SHELL, ("shell", {"command": "cat nonce.txt"})),
    ("continue", "shell", SHELL, ("Bash", {"command": "cat nonce.txt"})),
    ("openai-python", "shell", SHELL, ("shell", {"command": "cat nonce.txt"})),
    ("anthropic-python", "shell", SHELL, ("bash", {"command": "cat nonce.txt"})),
    ("vercel-ai", "shell_stream", SHELL, ("bash", {"command": "cat nonce.txt"})),
    ("langchain", "shell_stream", SHELL, ("bash", {"command": "cat nonce.txt"})),
    # where and how long
    (
        "opencode",
        "shell",
        {"command": "ls", "working_directory": "/w", "timeout": 30000},
        ("bash", {"command": "ls", "workdir": "/w", "timeout": 30000}),
    ),
    (
        "codex",
        "shell",
        {"command": "ls", "working_directory": "/w", "timeout": 30000},
        ("exec_command", {"cmd": "ls", "workdir": "/w", "yield_time_ms": 30000}),
    ),
    ("goose", "shell", {"command": "ls", "timeout": 1500}, ("shell", {"command": "ls", "timeout_secs": 2})),
    ("continue", "shell", {"command": "ls", "timeout": 30000}, ("Bash", {"command": "ls", "timeout": 30})),
    ("claude-code", "shell", {"command": "ls", "timeout": 30000}, ("Bash", {"command": "ls", "timeout": 30000})),
    ("openai-python", "shell", {"command": "ls", "timeout": 30000}, ("shell", {"command": "ls"})),
    (
        "claude-code",
        "shell",
        {"command": "ls", "working_directory": "/a b", "description": "List"},
        ("Bash", {"command": "(cd -- '/a b' && ls)", "description": "List"}),
    ),
    (
        "goose",
        "shell",
        {"command": "false || rm x", "working_directory": "-w"},
        ("shell", {"command": "(cd -- ./-w && {\nfalse || rm x\n})"}),
    ),
    ("claude-code", "shell", {"command": "ls", "working_directory": "."}, ("Bash", {"command": "ls"})),
    (
        "claude-code",
        "shell",
        {"command": "serve", "is_background": True},
        ("Bash", {"command": "serve", "run_in_background": True}),
    ),
    ("opencode", "shell", {"command": "serve", "is_background": True}, None),
    ("opencode", "shell", {"command": ""}, None),
    # ---- read
    ("opencode", "read", {"path": "/w/a"}, ("read", {"filePath": "/w/a"})),
    (
        "opencode",
        "read",
        {"path": "/w/a", "offset": 10, "limit": 5},
        ("read", {"filePath": "/w/a", "offset": 10, "limit": 5}),
    ),
    ("claude-code", "read", {"path": "/w/a", "limit": 5}, ("Read", {"file_path": "/w/a", "limit": 5})),
    ("claude-code", "redacted_read", {"path": "/w/a"}, ("Read", {"file_path": "/w/a"})),
    ("continue", "read", {"path": "a b"}, ("Read", {"filepath": "a b"})),
    ("continue", "read", {"path": "a", "offset": 3, "limit": 2}, ("Bash", {"command": "sed -n '3,4p' -- a"})),
    ("codex", "read", {"path": "it's"}, ("exec_command", {"cmd": "cat -- 'it'\"'\"'s'"})),
    ("codex", "read", {"path": "a", "offset": 3}, ("exec_command", {"cmd": "sed -n '3,$p' -- a"})),
    ("goose", "read", {"path": "-"}, ("shell", {"command": "cat -- ./-"})),
    ("goose", "read", {"path": ""}, None),
    # ---- list
    ("continue", "ls", {"path": "src"}, ("List", {"dirpath": "src"})),
    ("goose", "ls", {"path": "src"}, ("tree", {"path": "src"})),
    ("opencode", "ls", {"path": "src"}, ("bash", {"command": "ls -1Ap -- src"})),
    ("claude-code", "ls", {"path": ""}, ("Bash", {"command": "ls -1Ap -- ."})),
    ("codex", "ls", {"path": "$(x)"}, ("exec_command", {"cmd": "ls -1Ap -- '$(x)'"})),
    # ---- grep and glob
    ("opencode", "grep", {"pattern": "a+", "path": "src"}, ("grep", {"pattern": "a+", "path": "src"})),
    ("opencode", "grep", {"pattern": "a", "glob": "*.py"}, ("grep", {"pattern": "a", "include": "*.py"})),
    (
        "opencode",
        "grep",
        {"pattern": "a", "case_insensitive": True},
        ("bash", {"command": "grep -rHIEni -e a -- . || test $? -eq 1"}),
    ),
    (
        "codex",
        "grep",
        {"pattern": "a b", "path": "s", "glob": "**/*.{ts,tsx}", "context": 2, "head_limit": 9},
        (
            "exec_command",
            {
                "cmd": "{ grep -rHIEn -C2 --include='*.ts' --include='*.tsx' -e 'a b' -- s || test $? -eq 1; } "
                "| head -n 9"
            },
        ),
    ),
    ("codex", "grep", {"pattern": "a", "type": "cobol"}, None),
    ("codex", "grep", {"pattern": "a", "multiline": True}, None),
    ("opencode", "grep", {"pattern": "a", "multiline": True}, ("grep", {"pattern": "a"})),
    ("opencode", "grep", {"pattern": "", "glob": "*.py"}, ("glob", {"pattern": "*.py"})),
    ("opencode", "grep", {"pattern": "", "glob": "*", "path": "s"}, ("glob", {"pattern": "*", "path": "s"})),
    (
        "goose",
        "grep",
        {"pattern": "", "glob": "**/*.py"},
        ("shell", {"command": "find . -type f -name '*.py' ! -path '*/.git/*'"}),
    ),
    ("opencode", "grep", {"pattern": ""}, None),
    # ---- write, delete, fetch
    (
        "opencode",
        "write",
        {"path": "/w/a", "file_text": "x"},
        ("write", {"filePath": "/w/a", "content": "x"}),
    ),
    ("claude-code", "write", {"path": "a", "file_text": ""}, ("Write", {"file_path": "a", "content": ""})),
    ("goose", "write", {"path": "a", "file_bytes": "é".encode()}, ("write", {"path": "a", "content": "é"})),
    ("goose", "write", {"path": "a", "file_bytes": b"\xff\x00"}, None),
    (
        "codex",
        "write",
        {"path": "d/a", "file_text": "x\nEND_OF_FILE\n"},
        ("exec_command", {"cmd": "mkdir -p -- d && cat > d/a <<'END_OF_FILE_1'\nx\nEND_OF_FILE\nEND_OF_FILE_1"}),
    ),
    ("codex", "write", {"path": "a", "file_text": "x"}, ("exec_command", {"cmd": "printf %s x > a"})),
    ("codex", "delete", {"path": "a b"}, ("exec_command", {"cmd": "rm -- 'a b'"})),
    ("opencode", "delete", {"path": "a"}, ("bash", {"command": "rm -- a"})),
    ("opencode", "fetch", {"url": "https://x.y"}, ("webfetch", {"url": "https://x.y"})),
    ("continue", "fetch", {"url": "https://x.y"}, ("Fetch", {"url": "https://x.y"})),
    ("claude-code", "fetch", {"url": "https://x.y"}, None),  # its tool wants a prompt, and there is none
    # ---- tools that take lists
    ("cline", "shell", SHELL, ("run_commands", {"commands": ["cat nonce.txt"]})),
    ("cline", "read", {"path": "/w/a"}, ("read_files", {"files": [{"path": "/w/a"}]})),
    (
        "cline",
        "read",
        {"path": "a", "offset": 3, "limit": 2},
        ("read_files", {"files": [{"path": "a", "start_line": 3, "end_line": 4}]}),
    ),
    ("cline", "read", {"path": "a", "offset": 3}, ("run_commands", {"commands": ["sed -n '3,$p' -- a"]})),
    ("cline", "grep", {"pattern": "a+"}, ("search_codebase", {"queries": ["a+"]})),
    (
        "cline",
        "grep",
        {"pattern": "a", "path": "s"},
        ("run_commands", {"commands": ["grep -rHIEn -e a -- s || test $? -eq 1"]}),
    ),
    (
        "cline",
        "fetch",
        {"url": "https://x.y"},
        ("fetch_web_content", {"requests": [{"url": "https://x.y", "prompt": "Return the content of the page."}]}),
    ),
    ("kilo", "shell", SHELL, ("execute_command", {"command": "cat nonce.txt", "cwd": None})),
    ("kilo", "read", {"path": "a"}, ("read_file", {"files": [{"path": "a", "line_ranges": None}]})),
    (
        "kilo",
        "read",
        {"path": "a", "offset": 3, "limit": 2},
        ("read_file", {"files": [{"path": "a", "line_ranges": [[3, 4]]}]}),
    ),
    ("kilo", "ls", {"path": "src"}, ("list_files", {"path": "src", "recursive": False})),
    (
        "kilo",
        "grep",
        {"pattern": "a", "path": "s"},
        ("search_files", {"path": "s", "regex": "a", "file_pattern": None}),
    ),
    (
        "kilo",
        "write",
        {"path": "a", "file_text": "x\ny"},
        ("write_to_file", {"path": "a", "content": "x\ny", "line_count": 2}),
    ),
    # ---- nobody has these
    ("claude-code", "diagnostics", {"path": "a"}, None),
    ("claude-code", "background_shell_spawn", {"command": "x"}, None),
    ("claude-code", "list_mcp_resources_exec", {}, None),
]


@pytest.mark.seed("E09", "F06", "F07", "F08")
@pytest.mark.parametrize(("client", "kind", "fields", "expected"), CASES)
def test_real_clients(client: str, kind: str, fields: dict[str, Any], expected: tuple[str, Any] | None) -> None:
    assert call(tools_of(client), kind, **fields) == expected


@pytest.mark.seed("F05")
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_runs_a_command(client: str) -> None:
    assert call(tools_of(client), "shell_stream", command="true") is not None


STR = "string"
ARGV = {"type": "array", "items": {"type": STR}}
FORMS: list[tuple[str, ToolSpec, str, dict[str, Any], dict[str, Any] | None]] = [
    (
        "argument vector",
        tool("shell", {"command": ARGV}),
        "shell",
        SHELL,
        {"command": ["bash", "-lc", "cat nonce.txt"]},
    ),
    ("several commands", tool("shell", {"commands": ARGV}), "shell", SHELL, {"commands": ["cat nonce.txt"]}),
    (
        "a label is the command",
        tool("bash", {"command": STR, "description": STR}),
        "shell",
        SHELL,
        {"command": "cat nonce.txt", "description": "cat nonce.txt"},
    ),
    ("a label is not a reason", tool("bash", {"command": STR, "justification": STR}), "shell", SHELL, None),
    ("a label only for a shell", tool("read_file", {"path": STR, "explanation": STR}), "read", {"path": "a"}, None),
    (
        "strict mode's null",
        tool("bash", {"command": STR, "timeout": {"type": ["integer", "null"]}}, additionalProperties=False),
        "shell",
        SHELL,
        {"command": "cat nonce.txt", "timeout": None},
    ),
    (
        "the schema's own default",
        tool("webfetch", {"url": STR, "format": {"enum": ["text", "html"], "default": "text"}}),
        "fetch",
        {"url": "u"},
        {"url": "u", "format": "text"},
    ),
    ("an enum without our value", tool("bash", {"command": {"enum": ["restart"]}}), "shell", SHELL, None),
    ("a number is no string", tool("bash", {"command": "integer"}), "shell", SHELL, None),
    ("no names declared", ToolSpec("bash"), "shell", {**SHELL, "timeout": 9}, {"command": "cat nonce.txt"}),
    ("no names allowed", ToolSpec("bash", schema={"additionalProperties": False}), "shell", SHELL, None),
    ("no properties at all", ToolSpec("bash", schema={"properties": {}}), "shell", SHELL, None),
    (
        "a timeout that is too long is left out",
        tool("bash", {"command": STR, "timeout": {"type": "number", "maximum": 10}}, required=["command"]),
        "shell",
        {**SHELL, "timeout": 20000},
        {"command": "cat nonce.txt"},
    ),
    (
        "$ref",
        tool("Read", {"path": {"$ref": "#/$defs/p"}}, **{"$defs": {"p": {"type": STR}}}),
        "read",
        {"path": "a"},
        {"path": "a"},
    ),
    ("$ref to nowhere", tool("Read", {"path": {"$ref": "#/$defs/p"}}), "read", {"path": "a"}, None),
    ("$ref to elsewhere", tool("Read", {"path": {"$ref": "http://127.0.0.1:9/s"}}), "read", {"path": "a"}, None),
    ("endless $ref", ToolSpec("Read", schema={"$ref": "#", "properties": {"path": {}}}), "read", {"path": "a"}, None),
    (
        "nested required",
        tool("Read", {"path": STR, "options": {"type": "object", "required": ["x"]}}),
        "read",
        {"path": "a"},
        None,
    ),
    ("several files", tool("read_files", {"paths": ARGV}), "read", {"path": "a"}, {"paths": ["a"]}),
    (
        "first and last line",
        tool("read_file", {"target_file": STR, "start_line": "integer", "end_line": "integer"}),
        "read",
        {"path": "a", "offset": 5, "limit": 3},
        {"target_file": "a", "start_line": 5, "end_line": 7},
    ),
    (
        "lines from zero",
        tool("read_file", {"path": STR, "offset": {"type": "integer", "description": "0-based line"}}),
        "read",
        {"path": "a", "offset": 5},
        {"path": "a", "offset": 4},
    ),
    (
        "Claude Code's older Grep",
        tool("Grep", {"pattern": STR, "-i": "boolean", "output_mode": STR}),
        "grep",
        {"pattern": "a", "case_insensitive": True},
        {"pattern": "a", "-i": True, "output_mode": "content"},
    ),
    (
        "case the other way round",
        tool("grep_search", {"query": STR, "case_sensitive": "boolean"}),
        "grep",
        {"pattern": "a", "case_insensitive": True},
        {"query": "a", "case_sensitive": False},
    ),
    (
        "a search of files",
        tool("search", {"query": STR, "path": STR}),
        "grep",
        {"pattern": "a", "path": "b"},
        {"query": "a", "path": "b"},
    ),
    ("a search of the web", tool("search", {"query": STR}), "grep", {"pattern": "a"}, None),
    ("a search by meaning", tool("search_codebase", {"query": STR}), "grep", {"pattern": "a"}, None),
    (
        "cline's older command",
        tool("execute_command", {"command": STR, "requires_approval": "boolean"}),
        "shell",
        SHELL,
        {"command": "cat nonce.txt", "requires_approval": True},
    ),
    (
        "a format that must be said",
        tool("webfetch", {"url": STR, "format": {"enum": ["text", "html"]}}),
        "fetch",
        {"url": "u"},
        {"url": "u", "format": "text"},
    ),
    (
        "a format that may be said",
        tool("webfetch", {"url": STR, "format": {"enum": ["text", "html"]}}, required=["url"]),
        "fetch",
        {"url": "u"},
        {"url": "u"},
    ),
    ("another required word", tool("webfetch", {"url": STR, "depth": "integer"}), "fetch", {"url": "u"}, None),
    ("a namespace", tool("t-bash", {"command": STR}), "shell", SHELL, {"command": "cat nonce.txt"}),
    ("a longer namespace", tool("my-fs-read-file", {"path": STR}), "read", {"path": "a"}, {"path": "a"}),
    ("a namespace of something else", tool("notes-delete", {"path": STR}), "delete", {"path": "a"}, None),
    ("an edit is not a write", tool("edit", {"path": STR, "content": STR}), "write", {"path": "a"}, None),
    (
        "an edit is not a write, whatever its name",
        tool("write_file", {"path": STR, "content": STR, "old_string": STR}),
        "write",
        {"path": "a", "file_text": "b"},
        None,
    ),
    ("delete", tool("delete_file", {"target_file": STR}), "delete", {"path": "a"}, {"target_file": "a"}),
]


@pytest.mark.seed("F09", "F10")
@pytest.mark.parametrize(("spec", "kind", "fields", "expected"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_forms(spec: ToolSpec, kind: str, fields: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert call([spec], kind, **fields) == (None if expected is None else (spec.name, expected))


def named(*names: str) -> list[ToolSpec]:
    return [tool(name, {"command": "string"}) for name in names]


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (named("Run-Command"), "Run-Command"),
        (named("runTerminalCmd"), "runTerminalCmd"),
        (named("execute", "terminal", "bash"), "bash"),
        (named("mcp__x__bash", "execute"), "execute"),
        (named("mcp__x__bash"), "mcp__x__bash"),
        (named("developer__shell"), "developer__shell"),
        (named("mcp__db__execute"), None),  # an `execute` of whatever
        (named("bashful", "shelly"), None),
        ([tool("bash", {"program": "string"}), *named("terminal")], "terminal"),
        ([], None),
    ],
)
def test_choice_of_a_shell(tools: list[ToolSpec], expected: str | None) -> None:
    chosen = call(tools, "shell", command="x")
    assert (chosen and chosen[0]) == expected


def test_a_made_for_it_tool_is_better_than_a_shell_and_a_shell_better_than_a_namespace() -> None:
    read, shell, foreign = tool("read_file"), named("bash")[0], tool("mcp__fs__read_file")
    for tools, expected in (
        ([foreign, shell, read], "read_file"),
        ([foreign, shell], "bash"),
        ([foreign], "mcp__fs__read_file"),
    ):
        chosen = call(tools, "read", path="a")
        assert chosen is not None and chosen[0] == expected


def test_the_same_exec_gives_the_same_text() -> None:
    """Calls are compared by their text when a run is opened again."""
    tools = tools_of("codex")
    first = translate(tools, "shell", command="ls", working_directory="/w", timeout=5)
    second = translate(tools, "shell", command="ls", working_directory="/w", timeout=5)
    assert first is not None and second is not None
    assert first.arguments == second.arguments == '{"cmd":"ls","workdir":"/w","yield_time_ms":5}'
