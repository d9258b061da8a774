"""The shell commands, run by a real shell on hostile names: they do what the exec asks for and nothing else."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from caretway.core.request import Text, ToolResult
from caretway.cursor.wire.messages import pb

from .client_tools import call, reply, tool, translate

BASH = [tool("bash", {"command": "string"})]
NAMES = ["plain.txt", "a b.txt", "-rf", "it's", "$(touch owned)", "`touch owned`", "x;touch owned", "*", 'q"q', "é\\n"]
TEXTS = [
    "",
    "x",
    "x\n",
    "END_OF_FILE\n",
    "a\n\nEND_OF_FILE\nEND_OF_FILE_1\n",
    "$HOME `id` 'q' \\ \"\n",
    "%s %d\\n",
    "\r\n\t",
]


def run(where: Path, kind: str, **fields: Any) -> pb.ExecClientMessage:
    """The typed answer to an exec, with bash in the place of the client."""
    redirect, made = translate(BASH, kind, **fields), call(BASH, kind, **fields)
    assert made is not None
    done = subprocess.run(
        ["bash", "-c", made[1]["command"]], cwd=where, capture_output=True, timeout=20, check=False, text=True
    )
    text = done.stdout + done.stderr
    if done.returncode:
        text += f"\n\nCommand exited with code {done.returncode}"
    return reply(redirect, ToolResult("c", (Text(text),)))


@pytest.mark.parametrize("name", NAMES)
def test_names(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, "write", path=name, file_text="1\n2\n3\n").write_result.HasField("success")
    assert (tmp_path / name).read_text() == "1\n2\n3\n"
    assert run(tmp_path, "read", path=name).read_result.success.content == "1\n2\n3\n"
    part = run(tmp_path, "read", path=name, offset=2, limit=1).read_result.success
    assert (part.content, part.range_applied) == ("2\n", True)
    assert run(tmp_path, "read", path=name, offset=2).read_result.success.content == "2\n3\n"
    tree = run(tmp_path, "ls", path=".").ls_result.success.directory_tree_root
    assert [file.name for file in tree.children_files] == [name]
    found = run(tmp_path, "grep", pattern="2|9", path=name).grep_result.success.workspace_results[name].content
    assert [(match.line_number, match.content) for match in found.matches[0].matches] == [(2, "2")]
    assert run(tmp_path, "delete", path=name).delete_result.HasField("success")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", TEXTS)
def test_texts(tmp_path: Path, text: str) -> None:
    run(tmp_path, "write", path="new/dir/file", file_text=text)
    assert (tmp_path / "new/dir/file").read_bytes() == text.encode()


def test_what_is_missing(tmp_path: Path) -> None:
    assert run(tmp_path, "read", path="a").read_result.HasField("file_not_found")
    assert run(tmp_path, "delete", path="a").delete_result.HasField("file_not_found")
    assert run(tmp_path, "ls", path="a").ls_result.HasField("error")
    assert run(tmp_path, "grep", pattern="x", path="a").grep_result.HasField("error")


def test_searching(tmp_path: Path) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.ts", "src/d.js", ".git/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Needle\nhay\n")

    def names(**fields: Any) -> set[str]:
        (found,) = run(tmp_path, "grep", **fields).grep_result.success.workspace_results.values()
        listed = found.files.files or [file.file for file in found.content.matches]
        return {name.removeprefix("./") for name in listed}

    assert names(glob="*.py") == {"a.py", "src/b.py"}
    assert names(glob="**/*.{ts,js}") == {"src/deep/c.ts", "src/d.js"}
    assert names(glob="src/**/*.ts") == {"src/deep/c.ts"}
    assert names(glob="src/**/*.py") == {"src/b.py"}
    assert names(glob="*.py", path="src") == {"src/b.py"}
    assert len(names(glob="*", head_limit=2)) == 2
    assert names(pattern="needle") == set()
    assert names(pattern="needle", case_insensitive=True, path="src") == {"src/b.py", "src/deep/c.ts", "src/d.js"}
    assert names(pattern="Needle", type="ts") == {"src/deep/c.ts"}
    assert names(pattern="Needle", path="src", output_mode="files_with_matches", glob="*.js") == {"src/d.js"}
    counted = run(tmp_path, "grep", pattern="a", path="src", output_mode="count").grep_result.success
    assert counted.workspace_results["src"].count.total_matches == 3
    around = run(tmp_path, "grep", pattern="Needle", path="a.py", context_after=1).grep_result.success
    lines = around.workspace_results["a.py"].content.matches[0].matches
    assert [(line.content, line.is_context_line) for line in lines] == [("Needle", False), ("hay", True)]
    assert len(names(pattern="Needle", head_limit=2)) == 2


@pytest.mark.parametrize("command", ["pwd", "false; pwd", "cat <<X\n$PWD\nX", "pwd # where", "exit 3"])
def test_another_directory(tmp_path: Path, command: str) -> None:
    where = tmp_path / "-a b'"
    where.mkdir()
    result = run(tmp_path, "shell", command=command, working_directory="-a b'").shell_result
    if command == "exit 3":
        assert result.failure.exit_code == 3
    else:
        assert result.success.stdout.strip() == str(where)
    nowhere = run(tmp_path, "shell", command=f"{command}; touch owned", working_directory="none").shell_result
    assert nowhere.HasField("failure")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("read", {"path": "a\0b"}),
        ("write", {"path": "a", "file_text": "\0"}),
        ("grep", {"pattern": "\0"}),
        ("grep", {"glob": "!*.py"}),
        ("grep", {"glob": "{a,b}" * 9}),
        ("grep", {"pattern": "x", "glob": "src/*.py"}),
        ("grep", {"pattern": "x", "output_mode": "other"}),
    ],
)
def test_what_no_plain_command_says(kind: str, fields: dict[str, Any]) -> None:
    assert translate(BASH, kind, **fields) is None
