"""The reference servers from npm, installed once into the user's cache, at versions that are written down here."""

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

VERSION = "2026.8.31"
PACKAGES = tuple(f"@modelcontextprotocol/server-{name}@{VERSION}" for name in ("everything", "filesystem", "memory"))
PATIENCE_S = 100


def installed() -> Path:
    """The directory with the servers' programs; skips, and says why, where they cannot be had."""
    if shutil.which("node") is None or (npm := shutil.which("npm")) is None:
        pytest.skip("the npm servers are left out: node or npm is missing")
    stamp = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "caretway-tests"
    place = cache / f"mcp-servers-{stamp}"
    programs = place / "node_modules" / ".bin"
    cache.mkdir(parents=True, exist_ok=True)
    lock = cache / f"mcp-servers-{stamp}.lock"
    _take(lock)
    try:
        if not (place / "complete").exists():
            place.mkdir(exist_ok=True)
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(place), *PACKAGES]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"the npm servers are left out: npm did not install them within {PATIENCE_S} s")
            if done.returncode:
                pytest.skip(f"the npm servers are left out: npm could not install them: {done.stderr[-300:]}")
            (place / "complete").touch()
    finally:
        lock.unlink(missing_ok=True)
    return programs


def _take(lock: Path) -> None:
    """Two test runs at once install once. A lock older than any installation is nobody's."""
    while True:
        try:
            lock.touch(exist_ok=False)
        except FileExistsError:
            try:
                old = time.time() - lock.stat().st_mtime > PATIENCE_S + 10
            except FileNotFoundError:
                continue
            if old:
                lock.unlink(missing_ok=True)
            time.sleep(0.2)
        else:
            return
