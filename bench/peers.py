"""The peers: where they are installed from, which versions, and how they are started. Each in a place of its own.

A peer that cannot be had here is left out, with the reason. They are run as their own documentation says for
production with one worker: a known model name, a master key, no database, no log of every request.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .processes import TargetFailed, Watched, free_port, launch

LITELLM: Final = "litellm[proxy]"
PORTKEY: Final = "@portkey-ai/gateway@1.15.2"
BUN: Final = "bun"
INSTALL_PATIENCE_S: Final = 900


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "caretway-bench"


class LeftOut(RuntimeError):
    """This peer cannot be measured here."""


def _run(command: list[str], what: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise LeftOut(f"{what}: {failure}") from failure
    if done.returncode:
        raise LeftOut(f"{what}: {(done.stderr or done.stdout).strip()[-300:]}")


def litellm(upstream: int, folder: Path) -> Watched:
    home = cache_dir() / "litellm"
    program = home / "bin" / "litellm"
    if not program.exists():
        _run([sys.executable, "-m", "venv", str(home)], "a venv for LiteLLM")
        _run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", LITELLM], f"installing {LITELLM}")
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: gpt-4o-mini\n    litellm_params:\n      model: openai/gpt-4o-mini\n"
        f"      api_base: http://127.0.0.1:{upstream}/v1\n      api_key: sk-bench\n"
        "general_settings:\n  master_key: sk-bench\nlitellm_settings:\n  telemetry: false\n"
    )
    port = free_port()
    return launch(
        "litellm",
        [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
        port,
        folder,
        health="/health/liveliness",
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
        patience_s=120,
    )


def _node_home() -> Path:
    home = cache_dir() / "node"
    if not (home / "node_modules" / "@portkey-ai" / "gateway").exists():
        npm = shutil.which("npm")
        if npm is None:
            raise LeftOut("Portkey needs npm, which is not here")
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text('{"private":true}')
        _run([npm, "install", "--no-audit", "--no-fund", PORTKEY, BUN], f"installing {PORTKEY}", home)
    return home


def portkey(runtime: Callable[[Path], str]) -> Callable[[int, Path], Watched]:
    def start(upstream: int, folder: Path) -> Watched:
        home = _node_home()
        port = free_port()
        server = home / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
        name = "portkey-bun" if runtime is bun else "portkey-node"
        return launch(
            name,
            [runtime(home), str(server), f"--port={port}", "--headless"],
            port,
            folder,
            health="/",
            environment={"TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost", "NODE_ENV": "production"},
        )

    return start


def bun(home: Path) -> str:
    places = [*home.glob("node_modules/@oven/bun-*/bin/bun"), home / "node_modules" / "bun" / "bin" / "bun.exe"]
    for program in places:
        if (
            program.exists()
            and subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
        ):
            return str(program)
    raise LeftOut("there is no bun from npm that runs here")


def node(home: Path) -> str:
    program = shutil.which("node")
    if program is None:
        raise LeftOut("there is no node here")
    return program


PEERS: Final[dict[str, Callable[[int, Path], Watched]]] = {
    "litellm": litellm,
    "portkey-bun": portkey(bun),
    "portkey-node": portkey(node),
}


def start_peer(name: str, upstream: int, folder: Path) -> Watched:
    try:
        return PEERS[name](upstream, folder)
    except (TargetFailed, OSError) as failure:
        raise LeftOut(str(failure)) from failure


def version(name: str) -> str:
    if name == "litellm":
        python = cache_dir() / "litellm" / "bin" / "python"
        asked = [str(python), "-c", "import importlib.metadata as m; print(m.version('litellm'))"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    package = cache_dir() / "node" / "node_modules" / "@portkey-ai" / "gateway" / "package.json"
    lines = [line for line in package.read_text().splitlines() if '"version"' in line] if package.exists() else []
    return lines[0].split('"')[3] if lines else ""
