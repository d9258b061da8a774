"""Chooses the directory in which a request may work (`x-caretway-workspace`): the default, or a directory that is
inside an allowed root after links are resolved.

Containment is checked before existence, so a refusal does not reveal whether the path exists.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ....core.errors import ErrorKind, GatewayError, bad_request
from ....core.request import TurnRequest

HEADER: Final = "x-caretway-workspace"


def workspace_of(request: TurnRequest, default: Path | None, allowed: Sequence[Path]) -> Path:
    """The workspace of this request. If its key has a directory, that directory replaces the settings' directories."""
    if request.home is not None:
        return choose_workspace(request.workspace, Path(request.home), ())
    return choose_workspace(request.workspace, default, allowed)


def choose_workspace(asked: str | None, default: Path | None, allowed: Sequence[Path]) -> Path:
    """The resolved `asked`, or `default` if it is empty. Raises GatewayError if `asked` is not in an allowed root."""
    roots = [_resolve(root) for root in ([default] if default is not None else []) + list(allowed)]
    if not asked:
        if default is None:
            raise bad_request(
                "No workspace is set.",
                hint=f"Start the gateway with --workspace DIR, or name an allowed directory in {HEADER}.",
                param=HEADER,
            )
        return _existing(roots[0])
    wanted = _asked(asked, roots[0] if default is not None else None)
    if not any(wanted.is_relative_to(root) for root in roots):
        raise GatewayError(
            ErrorKind.FORBIDDEN,
            f"The workspace {asked!r} is not among the directories that requests may work in.",
            hint="Add it to the setting `workspaces` (--workspaces, CARETWAY_WORKSPACES) and restart the gateway.",
            param=HEADER,
        )
    return _existing(wanted)


def _asked(asked: str, base: Path | None) -> Path:
    if "\0" in asked:
        raise bad_request("The workspace's name contains a NUL byte.", param=HEADER)
    path = Path(asked)
    if not path.is_absolute():
        if base is None:
            raise bad_request(f"The workspace {asked!r} must be an absolute path.", param=HEADER)
        path = base / path
    return _resolve(path)


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as loop:  # Python before 3.13 reports a loop of symbolic links as RuntimeError
        raise bad_request(f"The workspace {str(path)!r} cannot be resolved.", param=HEADER) from loop


def _existing(path: Path) -> Path:
    try:
        exists = path.is_dir()
    except OSError:  # the name is too long, or a parent is unreadable
        exists = False
    if not exists:
        raise bad_request(f"The workspace {str(path)!r} is not an existing directory.", param=HEADER)
    return path
