"""read, write and delete: what they give, keep and say when something is wrong."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from caretway.backends.builtin_tools.local import files
from caretway.backends.builtin_tools.local.confine import NotAFile, PathRefused, Workspace
from caretway.backends.builtin_tools.local.files import MORE, ls
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


async def test_read_as_the_official_client_answers(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello world\nsecond line\n")
    which, value = await ask(tools(tmp_path, "read-only"), "read", path=f"{tmp_path}/hello.txt")
    assert which == "success"
    assert value.path == f"{tmp_path}/hello.txt"
    assert (value.content, value.total_lines, value.file_size) == ("hello world\nsecond line\n", 3, 24)
    assert not value.truncated and not value.range_applied


async def test_redacted_read_answers_in_its_own_field(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    which, value = await ask(tools(tmp_path, "read-only"), "redacted_read", path="a")
    assert (which, value.content) == ("success", "text")
    assert (await ask(tools(tmp_path, "read-only"), "redacted_read", path="b"))[0] == "file_not_found"


async def test_a_range(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n4\n")
    which, value = await ask(tools(tmp_path), "read", path="a", offset=2, limit=2)
    assert (which, value.content, value.range_applied) == ("success", "2\n3\n", True)
    which, value = await ask(tools(tmp_path), "read", path="a", offset=99)
    assert which == "error"
    assert "4 lines" in value.error


@pytest.mark.parametrize("path", ["missing", "a/b", "missing/deeper/still"])
async def test_missing(tmp_path: Path, path: str) -> None:
    (tmp_path / "a").write_text("")
    assert (await ask(tools(tmp_path), "read", path=path))[0] == "file_not_found"
    assert (await ask(tools(tmp_path), "delete", path=path))[0] == "file_not_found"


async def test_binary(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\0\0\0\rIHDR")
    which, value = await ask(tools(tmp_path), "read", path="a.png")
    assert which == "invalid_file"
    assert "binary" in value.reason


async def test_a_huge_file_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("0123456789\n" * 100_000)
    which, value = await ask(tools(tmp_path, output_bytes=1000), "read", path="big")
    assert which == "success"
    assert value.truncated
    assert len(value.content) < 1200
    assert "continue with offset=91" in value.content
    assert (value.file_size, value.total_lines) == (1_100_000, 100_001)


async def test_a_sparse_giant_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "giant").write_bytes(b"text\n")
    os.truncate(tmp_path / "giant", 1 << 42)
    which, value = await ask(tools(tmp_path, max_file_bytes=5), "read", path="giant")
    assert which == "success"
    assert value.content.startswith("text\n[...")
    assert value.file_size == 1 << 42
    assert (await ask(tools(tmp_path), "read", path="giant"))[0] == "invalid_file"
    which, value = await ask(tools(tmp_path), "delete", path="giant")
    assert (which, value.prev_content) == ("success", "")


async def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    assert (await ask(tools(tmp_path), "read", path="x" * 5000))[0] == "error"
    assert (await ask(tools(tmp_path), "write", path="x" * 300, file_text=""))[0] == "error"


@contextmanager
def as_nobody() -> Iterator[Path]:
    """A directory, and a user who does not own what is in it: root may read everything."""
    with tempfile.TemporaryDirectory() as top:
        place = Path(top)
        place.chmod(0o777)
        (place / "closed").mkdir(0o700)
        (place / "closed/x").write_text("x")
        (place / "unreadable").write_text("x")
        (place / "protected").write_text("x")
        (place / "unreadable").chmod(0)
        (place / "protected").chmod(0o444)
        (place / "fixed").mkdir()
        (place / "fixed/x").write_text("x")
        (place / "fixed").chmod(0o555)
        (place / "closed").chmod(0)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield place
        finally:
            if root:
                os.seteuid(0)
            (place / "closed").chmod(0o700)
            (place / "fixed").chmod(0o700)


async def test_permission_denied_has_its_own_type() -> None:
    with as_nobody() as place:
        local = tools(place)
        assert (await ask(local, "read", path="unreadable"))[0] == "permission_denied"
        assert (await ask(local, "read", path="closed/x"))[0] == "permission_denied"
        assert (await ask(local, "write", path="protected", file_text="y"))[0] == "permission_denied"
        assert (await ask(local, "write", path="fixed/new", file_text="y"))[0] == "permission_denied"
        assert (await ask(local, "delete", path="fixed/x"))[0] == "permission_denied"
        assert (await ask(local, "ls", path="closed"))[0] == "error"
        which, value = await ask(local, "ls", path="")
        assert which == "success"
        assert [
            (Path(d.abs_path).name, d.children_were_processed) for d in value.directory_tree_root.children_dirs
        ] == [
            ("closed", False),
            ("fixed", True),
        ]
        assert (await ask(local, "shell", command="true", working_directory="closed"))[0] == "permission_denied"
        assert (place / "protected").read_text() == "x"
        assert not [name for name in os.listdir(place) if name.startswith(".caretway")]


async def test_write_as_the_official_client_answers(tmp_path: Path) -> None:
    which, value = await ask(tools(tmp_path), "write", path="out.txt", file_text="a\nb\n")
    assert which == "success"
    assert (value.path, value.lines_created, value.file_size) == ("out.txt", 3, 4)
    assert not value.HasField("file_content_after_write")
    assert (tmp_path / "out.txt").read_text() == "a\nb\n"


async def test_write_bytes_and_content_afterwards(tmp_path: Path) -> None:
    args = {"path": "x", "file_bytes": b"\x00\xff", "return_file_content_after_write": True}
    which, value = await ask(tools(tmp_path), "write", **args)
    assert (which, value.file_content_after_write) == ("success", "\0\ufffd")
    assert (tmp_path / "x").read_bytes() == b"\x00\xff"


async def test_write_keeps_the_mode_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o751)
    assert (await ask(tools(tmp_path), "write", path="run.sh", file_text="new"))[0] == "success"
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert script.read_text() == "new"
    assert os.listdir(tmp_path) == ["run.sh"]


async def test_write_replaces_and_does_not_write_into(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    os.link(tmp_path / "a", tmp_path / "kept")
    await ask(tools(tmp_path), "write", path="a", file_text="new")
    assert (tmp_path / "kept").read_text() == "old"


async def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert (await ask(tools(tmp_path), "write", path="a", file_text="new"))[0] == "no_space"
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


async def test_write_makes_directories(tmp_path: Path) -> None:
    assert (await ask(tools(tmp_path), "write", path="a/b/c.txt", file_text="x"))[0] == "success"
    assert (tmp_path / "a/b/c.txt").read_text() == "x"
    assert (await ask(tools(tmp_path), "write", path="a/b/c.txt/d", file_text="x"))[0] == "error"
    assert (await ask(tools(tmp_path), "write", path="new/../../x", file_text="x"))[0] == "error"
    assert not (tmp_path / "new").exists()


async def test_write_has_a_limit(tmp_path: Path) -> None:
    which, value = await ask(tools(tmp_path, max_file_bytes=3), "write", path="a", file_text="1234")
    assert which == "error"
    assert "3" in value.error
    assert not (tmp_path / "a").exists()


async def test_delete_as_the_official_client_answers(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("a\nb\n")
    which, value = await ask(tools(tmp_path), "delete", path="out.txt")
    assert which == "success"
    assert (value.path, value.deleted_file, value.file_size) == ("out.txt", f"{tmp_path}/out.txt", 4)
    assert value.prev_content == "a\nb\n"
    assert not (tmp_path / "out.txt").exists()


FAILURES = [
    (PathRefused("no"), "rejected", "rejected", "rejected"),
    (NotAFile("FIFO"), "invalid_file", "error", "not_file"),
    (OSError(errno.ENOENT, "x"), "file_not_found", "error", "file_not_found"),
    (OSError(errno.ENOTDIR, "x"), "file_not_found", "error", "file_not_found"),
    (OSError(errno.EACCES, "x"), "permission_denied", "permission_denied", "permission_denied"),
    (OSError(errno.EROFS, "x"), "permission_denied", "permission_denied", "permission_denied"),
    (OSError(errno.ENOSPC, "x"), "error", "no_space", "error"),
    (OSError(errno.EBUSY, "x"), "error", "error", "file_busy"),
    (OSError(errno.ELOOP, "x"), "error", "error", "error"),
    (OSError("odd"), "error", "error", "error"),
]


@pytest.mark.parametrize(("failure", "read", "write", "delete"), FAILURES)
def test_every_failure_has_a_type(failure: files.Failure, read: str, write: str, delete: str) -> None:
    assert files.failed(pb.ReadResult(), pb.ReadArgs(path="p"), failure).WhichOneof("result") == read
    assert files.failed(pb.WriteResult(), pb.WriteArgs(path="p"), failure).WhichOneof("result") == write
    assert files.failed(pb.DeleteResult(), pb.DeleteArgs(path="p"), failure).WhichOneof("result") == delete
