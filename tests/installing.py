"""Programs of others for tests: each installed into a folder of its own, once, and anew when a version changes.

Standard library only: the rig in `clients/rig` runs without the packages of the suite.
"""

import fcntl
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

INSTALL_S = 1500


def install(
    place: Path,
    *,
    pip: Sequence[str] = (),
    npm: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    scripts: bool = True,
) -> Path:
    """`overrides`: versions of packages that npm's packages need. `scripts`: npm's packages may run theirs.

    Two that ask at once wait for each other. Raises RuntimeError with the end of the installer's output.
    """
    place.mkdir(parents=True, exist_ok=True)
    versions = [f"{name}={version}" for name, version in (overrides or {}).items()]
    wanted = " ".join([*pip, *npm, *versions, *([] if scripts else ["--ignore-scripts"])])
    stamp = place / ".installed"
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return place
        print(f"installing {place.name}: {wanted}", file=sys.stderr, flush=True)
        for part in (place / "venv", place / "node_modules"):
            if part.is_symlink():  # someone's own tree: let go of it, never install into it
                part.unlink()
        with (place / "install.log").open("w") as log:
            if pip:
                _run([sys.executable, "-m", "venv", "--clear", str(place / "venv")], place, log)
                _run([str(place / "venv/bin/python"), "-m", "pip", "install", "-q", *pip], place, log)
            if npm:
                manifest = {"private": True, "overrides": overrides} if overrides else {"private": True}
                (place / "package.json").write_text(json.dumps(manifest) + "\n")
                flags = ["--no-fund", "--no-audit", "--no-save", *([] if scripts else ["--ignore-scripts"])]
                _run(["npm", "install", *flags, *npm], place, log)
        stamp.write_text(wanted)
    return place


def _run(words: Sequence[str], cwd: Path, log: IO[str]) -> None:
    done = subprocess.run(
        words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, timeout=INSTALL_S, check=False
    )
    if done.returncode:
        said = Path(log.name).read_text()[-1500:]
        raise RuntimeError(f"{' '.join(words[:4])} ... exit code {done.returncode}\n{said}")
