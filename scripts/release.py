"""The release's own steps: whether tag, version and changelog agree; sdist and wheel; the Homebrew formula."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
FORMULA = """\
class Caretway < Formula
  include Language::Python::Virtualenv

  desc "Cursor models in the tools you already use: a local OpenAI and Anthropic gateway"
  homepage "https://github.com/caretway/caretway"
  url "{url}"
  sha256 "{digest}"
  license "MIT"

  depends_on "python@3.13"

  def install
    venv = virtualenv_create(libexec, "python3.13")
    system venv.root/"bin/python", "-m", "ensurepip"
    system venv.root/"bin/python", "-m", "pip", "install", buildpath
    bin.install_symlink venv.root/"bin/caretway"
    generate_completions_from_executable(bin/"caretway", "completion", shells: [:bash, :zsh, :fish])
  end

  service do
    run [opt_bin/"caretway", "serve"]
    keep_alive crashed: true
    log_path var/"log/caretway.log"
    error_log_path var/"log/caretway.log"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/caretway --version")
  end
end
"""


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/caretway/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def disagreements(tag: str, version: str, changelog: str) -> list[str]:
    """Why a release must not go out under this tag."""
    found = []
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, the version {version}")
    heading = re.search(rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$", changelog, re.MULTILINE)
    if heading is None:
        found.append(f"CHANGELOG.md has no heading `## [{version}] - YYYY-MM-DD`")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    if unreleased is not None and re.search(r"^- ", unreleased[1], re.MULTILINE):
        found.append("CHANGELOG.md has lines under Unreleased: move them under the version's heading")
    return found


def formula(sdist: Path) -> str:
    url = f"https://files.pythonhosted.org/packages/source/c/caretway/{sdist.name}"
    return FORMULA.format(url=url, digest=hashlib.sha256(sdist.read_bytes()).hexdigest())


def build() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], check=True)
    (sdist,) = DIST.glob("*.tar.gz")
    (DIST / "caretway.rb").write_text(formula(sdist))


def main(words: list[str]) -> int:
    match words:
        case ["check", tag]:
            found = disagreements(tag, version(), (ROOT / "CHANGELOG.md").read_text())
            print("\n".join(found) or f"{tag} can go out")
            return int(bool(found))
        case ["build"]:
            build()
            return 0
    print("usage: scripts/release check TAG | build", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
