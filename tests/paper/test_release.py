"""What a release checks before it goes out, and the formula that is made from its sdist."""

import importlib.util
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GOOD: Final = "## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- This.\n"


@pytest.mark.parametrize(
    ("tag", "changelog", "expected"),
    [
        ("v0.2.0", GOOD, []),
        ("0.2.0", GOOD, ["the tag is 0.2.0"]),
        ("v0.2.0", GOOD.replace(" - 2026-12-01", ""), ["no heading"]),
        ("v0.2.0", GOOD.replace("[Unreleased]\n", "[Unreleased]\n\n- That.\n"), ["lines under Unreleased"]),
        ("v0.3.0", "", ["the tag is v0.3.0", "no heading"]),
    ],
)
def test_tag_version_and_changelog_must_agree(tag: str, changelog: str, expected: list[str]) -> None:
    found = script().disagreements(tag, "0.2.0", changelog)
    assert len(found) == len(expected)
    assert all(words in line for words, line in zip(expected, found, strict=True))


def test_the_formula_names_the_sdist_and_its_digest(tmp_path: Path) -> None:
    sdist = tmp_path / "caretway-0.2.0.tar.gz"
    sdist.write_bytes(b"x")
    text = script().formula(sdist)
    assert "/caretway-0.2.0.tar.gz" in text
    assert "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" in text
    assert '"#{bin}/caretway --version"' in text


def test_the_workflow_uses_these_steps() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    for words in (
        "./scripts/release check",
        "./scripts/release build",
        "./.ci/run",
        "deploy/Dockerfile",
        "id-token: write",
    ):
        assert words in text
