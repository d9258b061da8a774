"""`scripts/prove-release`: the checks of a release as a table. A result is kept under the hash of the tree it was run
on, so an interrupted run goes on, and every row of one table was seen on one tree."""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TREE = ("src", "tests", "scripts", "pyproject.toml")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "caretway-release"
WIDTH = 80


class Check(NamedTuple):
    name: str
    command: str
    needs: tuple[str, ...] = ()
    """Programs without which it is impossible here."""
    load: int = 0
    """Busy processes beside it."""


CHECKS = (
    Check("check", "./scripts/check"),
    Check("newcomer", ".ci/newcomer $(mktemp)", ("git",)),
    Check("newcomer, loaded", ".ci/newcomer $(mktemp)", ("git",), load=6),
    Check(
        "ci, fresh home",
        'd=$(mktemp -d) && git clone -q . "$d/clone" && mkdir "$d/home"'
        ' && cd "$d/clone" && HOME="$d/home" CI=true bash .ci/run',
        ("git", "npm"),
    ),
    Check("oracle", "./scripts/test --all tests/oracle tests/contract/test_sdk_oracle.py", ("node",)),
    Check("witness, live", "./scripts/witness", ("npm",)),
    Check("witness, classic", "./scripts/witness --profile classic", ("npm",)),
    Check("prove", "./scripts/test --all tests/contract/test_prove.py", ("node",)),
    Check("clients", "./scripts/clients", ("npm",)),
    Check("clients, newest", "./scripts/clients --newest", ("npm",)),
    Check("proxies", "./scripts/deploy proxies", ("nginx", "haproxy", "caddy")),
    Check("service", "./scripts/deploy unit restart", ("systemd-analyze", "runsv")),
    Check("image", "./scripts/deploy image", ("buildah", "podman", "debootstrap")),
    *(
        Check(f"soak agent {transport}", f"./scripts/soak --turns 20000 --transport {transport}")
        for transport in ("h2", "http1")
    ),
    Check("soak sdk", "./scripts/soak --turns 2000 --backend sdk", ("node",)),
    Check("soak cli", "./scripts/soak --turns 2000 --backend cli"),
    *(
        Check(f"cluster, {what}", f"./scripts/soak --turns 10000 --cluster {what}", ("haproxy",))
        for what in ("kill", "redis", "rolling")
    ),
    Check("faults", "./scripts/test --all tests/faults", ("node",)),
    Check("hostile", "./scripts/test --all tests/contract/hostile tests/contract/test_cluster_strangers.py"),
    Check(
        "storage",
        "./scripts/test --all tests/unit/storage tests/contract/test_ledger_limits.py tests/contract/test_saved.py",
    ),
    Check("upgrade", "./scripts/test --all tests/contract/test_upgrade.py"),
    Check("panes", "./scripts/test --all -k panes tests"),
    Check("dashboard", "./scripts/test --all tests/browser", ("chromium",)),
    Check("mutants", "./scripts/mutants replay"),
    Check("bench", "./scripts/bench", ("npm",)),
    Check(
        "build",
        "./scripts/release build && .venv/bin/python -m pip install -q twine"
        " && .venv/bin/python -m twine check dist/*.whl dist/*.tar.gz",
    ),
)


def tree_hash() -> str:
    """Of the committed files. A checkout with uncommitted ones has none."""
    changed = _git("status", "--porcelain", "--", *TREE)
    if changed:
        sys.exit(f"commit these first, a result counts for committed files:\n{changed}")
    return hashlib.sha256(_git("ls-files", "-s", "--", *TREE).encode()).hexdigest()[:12]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def missing(check: Check) -> list[str]:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [program for program in check.needs if shutil.which(program, path=path) is None]


def run(check: Check, log: Path) -> dict[str, Any]:
    """The result of one check. Ctrl-C ends the check with everything it started, and leaves no result."""
    if absent := missing(check):
        return {"result": "impossible here", "says": f"{', '.join(absent)} is not installed"}
    began = time.monotonic()
    with log.open("wb") as file, _busy(check.load):
        process = subprocess.Popen(
            ["bash", "-c", check.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    seconds = round(time.monotonic() - began)
    return {"result": "ok" if code == 0 else f"exit {code}", "says": last_line(log), "seconds": seconds}


def last_line(log: Path) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    lines = [line.strip(" =") for line in text.splitlines() if line.strip(" =")]
    return lines[-1] if lines else ""


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """That many processes that do nothing but use a core."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def table(tree: str, results: dict[str, dict[str, Any]]) -> str:
    width = max(len(check.name) for check in CHECKS)
    lines = [f"tree {tree}"]
    for check in CHECKS:
        found = results.get(check.name, {"result": "not run", "says": ""})
        took = f"{found['seconds'] // 60}:{found['seconds'] % 60:02}" if "seconds" in found else ""
        lines.append(f"{check.name:{width}}  {found['result']:15}  {took:>6}  {found['says']}"[:WIDTH].rstrip())
        lines.append(f"{'':{width}}  {check.command}"[:WIDTH])
    return "\n".join(lines)


def main() -> int:
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser(prog="scripts/prove-release", description="Run the checks of a release.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=f"of: {'; '.join(names)}")
    parser.add_argument("--skip", nargs="+", metavar="NAME", choices=names, default=[])
    parser.add_argument("--table", action="store_true", help="print the results of this tree, run nothing")
    asked = parser.parse_args()
    tree = tree_hash()
    folder = CACHE / tree
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(store.read_text()) if store.exists() else {}
    for check in CHECKS:
        done = results.get(check.name, {}).get("result") == "ok"
        if asked.table or check.name in asked.skip or (check.name not in asked.only if asked.only else done):
            continue
        log = folder / f"{re.sub(r'[^a-z0-9]+', '-', check.name)}.log"
        print(f"{check.name} ... (log: {log})", file=sys.stderr, flush=True)
        found = run(check, log)
        if tree_hash() != tree:
            sys.exit(f"the tree changed while {check.name} ran: its result counts for nothing")
        results[check.name] = found
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(results, file, indent=1)
        os.replace(file.name, store)
    print(table(tree, results))
    return 0 if all(results.get(name, {}).get("result") in ("ok", "impossible here") for name in names) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the next call goes on")
