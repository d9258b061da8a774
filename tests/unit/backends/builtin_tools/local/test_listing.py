"""ls: the tree, its bounds, its loops."""

import os
from pathlib import Path

import pytest

from caretway.backends.builtin_tools.local.confine import Workspace
from caretway.backends.builtin_tools.local.listing import MORE, ls
from caretway.cursor.wire.messages import pb
from unit.backends.builtin_tools.local.asking import ask, tools


def flat(node: pb.LsDirectoryTreeNode, top: Path) -> dict[str, list[str]]:
    found = {os.path.relpath(node.abs_path, top): [file.name for file in node.children_files]}
    for child in node.children_dirs:
        found |= flat(child, top)
    return found


async def test_as_the_official_client_answers(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("")
    which, value = await ask(tools(tmp_path, "read-only"), "ls", path=str(tmp_path))
    assert which == "success"
    root = value.directory_tree_root
    assert root.abs_path == str(tmp_path)
    assert root.children_were_processed
    assert [file.name for file in root.children_files] == ["hello.txt"]


@pytest.mark.parametrize("path", ["", ".", "{top}", "{top}/"])
async def test_the_tree(tmp_path: Path, path: str) -> None:
    for name in ("src/pkg/deep/deeper/deepest/x", "b.txt", "a.txt", ".git/config", "node_modules/x/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "src/again").symlink_to(tmp_path)
    which, value = await ask(tools(tmp_path), "ls", path=path.format(top=tmp_path))
    assert which == "success"
    assert flat(value.directory_tree_root, tmp_path) == {
        ".": ["a.txt", "b.txt"],
        ".git": [],
        "node_modules": [],
        "src": ["again"],
        "src/pkg": [],
        "src/pkg/deep": [],
        "src/pkg/deep/deeper": [],
    }


async def test_a_directory_below(tmp_path: Path) -> None:
    (tmp_path / "src/pkg").mkdir(parents=True)
    (tmp_path / "src/a.py").write_text("")
    _, value = await ask(tools(tmp_path), "ls", path="src")
    assert value.directory_tree_root.abs_path == f"{tmp_path}/src"
    assert flat(value.directory_tree_root, tmp_path) == {"src": ["a.py"], "src/pkg": []}


async def test_ignore(tmp_path: Path) -> None:
    for name in ("a.py", "a.pyc", "build/x", "src/build/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    _, value = await ask(tools(tmp_path), "ls", path="", ignore=["*.pyc", "**/build/**"])
    assert flat(value.directory_tree_root, tmp_path) == {".": ["a.py"], "src": []}


async def test_what_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "missing", "missing/x", "file/x"):
        assert (await ask(tools(tmp_path), "ls", path=path))[0] == "error"


def test_a_huge_directory_is_cut(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:03}").write_text("")
    root = ls(Workspace(str(tmp_path)), pb.LsArgs(), max_entries=10).success.directory_tree_root
    assert len(root.children_files) == 11
    assert root.children_files[-1].name == MORE
    assert not root.children_were_processed


def test_many_directories_are_cut(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}/x").mkdir(parents=True)
    root = ls(Workspace(str(tmp_path)), pb.LsArgs(), max_entries=7).success.directory_tree_root
    assert [child.children_were_processed for child in root.children_dirs] == [True, True, False, False, False]


def test_time_is_bounded_and_what_was_found_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    now = iter([0.0, 0.0, 99.0, 99.0])
    result = ls(Workspace(str(tmp_path)), pb.LsArgs(timeout_ms=50), clock=lambda: next(now))
    assert result.WhichOneof("result") == "timeout"
    assert len(result.timeout.directory_tree_root.children_dirs) == 1


async def test_names_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("hello")
    _, value = await ask(tools(tmp_path), "ls", path="")
    assert [file.name for file in value.directory_tree_root.children_files] == ["caf\ufffd.txt"]
    which, value = await ask(tools(tmp_path), "grep", pattern="hello")
    assert which == "success"
    assert value.workspace_results[str(tmp_path)].content.matches[0].file == "./caf\ufffd.txt"
