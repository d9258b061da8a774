"""Tries the files of deploy/ and the service's unit with the programs that they are for. One line for each finding."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RIG = ROOT / "tests" / "clients" / "rig"
DEPLOY = ROOT / "deploy"
PATIENCE_S = 120.0
sys.path[:0] = [str(ROOT / "scripts")]

from clients import QUICK, SLOW, runs, spent_key, started  # noqa: E402


def main(names: list[str]) -> int:
    if unknown := set(names) - set(PARTS):
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    failed = 0
    for name, (part, programs) in PARTS.items():
        if names and name not in names:
            continue
        if missing := [program for program in programs if shutil.which(program) is None]:
            print(f"{name}: not tried, without {', '.join(missing)}")
            failed += bool(names)
            continue
        try:
            part()
        except (AssertionError, OSError, subprocess.SubprocessError) as problem:
            print(f"{name}: FAILED: {problem}")
            failed += 1
    return int(failed > 0)


def tell(part: str, words: str) -> None:
    print(f"{part}: {words}", flush=True)


def must(*words: str, **more: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{' '.join(words[:6])}: {(done.stderr or done.stdout)[-1500:]}"
    return done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------------ the unit


def unit() -> None:
    with tempfile.TemporaryDirectory() as place:
        environ = os.environ | {"HOME": place, "XDG_RUNTIME_DIR": place}
        for backend in ("agent", "cli"):
            text = must(
                sys.executable, "-m", "caretway", "service", "install", "--print", "--backend", backend, env=environ
            )
            file = Path(place) / "caretway.service"
            file.write_text(text)
            said = must("systemd-analyze", "--user", "verify", str(file), env=environ)
            assert not said.strip(), said
            tell("unit", f"systemd-analyze verify accepts the unit for {backend}")


# ------------------------------------------------------------------------------------------------------ a restart


def restart() -> None:
    """A parked tool loop, kill -9, and its next request, under runit's supervisor."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        simulator = stack.enter_context(started("simulate", "--port", "0"))
        port = free_port()
        service = Path(place) / "service" / "caretway"
        service.mkdir(parents=True)
        script = service / "run"
        command = [sys.executable, "-m", "caretway", "serve", "--port", str(port), "--backend", "agent"]
        where = ["--agent-url", simulator, "--data-dir", f"{place}/data", "--log-file", f"{place}/log"]
        script.write_text(f"#!/bin/sh\nCURSOR_API_KEY=any exec {' '.join([*command, *where])} >/dev/null 2>&1\n")
        script.chmod(0o755)
        supervisor = subprocess.Popen(["runsvdir", str(service.parent)], start_new_session=True)
        stack.callback(end_runit, supervisor, service)
        base = f"http://127.0.0.1:{port}"
        first = pid_of(service, base, 0)
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        question = {"role": "user", "content": "sim: call look {}\nsim: say FINAL\nsim: result"}
        _, answer = chat(base, [question], [tool])
        call = answer["tool_calls"][0]
        os.kill(first, signal.SIGKILL)
        second = pid_of(service, base, first)
        result = {"role": "tool", "tool_call_id": call["id"], "content": "the result"}
        session, answer = chat(base, [question, answer, result], [tool])
        assert session == "replayed", session
        assert answer["content"] == "FINAL\nthe result", answer
        tell("restart", f"kill -9 of {first}: back as {second}, the parked loop went on ({session}), nothing was lost")


