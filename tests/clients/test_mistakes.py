"""Mistakes of people who point real clients at the gateway: a wrong base URL, key or scheme. The gateway's line names
the mistake and the remedy; what can be served is served.

Clients retry some failures for minutes, so a client is ended when the gateway has said its line.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import trustme

from contract.test_commands import ADDRESS, read_until

CLIENTS: Final = Path(os.environ.get("CARETWAY_CLIENTS_DIR", Path.home() / ".cache" / "caretway-clients"))
NEEDED: Final = ("opencode", "claude-code", "codex")
SERVE: Final = (sys.executable, "-m", "caretway", "serve", "--port", "0", "--backend", "simulator")
LOOKS: Final = 1200
LOOKS_AFTER: Final = 200
KEY: Final = "the-key-of-the-gateway-0123456789"

pytestmark = [
    pytest.mark.all,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not all((CLIENTS / name).exists() for name in NEEDED), reason=f"not all of {NEEDED} are installed in {CLIENTS}"
    ),
]


def program(client: str, name: str) -> str:
    return str(CLIENTS / client / "node_modules" / ".bin" / name)


def curl(base: str, key: str, home: Path) -> tuple[list[str], dict[str, str]]:
    body = json.dumps({"model": "sim-auto", "messages": [{"role": "user", "content": "sim: say hello"}]})
    return [
        *("curl", "-sk", f"{base}/chat/completions", "-H", "content-type: application/json"),
        *("-H", f"authorization: Bearer {key}", "-d", body),
    ], {}


def opencode(base: str, key: str, home: Path) -> tuple[list[str], dict[str, str]]:
    model = {"name": "m", "tool_call": True, "limit": {"context": 200000, "output": 16000}}
    options = {"baseURL": base, "apiKey": key}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "gw", "options": options, "models": {"sim-auto": model}}
    settings = {"autoupdate": False, "share": "disabled", "small_model": "gw/sim-auto", "provider": {"gw": provider}}
    switched_off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    environ = {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)}
    environ |= {f"OPENCODE_DISABLE_{word}": "1" for word in switched_off}
    return [program("opencode", "opencode"), "run", "-m", "gw/sim-auto", "sim: say hello"], environ


def claude(base: str, key: str, home: Path) -> tuple[list[str], dict[str, str]]:
    environ = {
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_AUTH_TOKEN": key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "NODE_TLS_REJECT_UNAUTHORIZED": "0",
    }
    return [program("claude-code", "claude"), "-p", "--model", "sim-auto", "sim: say hello"], environ


def codex(base: str, key: str, home: Path) -> tuple[list[str], dict[str, str]]:
    table = {"name": "gw", "base_url": base, "wire_api": "responses", "env_key": "GW_KEY"}
    inline = "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in table.items()) + "}"
    flags = ["-c", 'model_provider="gw"', "-c", f"model_providers.gw={inline}", "-m", "sim-auto"]
    return [program("codex", "codex"), "exec", "--skip-git-repo-check", *flags, "sim: say hello"], {"GW_KEY": key}


Configured = Callable[[str, str, Path], tuple[list[str], dict[str, str]]]
OPENAI: Final[tuple[Configured, ...]] = (curl, opencode, codex)

ELSEWHERE: Final = r"refused: 404 .*Then the client's base URL is wrong. It is http:\S+/v1 for"
SPOKE_TLS: Final = r"refused: 400  TLS was spoken to a port that speaks plain HTTP.*http:// instead of https://"
# client, what is appended to the address, scheme, key; then what the gateway's log says
MISTAKES: Final = [
    *[(one, "/openai/v1", "http", KEY, ELSEWHERE) for one in OPENAI],
    *[(one, "/v1", "http", "a-wrong-key", r"refused: 401 .*key") for one in OPENAI],
    *[(one, "/v1", "https", KEY, SPOKE_TLS) for one in OPENAI],
    *[(one, "", "http", KEY, r"  done$") for one in OPENAI],
    (curl, "/v1/v1", "http", KEY, r"  done$"),
    (curl, "/v1/", "http", KEY, r"  done$"),
    (claude, "/openai", "http", KEY, ELSEWHERE),
    (claude, "", "http", "a-wrong-key", r"refused: 401 .*key"),
    (claude, "", "https", KEY, SPOKE_TLS),
    (claude, "/v1", "http", KEY, r"  done$"),
]


SPOKE_PLAIN: Final = r"refused: 400  Plain HTTP was spoken to a port that speaks TLS.*https:// instead of http://"
ON_TLS: Final = [*[(one, "/v1") for one in OPENAI], (claude, "")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its address, and the file that its log goes to."""
    with served(tmp_path_factory.mktemp("gateway")) as told:
        yield told


@pytest.fixture
def tls_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The same with a certificate; one for each client, because the same line is not written twice."""
    home = tmp_path_factory.mktemp("tls")
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(home / "both.pem")
    with served(home, "--tls-cert", str(home / "both.pem"), "--tls-key", str(home / "both.pem")) as told:
        yield told


@contextmanager
def served(home: Path, *flags: str) -> Iterator[tuple[str, Path]]:
    key = home / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    log = home / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*SERVE, "--api-key-file", str(key), *flags],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
        )
        with process:
            yield read_until(process, ADDRESS), log
            process.kill()


@pytest.mark.parametrize(
    ("client", "path", "scheme", "key", "says"),
    MISTAKES,
    ids=[f"{row[0].__name__}-{row[2]}{row[1].replace('/', '_')}-{row[3][:7]}" for row in MISTAKES],
)
def test_the_gateway_names_the_mistake(
    client: Configured, path: str, scheme: str, key: str, says: str, gateway: tuple[str, Path], tmp_path: Path
) -> None:
    address, log = gateway
    judge(client(address.replace("http", scheme) + path, key, tmp_path), log, says, tmp_path)


@pytest.mark.parametrize(("client", "path"), ON_TLS, ids=[row[0].__name__ for row in ON_TLS])
def test_plain_http_to_the_tls_port(
    client: Configured, path: str, tls_gateway: tuple[str, Path], tmp_path: Path
) -> None:
    address, log = tls_gateway
    assert address.startswith("https:")
    judge(client(address.replace("https", "http") + path, KEY, tmp_path), log, SPOKE_PLAIN, tmp_path)


def judge(configured: tuple[list[str], dict[str, str]], log: Path, says: str, home: Path) -> None:
    """Run the client until the gateway's log says so."""
    before = log.stat().st_size
    (home / "work").mkdir()
    command, more = configured
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb"} | more
    process = subprocess.Popen(
        command,
        cwd=home / "work",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        start_new_session=True,
    )
    try:
        pattern = re.compile(says, re.MULTILINE)
        looks = LOOKS
        while not pattern.search(told := log.read_text()[before:]) and looks:
            if process.poll() is not None:
                looks = min(looks, LOOKS_AFTER)  # its line may come a little after its answer
            looks -= 1
            time.sleep(0.1)
        assert pattern.search(told), told
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
