"""Who lives where: one gateway in the lasting directory, others beside it, nothing left of those that were killed."""

from pathlib import Path

from caretway.backends.cursor_sdk.state_dir import acquire


def guests(data_dir: Path) -> list[str]:
    return [path.name for path in data_dir.iterdir() if path.name.startswith("sdk-guest-")]


def test_the_second_one_is_a_guest(tmp_path: Path) -> None:
    first, leave_first = acquire(tmp_path / "data")
    second, leave_second = acquire(tmp_path / "data")
    assert first.root == (tmp_path / "data" / "sdk").resolve()
    assert second.root.name.startswith("sdk-guest-")
    leave_second()
    assert not second.root.exists()
    leave_first()
    again, leave = acquire(tmp_path / "data")
    assert again.root == first.root
    leave()


def test_leftovers_go_and_the_living_stay(tmp_path: Path) -> None:
    _, leave = acquire(tmp_path)
    living, leave_guest = acquire(tmp_path)
    killed = tmp_path / "sdk-guest-killed"
    (killed / "home").mkdir(parents=True)
    leave()
    home, leave = acquire(tmp_path)
    assert guests(tmp_path) == [living.root.name]
    (home.temporary / "old").mkdir(parents=True)
    leave()
    home, leave = acquire(tmp_path)
    assert not home.temporary.exists()
    leave()
    leave_guest()


def test_no_path_leads_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    layout, leave = acquire(tmp_path / "link")
    assert layout.root == (tmp_path / "real" / "sdk").resolve()
    leave()