def pid_of(service: Path, base: str, before: int) -> int:
    """The supervised process, once it serves and is not the one of before."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            pid = int((service / "supervise" / "pid").read_text())
            if pid != before and get(f"{base}/healthz"):
                return pid
        except (OSError, ValueError):
            pass
        time.sleep(0.1)
    raise AssertionError("the service did not come up")


def end_runit(supervisor: "subprocess.Popen[bytes]", service: Path) -> None:
    subprocess.run(["sv", "force-stop", str(service)], capture_output=True, check=False)
    supervisor.send_signal(signal.SIGHUP)  # it ends its own runsv processes
    supervisor.wait(30)


# ------------------------------------------------------------------------------------------------------ the proxies


def proxies() -> None:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        simulator = stack.enter_context(started("simulate", "--port", "0"))
        where = ("--agent-url", simulator, "--data-dir", f"{place}/data")
        flags = ("--backend", "agent", "--port", "0", "--log-level", "error", *where)
        gateway = stack.enter_context(started("serve", *flags))
        spent, key = stack.enter_context(spent_key(simulator, []))
        for name, start in PROXIES.items():
            if shutil.which(name) is None:
                tell("proxies", f"{name}: not tried, it is not installed")
                continue
            folder, other = Path(place) / name, Path(place) / f"{name}-spent"
            folder.mkdir()
            other.mkdir()
            with start(folder, upstream(gateway)) as base, start(other, upstream(spent)) as poor:
                first_token(base)
                tell("proxies", f"{name}: the first token came while the answer went on")
                upgrade(base)
                tell("proxies", f"{name}: a WebSocket was opened, and its tokens came while the answer went on")
                through(name, base, (poor, key), simulator)


def upstream(address: str) -> str:
    return address.removeprefix("http://")


def upgrade(base: str) -> None:
    """One connection: a whole response, the next one by its id, and one that never ends, of which a word must come."""
    from websockets.sync.client import connect

    with connect(f"ws{base.removeprefix('http')}/v1/responses", open_timeout=20) as connection:

        def ask(words: str, until: str, **more: str) -> dict[str, Any]:
            connection.send(json.dumps({"type": "response.create", "model": "sim-auto", "input": words} | more))
            for message in iter(lambda: json.loads(connection.recv(timeout=20)), None):
                if message["type"] == until or message["type"] in ("error", "response.failed"):
                    assert message["type"] == until, f"over a WebSocket: {message}"
                    return message
            raise AssertionError

        first = ask("sim: say ONE", "response.completed")["response"]
        second = ask("sim: say TWO", "response.completed", previous_response_id=first["id"])["response"]
        assert [part["text"] for one in second["output"] for part in one["content"]] == ["TWO"], second
        assert "FIRST" in ask("sim: say FIRST\nsim: hang", "response.output_text.delta")["delta"]


def first_token(base: str) -> None:
    """An answer that never ends: whoever waits for its end before passing it on shows nothing."""
    said = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: say FIRST\nsim: hang"}]}
    for path, extra in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 9})):
        request = urllib.request.Request(
            base + path, json.dumps(said | extra).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            for line in answer:
                if b"FIRST" in line:
                    break
            else:
                raise AssertionError("the stream ended without a word")


def through(name: str, base: str, spent: tuple[str, str], simulator: str) -> None:
    """What `scripts/clients --quick` runs, and Codex over a WebSocket."""
    for client in rig_clients():
        for mode in [one for one in client.modes if one not in SLOW]:
            before, began = runs(simulator), time.monotonic()
            address, key = spent if mode == "budget" else (base, "sk-test")
            more = {"CARETWAY_CLIENT_TIMEOUT": "900", "CARETWAY_KEY": key}  # long loops on a busy machine
            done = subprocess.run(
                [sys.executable, str(RIG / "run"), client.name, address, mode],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | more,
            )
            opened = runs(simulator) - before
            assert done.returncode == 0, f"{client.name} {mode} through {name}: {done.stdout[-1500:]}"
            assert opened <= client.runs.get(mode, opened), f"{client.name} {mode} through {name}: {opened} runs"
            tell("proxies", f"{name}: {client.name} {mode} passed, {time.monotonic() - began:.1f} s, {opened} runs")


def rig_clients() -> list[Any]:
    """The rig's own table; its module has the name of scripts/clients.py."""
    sys.path.insert(0, str(RIG))
    spec = importlib.util.spec_from_file_location("rig_clients", RIG / "clients.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [client for client in module.CLIENTS if client.name in (*QUICK, "codex-websocket")]


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[str]:
    port = free_port()
    text = changed(
        "nginx.conf",
        ("listen 443 ssl;", f"listen 127.0.0.1:{port};"),
        ("127.0.0.1:32124", upstream),
        (r"re:\n *ssl_certificate.*", ""),
    )
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{ worker_connections 8192; }}\n"
        f"http {{ access_log off;\n{temporary}{text}}}\n"
    )
    with proxy(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], port) as base:
        yield base


@contextmanager
def haproxy(folder: Path, upstream: str) -> Iterator[str]:
    port = free_port()
    text = changed("haproxy.cfg", (r"re:bind :443 .*", f"bind 127.0.0.1:{port}"), ("127.0.0.1:32124", upstream))
    (folder / "haproxy.cfg").write_text(text)
    with proxy(["haproxy", "-db", "-q", "-f", str(folder / "haproxy.cfg")], port) as base:
        yield base


@contextmanager
def caddy(folder: Path, upstream: str) -> Iterator[str]:
    port = free_port()
    text = changed(
        "Caddyfile",
        (r"re:\ngateway\.example\.org \{", f"\nhttp://127.0.0.1:{port} {{"),
        ("127.0.0.1:32124", upstream),
    )
    (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + text)
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with proxy(command, port, env=environ) as base:
        yield base


