"""Which directory a request may choose."""

from pathlib import Path

import pytest

from caretway.backends.builtin_tools.local.workspaces import choose_workspace
from caretway.core.errors import ErrorKind, GatewayError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("main/sub", "other", "secret"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "main/file").write_text("")
    (tmp_path / "main/way-out").symlink_to(tmp_path / "secret")
    (tmp_path / "main/loop").symlink_to(tmp_path / "main/loop")
    (tmp_path / "alias").symlink_to(tmp_path / "other")
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (None, "main"),
        ("", "main"),
        ("{home}/main", "main"),
        ("{home}/main/", "main"),
        ("{home}/main/sub", "main/sub"),
        ("{home}/main/sub/../sub", "main/sub"),
        ("sub", "main/sub"),
        ("{home}/other", "other"),
        ("{home}/alias", "other"),
    ],
)
def test_allowed(home: Path, asked: str | None, chosen: str) -> None:
    asked = asked.format(home=home) if asked else asked
    assert choose_workspace(asked, home / "main", [home / "other"]) == (home / chosen).resolve()


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ("{home}/secret", ErrorKind.FORBIDDEN),
        ("{home}/secret/missing", ErrorKind.FORBIDDEN),
        ("{home}/main/../secret", ErrorKind.FORBIDDEN),
        ("{home}/main/way-out", ErrorKind.FORBIDDEN),
        ("{home}/main2", ErrorKind.FORBIDDEN),
        ("{home}", ErrorKind.FORBIDDEN),
        ("/", ErrorKind.FORBIDDEN),
        ("../secret", ErrorKind.FORBIDDEN),
        ("{home}/main/missing", ErrorKind.BAD_REQUEST),
        ("{home}/main/file", ErrorKind.BAD_REQUEST),
        ("{home}/main/" + "x" * 300, ErrorKind.BAD_REQUEST),
        ("{home}/main/\0", ErrorKind.BAD_REQUEST),
    ],
)
def test_refused(home: Path, asked: str, kind: ErrorKind) -> None:
    with pytest.raises(GatewayError) as raised:
        choose_workspace(asked.format(home=home), home / "main", [home / "other"])
    assert raised.value.kind is kind
    assert raised.value.param == "x-caretway-workspace"
    if kind is ErrorKind.FORBIDDEN:
        assert "`workspaces`" in str(raised.value)


def test_a_loop_of_links_is_refused(home: Path) -> None:
    with pytest.raises(GatewayError):
        choose_workspace(str(home / "main/loop"), home / "main", [])


def test_nothing_set(home: Path) -> None:
    with pytest.raises(GatewayError) as raised:
        choose_workspace(None, None, [])
    assert raised.value.kind is ErrorKind.BAD_REQUEST
    assert "--workspace" in str(raised.value)
    with pytest.raises(GatewayError, match="absolute"):
        choose_workspace("sub", None, [home / "other"])
    assert choose_workspace(str(home / "other"), None, [home / "other"]) == home / "other"
