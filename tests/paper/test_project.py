"""What pyproject.toml promises: every import is declared, every version has an upper bound, and the lock fits."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME: Final = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
EXTRAS: Final = [Requirement(line) for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
LOCK: Final = [
    Requirement(line)
    for line in (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
THROUGH_AN_EXTRA: Final = {"mcp": {"mcp-types", "httpx2", "pydantic", "anyio"}, "cursor-sdk": {"httpx"}}
"""Imported beside the extra's own package, which depends on them."""


def imported() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"caretway", "caretway_sim"}


def test_every_import_is_declared() -> None:
    declared: set[str] = {canonicalize_name(one.name) for one in (*RUNTIME, *EXTRAS)}
    declared |= {name for extra, names in THROUGH_AN_EXTRA.items() if extra in declared for name in names}
    known = packages_distributions()
    unknown = {
        name
        for name in imported()
        if not declared & {canonicalize_name(each) for each in known.get(name, [name.replace("_", "-")])}
    }
    assert not unknown


@pytest.mark.parametrize("requirement", [*RUNTIME, *EXTRAS], ids=str)
def test_every_version_has_an_upper_bound(requirement: Requirement) -> None:
    assert any(each.operator in ("<", "<=", "==", "~=") for each in requirement.specifier)


def test_the_lock_fits_what_is_asked_for() -> None:
    locked = {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in LOCK}
    development = [Requirement(line) for name in ("dev", "oracle") for line in PROJECT["dependency-groups"][name]]
    for wanted in (*RUNTIME, *development):
        if wanted.marker is None or wanted.marker.evaluate():
            assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)], prereleases=True), wanted


def test_the_lock_names_versions_and_no_places() -> None:
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    assert all(re.fullmatch(r"==[0-9][\w.!+-]*", str(one.specifier)) for one in LOCK)
    assert "://" not in text
    assert "@" not in text
