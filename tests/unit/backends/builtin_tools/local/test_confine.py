"""Nothing gets out: every way that is known, tried on every tool that takes a path."""

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from caretway.backends.builtin_tools.local.confine import Folder, PathRefused, Workspace
from unit.backends.builtin_tools.local.asking import ask, tools

SECRET = "the secret outside\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """tmp/ws is the workspace, tmp/out is not."""
    ws, out = tmp_path / "ws", tmp_path / "out"
    (ws / "dir/inner").mkdir(parents=True)
    out.mkdir()
    (ws / "file.txt").write_text("inside\n")
    (ws / "dir/inner/deep.txt").write_text("deep\n")
    (out / "secret.txt").write_text(SECRET)
    (tmp_path / "ws-twin").mkdir()
    (tmp_path / "ws-twin/secret.txt").write_text(SECRET)
    links: dict[str, str | Path] = {
        "out-file": out / "secret.txt",
        "out-dir": out,
        "out-relative": "../out/secret.txt",
        "dir/out-again": "../../out",
        "out-missing": out / "new.txt",
        "hop": "out-dir",
        "zero": "/dev/zero",
        "proc": "/proc/self/root",
        "in-file": "file.txt",
        "in-absolute": ws / "dir",
        "in-missing": "dir/new.txt",
        "dir/up": "..",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
    }
    for name, target in links.items():
        (ws / name).symlink_to(target)
    return ws


ESCAPES = [
    "../out/secret.txt",
    "dir/../../out/secret.txt",
    "./../out/secret.txt",
    "{top}/out/secret.txt",
    "{top}/ws/../out/secret.txt",
    "{top}/ws-twin/secret.txt",
    "//etc/passwd",
    "/etc/passwd",
    "/proc/self/environ",
    "out-file",
    "out-relative",
    "out-dir/secret.txt",
    "dir/out-again/secret.txt",
    "dir/up/out-dir/secret.txt",
    "dir/up/../out/secret.txt",
    "hop/secret.txt",
    "out-missing",
    "zero",
    "proc/etc/passwd",
    "file.txt\0.png",
    "..",
    "/",
]


@pytest.mark.parametrize("path", ESCAPES)
async def test_read_refuses(place: Path, path: str) -> None:
    which, value = await ask(tools(place), "read", path=path.format(top=place.parent))
    assert which == "rejected"
    assert "workspace" in value.reason or "NUL" in value.reason


@pytest.mark.parametrize("path", ESCAPES)
async def test_write_refuses_and_touches_nothing(place: Path, path: str) -> None:
    before = tree(place.parent)
    which, _ = await ask(tools(place), "write", path=path.format(top=place.parent), file_text="overwritten")
    assert which == "rejected"
    assert tree(place.parent) == before


@pytest.mark.parametrize("path", [e for e in ESCAPES if e not in ("out-file", "out-relative", "out-missing", "zero")])
async def test_delete_refuses_and_touches_nothing(place: Path, path: str) -> None:
    before = tree(place.parent)
    which, _ = await ask(tools(place), "delete", path=path.format(top=place.parent))
    assert which == "rejected"
    assert tree(place.parent) == before


@pytest.mark.parametrize("path", ["out-file", "zero", "out-missing"])
async def test_delete_takes_the_link_not_its_target(place: Path, path: str) -> None:
    which, _ = await ask(tools(place), "delete", path=path)
    assert which == "success"
    assert not (place / path).is_symlink()
    assert (place.parent / "out/secret.txt").read_text() == SECRET


@pytest.mark.parametrize("path", [*ESCAPES, "out-dir", "dir/out-again", "hop"])
async def test_ls_refuses(place: Path, path: str) -> None:
    which, _ = await ask(tools(place), "ls", path=path.format(top=place.parent))
    assert which == "rejected"


@pytest.mark.parametrize("path", ["../out", "{top}/out", "out-dir", "out-file", "dir/out-again", "zero", "a\0b", ".."])
async def test_grep_refuses(place: Path, path: str) -> None:
    which, value = await ask(tools(place), "grep", pattern="secret", path=path.format(top=place.parent))
    assert which == "error"
    assert "workspace" in value.error or "NUL" in value.error


@pytest.mark.parametrize("path", ["..", "{top}/out", "out-dir", "dir/out-again", "a\0b"])
async def test_shell_refuses_a_directory_outside(place: Path, path: str) -> None:
    asked = path.format(top=place.parent)
    which, _ = await ask(tools(place), "shell", command="pwd", working_directory=asked)
    assert which == "rejected"


@pytest.mark.parametrize("target", ["new/in/new.txt", "out-dir/new/new.txt", "../out/new.txt", "out-missing/new.txt"])
async def test_new_files_appear_inside_only(place: Path, target: str) -> None:
    before = tree(place.parent / "out")
    which, _ = await ask(tools(place), "write", path=target, file_text="x")
    assert which == ("success" if target.startswith("new") else "rejected")
    assert tree(place.parent / "out") == before


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("file.txt", "inside\n"),
        ("./file.txt", "inside\n"),
        ("{top}/ws/file.txt", "inside\n"),
        ("dir/../file.txt", "inside\n"),
        ("{top}/ws/dir/inner/../../file.txt", "inside\n"),
        ("in-file", "inside\n"),
        ("in-absolute/inner/deep.txt", "deep\n"),
        ("dir/up/in-absolute/up/file.txt", "inside\n"),
    ],
)
async def test_links_and_dots_that_stay_inside(place: Path, path: str, content: str) -> None:
    which, value = await ask(tools(place), "read", path=path.format(top=place.parent))
    assert (which, value.content) == ("success", content)


async def test_writing_through_a_link_inside(place: Path) -> None:
    assert (await ask(tools(place), "write", path="in-file", file_text="new"))[0] == "success"
    assert (place / "in-file").is_symlink()
    assert (place / "file.txt").read_text() == "new"
    assert (await ask(tools(place), "write", path="in-missing", file_text="made"))[0] == "success"
    assert (place / "dir/new.txt").read_text() == "made"


@pytest.mark.parametrize("path", ["loop", "ping", "ping/x", "dir/up/loop"])
async def test_loops_of_links_end(place: Path, path: str) -> None:
    assert (await ask(tools(place), "read", path=path))[0] == "error"
    assert (await ask(tools(place), "write", path=path, file_text="x"))[0] == "error"
    assert (await ask(tools(place), "ls", path=path))[0] == "error"


async def test_a_workspace_that_is_spelled_through_a_link(place: Path) -> None:
    alias = place.parent / "alias"
    alias.symlink_to(place)
    for path in ("file.txt", f"{alias}/file.txt", f"{place}/file.txt"):
        assert (await ask(tools(alias), "read", path=path))[0] == "success"
    assert (await ask(tools(alias), "read", path=f"{alias}/../out/secret.txt"))[0] == "rejected"


async def test_special_files_are_not_opened(place: Path) -> None:
    os.mkfifo(place / "fifo")
    os.mknod(place / "socket", 0o600 | stat.S_IFSOCK)
    for name, kind in (("fifo", "FIFO"), ("socket", "socket"), ("dir", "directory")):
        which, value = await ask(tools(place), "read", path=name)
        assert which == "invalid_file"
        assert kind in value.reason
        which, value = await ask(tools(place), "write", path=name, file_text="x")
        assert which == "error"
        assert kind in value.error
        which, value = await ask(tools(place), "delete", path=name)
        assert (which, value.actual_type) == ("not_file", kind)
        if kind != "directory":
            which, value = await ask(tools(place), "grep", pattern="x", path=name)
            assert which == "error"
            assert kind in value.error
    which, _ = await ask(tools(place), "grep", pattern="inside")  # and the walk passes them by
    assert which == "success"


async def test_devices_in_the_workspace_itself() -> None:
    which, value = await ask(tools(Path("/dev"), "read-only"), "read", path="zero")
    assert which == "invalid_file"
    assert "character device" in value.reason


def test_a_directory_swapped_for_a_link_between_look_and_use(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Folder.look

    def look_then_swap(self: Folder, name: str) -> os.stat_result | None:
        found = look(self, name)
        if name == "dir" and not (place / "dir").is_symlink():
            (place / "dir").rename(place / "moved")
            (place / "dir").symlink_to(place.parent / "out")
        return found

    monkeypatch.setattr(Folder, "look", look_then_swap)
    with pytest.raises(OSError), Workspace(str(place)).locate("dir/secret.txt"):
        pass


def test_a_file_swapped_for_a_link_between_look_and_open(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Folder.look

    def look_then_swap(self: Folder, name: str) -> os.stat_result | None:
        found = look(self, name)
        if name == "file.txt":
            (place / "file.txt").unlink()
            (place / "file.txt").symlink_to(place.parent / "out/secret.txt")
        return found

    with Workspace(str(place)).locate("file.txt") as spot:
        monkeypatch.setattr(Folder, "look", look_then_swap)
        with pytest.raises(OSError):
            spot.folder.open_file("file.txt")


def test_a_race_is_never_won(place: Path) -> None:
    """Somebody swaps a directory for a link to the outside, over and over, while the path is walked."""
    (place / "real").mkdir()
    (place / "real/secret.txt").write_text("inside\n")
    (place / "link").symlink_to(place.parent / "out")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for name in ("real", "link"):
                (place / name).rename(place / "turn")
                (place / "turn").rename(place / name)

    racer = threading.Thread(target=swap)
    racer.start()
    seen = set()
    try:
        for _ in range(2000):
            with (
                suppress(OSError, PathRefused),
                Workspace(str(place)).locate("turn/secret.txt") as spot,
                open(spot.folder.open_file(spot.file_name())) as file,
            ):
                seen.add(file.read())
    finally:
        over.set()
        racer.join()
    assert seen <= {"inside\n"}


def test_no_descriptor_is_left_open(place: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for path in ("dir/inner/deep.txt", "out-file", "missing/x", "loop", "dir/../dir/inner", ".."):
        with suppress(OSError, PathRefused), Workspace(str(place)).locate(path):
            pass
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert after == before


def tree(top: Path) -> dict[str, object]:
    """Everything below, with contents and targets."""
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = None
    return found
