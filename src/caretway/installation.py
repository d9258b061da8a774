"""The command to install an extra or a newer version, which depends on the source of this copy (a checkout, a folder,
an index) and the package installer (pip, uv, pipx, brew).

The package is on no index under its own name, so an extra is installed by its requirements, which works for every kind
of installation. Called only when something is missing, so imports are late.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import join, quote

from msgspec import Struct, field

NAME = "caretway"


class Installation(Struct, frozen=True):
    """The facts that decide the command."""

    python: str = "python3"
    checkout: Path | None = None
    """The checkout from which the package is imported; changes in it take effect at once."""
    source: str = ""
    """The folder or URL of the installation; empty for an index."""
    pip: bool = True
    """This Python has pip; an environment made by uv has none."""
    tool: str = ""
    """The tool that keeps an environment for this program alone: `pipx`, `uv tool` or `brew`; empty without one."""
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Extra -> the requirements that it adds."""


def install_command(extra: str, *, again: bool = False, here: Installation | None = None) -> str:
    """The command to install an extra; `again` also replaces the installed packages."""
    here = here or this_installation()
    wanted = here.extras.get(extra) or ((f"{here.checkout}[{extra}]",) if here.checkout else (f"{NAME}[{extra}]",))
    return _install(here, ["--force-reinstall", *wanted] if again else wanted)


def update_command(here: Installation | None = None) -> str:
    here = here or this_installation()
    if here.checkout is not None:
        return join(["git", "-C", str(here.checkout), "pull"])
    if here.tool and not here.source.startswith("/"):
        return f"{here.tool} upgrade {NAME}"
    if not here.source:
        return _install(here, ["--upgrade", NAME])
    if here.source.startswith("/"):
        again = f"pipx reinstall {NAME}" if here.tool == "pipx" else _install(here, [here.source])
        return f"git -C {quote(here.source)} pull && {again}"
    return _install(here, ["--force-reinstall", f"{NAME} @ {here.source}"])


def _install(here: Installation, words: Iterable[str]) -> str:
    tool = [here.python, "-m", "pip", "install"] if here.pip else ["uv", "pip", "install", "--python", here.python]
    return join([*tool, *words])


def this_installation() -> Installation:
    from importlib.util import find_spec

    root = Path(__file__).parents[2]
    extras, source = _metadata()
    return Installation(
        python=sys.executable or "python3",
        checkout=root if (root / "pyproject.toml").is_file() else None,
        source=source,
        pip=find_spec("pip") is not None or shutil.which("uv") is None,
        tool=_tool(Path(sys.prefix)),
        extras=extras,
    )


def _tool(prefix: Path) -> str:
    """Identifies the tool by its files in the environment."""
    if "Cellar" in prefix.parts:
        return "brew"
    return next((tool for name, tool in _LEFT_BY.items() if (prefix / name).is_file()), "")


_LEFT_BY: Mapping[str, str] = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv tool"}


def _metadata() -> tuple[dict[str, tuple[str, ...]], str]:
    """The extras and the source; both are empty if the package was never installed (PYTHONPATH)."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        ours = distribution(NAME)
    except PackageNotFoundError:
        return {}, ""
    extras: dict[str, list[str]] = {}
    for line in ours.requires or ():
        requirement, marked, name = line.replace('"', "'").partition("; extra == ")
        if marked:
            extras.setdefault(name.strip("'"), []).append(requirement.strip())
    return {name: tuple(lines) for name, lines in extras.items()}, recorded_source(ours.read_text("direct_url.json"))


def recorded_source(direct_url: str | None) -> str:
    """The source that pip recorded (PEP 610), in a form that pip accepts."""
    if not direct_url:
        return ""
    recorded = json.loads(direct_url)
    url = str(recorded["url"])
    if vcs := recorded.get("vcs_info", {}).get("vcs"):
        return f"{vcs}+{url}"
    if "dir_info" not in recorded:
        return url
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path)