PROXIES: dict[str, Callable[[Path, str], Any]] = {"nginx": nginx, "haproxy": haproxy, "caddy": caddy}


def changed(name: str, *edits: tuple[str, str]) -> str:
    """The file of deploy/, on another address and without its certificate. Each edit must find its place."""
    text = (DEPLOY / name).read_text()
    for old, new in edits:
        pattern = old.removeprefix("re:") if old.startswith("re:") else re.escape(old)
        text, count = re.subn(pattern, new.replace("\\", "\\\\"), text)
        assert count, f"{name} does not have {old!r}"
    return text


@contextmanager
def proxy(command: list[str], port: int, **more: Any) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more) as process:
        base = f"http://127.0.0.1:{port}"
        try:
            until = time.monotonic() + PATIENCE_S
            while not get(f"{base}/healthz"):
                assert process.poll() is None, f"{command[0]} ended: {process.stderr.read()[-1000:]}"  # type: ignore[union-attr]
                assert time.monotonic() < until, f"{command[0]} does not answer"
                time.sleep(0.1)
            yield base
        finally:
            process.terminate()
            process.wait(30)


# ------------------------------------------------------------------------------------------------------ the image


def image() -> None:
    """Built on a Debian made here; started read-only, as the image's own user. `--root` of podman keeps it apart."""
    with tempfile.TemporaryDirectory() as place:
        base = os.environ.get("CARETWAY_BASE_ROOT") or f"{place}/base"
        if not Path(base).is_dir():
            must("debootstrap", "--variant=minbase", "--include=ca-certificates,python3,python3-venv", "bookworm", base)
        store = ["--root", f"{place}/store", "--runroot", f"{place}/run", "--storage-driver", "vfs"]
        must("sh", "-c", f"tar -C {base} -c . | podman {' '.join(store)} import - localhost/base")
        tell("image", "the base was made")
        must(
            "buildah",
            *store,
            "build",
            "--isolation",
            "chroot",
            "--network",
            "host",
            "--build-arg",
            "BASE=localhost/base",
            *BUILD_FLAGS,
            "--format",
            "docker",
            "-f",
            str(DEPLOY / "Dockerfile"),
            "-t",
            "localhost/caretway",
            str(ROOT),
        )
        tell("image", "it was built")
        podman = ["podman", *store, *RUNTIME]
        run = [*podman, "run", "--detach", "--read-only", "--cap-drop", "all", "--network", "host", *ULIMITS]
        keyed = ["--env", "CARETWAY_API_KEY=a-key-of-sixteen-letters", "--env", f"CARETWAY_PORT={free_port()}"]
        container = must(*run, *keyed, "--volume", f"{place}/data:/data:U", "localhost/caretway", "serve").split()[-1]
        try:
            until = time.monotonic() + PATIENCE_S
            while subprocess.run([*podman, "healthcheck", "run", container], check=False).returncode:
                assert time.monotonic() < until, "the healthcheck stays red"
                time.sleep(0.5)
            tell("image", "it runs read-only, not as root; the healthcheck is green")
        finally:
            subprocess.run([*podman, "rm", "--force", container], capture_output=True, check=False)


ULIMITS = [word for name in ("nofile", "nproc") for word in ("--ulimit", f"{name}=1024:1024")]
"""Few: podman asks for more by itself, which a container in a container may not have."""
RUNTIME = [
    word for word in ("--runtime", os.environ.get("CARETWAY_OCI_RUNTIME", "")) if "CARETWAY_OCI_RUNTIME" in os.environ
]
"""`runc`, say, where crun does not take the machine's cgroups."""
BUILD_FLAGS = os.environ.get("CARETWAY_BUILD_FLAGS", "").split()
"""More words for buildah: a mirror of the package index, say."""


# ------------------------------------------------------------------------------------------------------ shared


def get(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def chat(base: str, messages: list[Any], tools: list[Any]) -> tuple[str, dict[str, Any]]:
    body = json.dumps({"model": "sim-auto", "messages": messages, "tools": tools}).encode()
    request = urllib.request.Request(f"{base}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["x-caretway-session"], json.load(answer)["choices"][0]["message"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PARTS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "unit": (unit, ("systemd-analyze",)),
    "restart": (restart, ("runsvdir", "sv")),
    "proxies": (proxies, ()),
    "image": (image, ("buildah", "podman", "debootstrap")),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
