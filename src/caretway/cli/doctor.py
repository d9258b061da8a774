"""`caretway doctor`: checks settings, data directory, disk, ledger, backend, account, Cursor's answer, running
gateways, the port (free, a gateway's, or another program's) and clients. Each finding names the next command; `--fix`
repairs some.
"""

from __future__ import annotations

import argparse
import errno
import json
import re
import socket
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from msgspec.structs import asdict

from .. import __version__
from ..config import Settings, cursor_agent_files, home_directory, hosts, process_environment
from ..config.data_dir import Verdict, look
from ..core.errors import GatewayError
from ..dashboard.health import Finding, check_data_dir, check_ledger, check_simulated, check_space
from ..storage.private_file import open_file
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .models import models_for_clients
from .port_owner import port_owner, strangers_port
from .process import CommandFailed, log_to_stderr, say
from .process import run as run_loop
from .running import RunningGateway, answers, dialled, gateway_there, is_another_process, noted_gateways
from .serve import EACH_ITS_OWN, STANDINGS
from .status import NO_EXPIRY, WITH_OUR_CREDENTIALS, AccountFacts, account_facts
from .terminal import Style, style_for, terminal_width, wrapped

if TYPE_CHECKING:
    from ..core.turn import BackendStatus

NAME: Final = "doctor"
SUMMARY: Final = "find out what is wrong"
DESCRIPTION: Final = (
    "Check everything that `caretway serve` needs: settings, data directory, backend,\n"
    "account, Cursor's answer, MCP servers that run elsewhere, gateways that run, and\n"
    "the configurations of clients.\n"
    "It sends no prompt, and changes nothing without --fix. With --live it sends up\n"
    "to three prompts, the cheapest part of `caretway prove`.\n"
    "Exit code: 0 everything works, 1 something does not."
)
EXAMPLES: Final = """\
examples:
  caretway doctor
  caretway doctor --fix
  caretway doctor --port 8080 --json
  caretway doctor --live
"""

LIVE_HINTS: Final = {"text": "Find out why: caretway prove"}
_ANSWERS: Final = {"simulated": "the simulator", "stand-in": "the address"}
MCP_PATIENCE_S: Final = 10.0
DIALLED_HERE: Final = ("agent", "legacy-chat")
"""Backends whose connections the gateway opens itself; the other backends are programs with their own network rules."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument(
        "--fix", action="store_true", help="Repair what is safe to repair: access to the data directory."
    )
    parser.add_argument("--live", action="store_true", help="Also ask a model: up to three short runs on your account.")
    add_setting_flags(parser, (*REACHING_CURSOR, "mcp_config", "mcp_import"), shown=("host", "port"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("error")
    findings = [*_on_this_machine(settings, fix=arguments.fix), *run_loop(_at_cursor(settings))]
    findings += [*run_loop(_at_mcp_servers(settings)), *_around(settings)]
    if arguments.live:
        findings += _live(settings)
    lines = (
        [json.dumps([asdict(finding) for finding in findings], indent=2)]
        if arguments.json
        else as_lines(findings, _style(), terminal_width(80) if sys.stdout.isatty() else None)
    )
    say(lines)
    return 0 if all(finding.ok for finding in findings) else 1


def _style() -> Style:
    return style_for(sys.stdout)


def _on_this_machine(settings: Settings, *, fix: bool) -> Iterator[Finding]:
    yield check_installation(settings)
    yield Finding("settings", True, f"read from {settings.config}" if settings.config else "no settings file")
    found = check_data_dir(settings.data_dir)
    if fix and not found.ok and (fixed := make_data_dir_private(settings.data_dir)):
        found = fixed
    yield found
    yield from check_space(settings.data_dir)
    yield check_ledger(settings, whole=True)


def check_installation(settings: Settings) -> Finding:
    """Which copy this is and how to update it."""
    import platform

    from ..installation import this_installation, update_command

    here = this_installation()
    where = here.checkout or here.source or Path(__file__).parents[1]
    return Finding(
        "caretway",
        True,
        f"{__version__} in {where}, Python {platform.python_version()}; update: {update_command(here)}",
    )


def make_data_dir_private(path: Path) -> Finding | None:
    """Removes other users' access. None if the directory is not open to them or cannot be changed."""
    if look(path) not in (Verdict.OPEN, Verdict.WRITABLE):
        return None
    try:
        path.chmod(0o700)
    except OSError:
        return None
    return Finding("data directory", True, f"{path} was open to other users; it is private now", fixed=True)


def _around(settings: Settings) -> Iterator[Finding]:
    """Checks running gateways, the port, past answers and clients."""
    backend = would_use(settings)
    notes = noted_gateways(settings.data_dir)
    yield from check_gateways(settings.data_dir, backend)
    yield check_port(settings.data_dir, settings.host, settings.port)
    yield check_history(settings.data_dir)
    secure = {settings.port} if settings.tls_cert else set()
    ports = {settings.port, *(int(note.url.rpartition(":")[2]) for note in notes)} - secure
    secure |= {int(note.url.rpartition(":")[2]) for note in notes if note.url.startswith("https")}
    yield from check_clients(home_directory(), process_environment(), ports - secure, secure)


def would_use(settings: Settings) -> str:
    """The backend that `caretway serve` would use now; empty if it would not start."""
    from ..upstream import choose_backend, passes

    try:
        return "" if passes(settings) else choose_backend(settings)
    except GatewayError:
        return ""


def check_agent_files(places: Sequence[Path]) -> Finding:
    """Reports only where cursor-agent's files are; only the program itself can report whether the user is signed in."""
    there = [str(path) for path in places if path.is_file()]
    return Finding("cursor-agent", True, f"has {', '.join(there)}" if there else "has no files here yet")


def check_agent_sign_in(status: BackendStatus) -> Finding:
    """Reports what `cursor-agent status` printed."""
    if status.signed_in:
        return Finding("account", True, f"cursor-agent is signed in{f': {status.detail}' if status.detail else ''}")
    detail = f" ({status.detail})" if status.detail else ""
    return Finding("account", False, f"not signed in to cursor-agent{detail}", "Run `caretway login --backend cli`.")


async def _at_cursor(settings: Settings) -> list[Finding]:
    from ..accounts.catalogue import each_once
    from ..upstream import open_backend, passes

    if passes(settings):
        return await _for_others(settings)
    findings: list[Finding] = []
    try:
        async with open_backend(settings) as backend:
            findings.append(Finding("backend", True, f"{backend.name} ({STANDINGS[backend.standing]})"))
            if backend.standing == "simulated":
                findings.append(check_simulated(settings.backend == "simulator"))
            try:
                models = each_once(await models_for_clients(backend, settings))
            except GatewayError as failure:
                findings.append(_failed("Cursor", failure))
            else:
                who = _ANSWERS.get(backend.standing, "Cursor")
                findings.append(Finding(who, True, f"answers, with {len(models)} models"))
            if backend.name == "cli":
                findings[1:1] = [
                    check_agent_files(cursor_agent_files()),
                    check_agent_sign_in(await backend.status()),
                ]
            if backend.name in DIALLED_HERE:
                findings[1:1] = [check_network(settings), check_identity(settings)]
            if backend.name == "sdk":
                findings[1:1] = check_ignored_proxy(settings)
            if backend.name in WITH_OUR_CREDENTIALS:
                findings.insert(1, check_account(account_facts(settings, backend.name), backend.name))
    except GatewayError as failure:
        findings.append(_failed("backend", failure))
    return findings


async def _at_mcp_servers(settings: Settings) -> list[Finding]:
    """Checks remote MCP servers only: a local server would have to be started."""
    from ..upstream import offers_mcp, open_mcp_bridge

    if not offers_mcp(settings):
        return []
    try:
        async with open_mcp_bridge(settings, remote=True) as bridge:
            if bridge is None:
                return []
            await bridge.tried(min(settings.mcp_connect_timeout, MCP_PATIENCE_S))
            findings = [check_mcp_server(one) for one in bridge.described_servers()]
    except GatewayError as failure:
        return [_failed("MCP", failure)]
    return findings


def check_mcp_server(server: Mapping[str, object]) -> Finding:
    name, state = server["name"], server["state"]
    if state == "connected":
        signed_in = ", signed in" if server["sign_in"] else ""
        return Finding("MCP", True, f"{name} is connected{signed_in}")
    if server["sign_in"]:
        why, _, command = str(server["detail"]).rpartition(": run ")
        return Finding("MCP", False, f"{name}: {why} (sign-in {server['sign_in']})", f"Run {command}.")
    why = str(server["detail"]) or f"it did not answer within {MCP_PATIENCE_S:g} s"
    return Finding("MCP", False, f"{name} is {state}: {why}", "See: caretway mcp list")


def _live(settings: Settings) -> list[Finding]:
    """Runs the cheapest cases of `caretway prove`. A reason not to run them is a finding, too."""
    from ..prove.cases import CHEAPEST
    from .prove import chosen_cases, try_cases, with_account

    try:
        settings = with_account(settings)
        verdicts = run_loop(try_cases(settings, chosen_cases(CHEAPEST[settings.backend])))
    except CommandFailed as missing:
        return [Finding("live", False, missing.message, missing.hint)]
    except GatewayError as failure:
        return [_failed("live", failure)]
    return [
        # `prove` advises to run `doctor`, which is already running.
        Finding(
            f"live: {name}",
            verdict.state == "holds",
            verdict.says,
            verdict.helps and LIVE_HINTS.get(name, verdict.helps),
        )
        for name, verdict in verdicts.items()
    ]


def check_network(settings: Settings) -> Finding:
    """The route of the gateway's connections and its reason. Only a request to Cursor shows whether the route works."""
    from ..upstream import dialler

    known, way = hosts(settings), dialler(settings)
    routes = [f"{way.route(url)} to {url}" for url in dict.fromkeys((known.api, known.run))]
    return Finding("network", True, "; ".join(routes))


def check_ignored_proxy(settings: Settings) -> list[Finding]:
    """Warns that the SDK package ignores every proxy."""
    from ..upstream import dialler

    try:
        route = dialler(settings).route(hosts(settings).api)
    except GatewayError as unusable:
        reason = unusable.message
    else:
        if route.proxy is None:
            return []
        reason = f"{route.proxy.source} names {route.proxy.url}"
    return [
        Finding("network", True, f"direct: the SDK ignores proxies ({reason})", "Behind a proxy use --backend agent.")
    ]


def check_identity(settings: Settings) -> Finding:
    """Reports the client identity. Only a run shows whether Cursor accepts it, and this check sends no run."""
    from ..upstream import client_version

    name = f"{settings.agent_quirks.client_type}, version {client_version(settings)}"
    if settings.agent_client_version:
        return Finding("identity", True, f"{name} ({settings.origin('agent_client_version')})")
    return Finding(
        "identity", True, f"{name}: our own name; if Cursor refuses every run, name another by --agent-client-version"
    )


def check_account(facts: AccountFacts, backend: str) -> Finding:
    if facts.credential is None:
        command = "caretway login --backend sdk --api-key-stdin" if backend == "sdk" else "caretway login"
        return Finding("account", False, "not signed in", f"Run `{command}`, or set CURSOR_API_KEY.")
    until = f"until {facts.expires}" if facts.expires else NO_EXPIRY
    summary = ", ".join(filter(None, (facts.account, facts.credential, until)))
    return Finding("account", not facts.over, summary, f"Not renewed: {facts.renewal}." if facts.renewal else "")


async def _for_others(settings: Settings) -> list[Finding]:
    """Checks passthrough mode, where the owner's credentials are neither used nor checked."""
    from ..upstream import open_backend, open_call, without_credentials

    try:
        async with open_backend(without_credentials(settings)) as backend:
            standing = backend.standing
            findings = [Finding("backend", True, f"{backend.name} ({STANDINGS[backend.standing]})")]
    except GatewayError as failure:
        return [_failed("backend", failure)]
    findings.append(Finding("account", True, f"{EACH_ITS_OWN}; no sign-in here"))
    findings += [check_network(settings), check_identity(settings)]
    try:
        async with open_call(settings) as call:
            status, _ = await call("GET", "/", {}, b"")
    except GatewayError as failure:
        return [*findings, _failed("Cursor", failure)]
    hint = "" if status < 500 else "Try again in a moment, and check --agent-url."
    who, answer = _ANSWERS.get(standing, "Cursor"), f"answers at {hosts(settings).api} (HTTP {status})"
    return [*findings, Finding(who, status < 500, answer, hint)]


def _failed(name: str, failure: GatewayError) -> Finding:
    return Finding(name, False, failure.message, failure.hint)


def check_port(data_dir: Path, host: str, port: int, trusted: frozenset[int] | None = None) -> Finding:
    """The port is fine if it is free or a gateway answers on it. `trusted`: see `strangers_port`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
        return Finding("port", True, f"{host} port {port} is free")
    except OSError as failure:
        if failure.errno != errno.EADDRINUSE:
            return Finding("port", False, f"{host} port {port}: {failure.strerror or failure}", "Use another --port.")
    name = f"[{host}]" if ":" in host else host
    url = dialled(f"http://{name}:{port}")
    if backend := gateway_there(url, data_dir):
        if strangers_port(url, trusted):
            return Finding(
                "port", False, f"{host} port {port} is taken by another user's gateway", "Use another --port."
            )
        return Finding("port", True, f"a gateway is running on {host} port {port}: caretway, backend {backend}")
    whose = port_owner(data_dir, host, port) or "another program"
    return Finding("port", False, f"{host} port {port} is taken by {whose}", "Use another --port.")


# ---- running gateways

# Also for `status`: an old version, another backend than the current settings choose, simulated answers despite a
# sign-in.

_SIMULATOR: Final = "simulator"


def check_gateways(data_dir: Path, backend: str) -> list[Finding]:
    """A finding for each running gateway. `backend`: the backend that `caretway serve` would use now; empty if it would
    not start."""
    found = [(note, answers(note.url)) for note in noted_gateways(data_dir)]
    return [judged(note, backend, alive=alive) for note, alive in found if alive or not is_another_process(note)]


def judged(note: RunningGateway, backend: str, *, alive: bool, version: str = __version__) -> Finding:
    """The finding about a running gateway. Pure."""
    what = f"{note.url}, backend {note.backend}, version {note.version}, process {note.pid}"
    again = f"Stop it (kill {note.pid}, or Ctrl-C where it runs), then start it again: caretway serve"
    if not alive and note.url.startswith("http:"):
        return Finding("gateway", False, f"does not answer: {what}", again)
    if note.launched:
        return Finding("gateway", True, f"runs until the client that it was started for ends: {what}")
    if note.version != version:
        return Finding("gateway", False, f"is of another version than this one ({version}): {what}", again)
    if note.backend == _SIMULATOR and backend not in ("", _SIMULATOR):
        text = f"its answers are simulated, and `{backend}` could be used now: {what}"
        return Finding("gateway", False, text, again)
    if backend and note.backend != backend:
        return Finding("gateway", True, f"uses another backend than these settings choose (`{backend}`): {what}")
    simulated = "its answers are simulated: " if note.backend == _SIMULATOR else "runs: "
    return Finding("gateway", True, simulated + what)


def check_history(data_dir: Path) -> Finding:
    """A finding about the last answer of a Cursor account here, which proves more than any check."""
    from ..usage.queries import last_answer
    from ..usage.writing import reading_ledger

    try:
        with reading_ledger(data_dir) as ledger:
            answered = last_answer(ledger)
    except sqlite3.Error:  # reported by the check of the ledger
        answered = None
    if answered is None:
        return Finding("history", True, "no account of Cursor has answered here yet")
    backend, model, at = answered
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    return Finding("history", True, f"last answer of Cursor: {when}, {backend}, {model}")


# ---- findings

# Prints findings: a mark, a name, words folded to the terminal, the next command.

LEAST_ROOM: Final = 30
"""The minimum number of columns for a finding's words."""


def as_lines(findings: Sequence[Finding], style: Style, columns: int | None = None) -> list[str]:
    """Folds a finding's words to the terminal's columns; with `columns` None each finding stays on one line."""
    width = max(len(finding.name) for finding in findings)
    indent = " " * (width + 8)
    lines: list[str] = []
    for finding in findings:
        mark = style.good("done") if finding.fixed else style.good("ok  ") if finding.ok else style.bad("FAIL")
        words = [finding.detail, finding.hint] if finding.hint else [finding.detail]
        if columns is not None:
            room = max(columns - len(indent), LEAST_ROOM)
            words = [line for text in words for line in wrapped(text, room)]
        first, *rest = words
        lines += [f"{mark}  {finding.name.ljust(width)}  {first}", *(indent + line for line in rest)]
    return lines


# ---- doctor clients

# Checks known client configurations for wrong base URLs of this gateway: `/v1` missing or superfluous, https to a plain
# port, a port without a listener. Files are read, never changed.

Api = Literal["openai", "anthropic"]
_MAX_FILE: Final = 1_000_000
_URL: Final = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\]):\d+[^\s\"'<>,;)\]}]*")


@dataclass(frozen=True, slots=True)
class KnownFile:
    client: str
    below_home: str
    api: Api


FILES: Final = (
    KnownFile("Claude Code", ".claude/settings.json", "anthropic"),
    KnownFile("OpenCode", ".config/opencode/opencode.json", "openai"),
    KnownFile("OpenCode", ".config/opencode/opencode.jsonc", "openai"),
    KnownFile("Codex", ".codex/config.toml", "openai"),
    KnownFile("aider", ".aider.conf.yml", "openai"),
    KnownFile("Continue", ".continue/config.yaml", "openai"),
    KnownFile("goose", ".config/goose/config.yaml", "openai"),
)
VARIABLES: Final[Mapping[str, Api]] = {
    "OPENAI_BASE_URL": "openai",
    "OPENAI_API_BASE": "openai",
    "ANTHROPIC_BASE_URL": "anthropic",
}


def check_clients(
    home: Path, environ: Mapping[str, str], ports: Iterable[int], tls_ports: Iterable[int] = ()
) -> list[Finding]:
    """A finding for each wrong address of a gateway in clients' files and variables. `ports`: ports of running
    gateways, or the port of a future one; addresses with other ports are not checked."""
    known, secure = {*ports}, {*tls_ports}
    found = [(name, f"the variable {name}", environ[name], api) for name, api in VARIABLES.items() if environ.get(name)]
    for file in FILES:
        path = home / file.below_home
        found += [(file.client, str(path), url, file.api) for url in dict.fromkeys(_URL.findall(_text(path)))]
    return [
        Finding("client", False, f"{where}: {url}: {mistake}", f"Write {right(url, api, secure)}")
        for _, where, url, api in found
        if (mistake := mistake_in(url, api, known | secure, secure))
    ]


def mistake_in(url: str, api: Api, ports: set[int], tls_ports: set[int]) -> str:
    """The mistake in the URL; empty if the URL is right or belongs to another server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if parts.hostname not in ("127.0.0.1", "localhost", "::1") or port not in ports:
        return ""
    if parts.scheme == "https" and port not in tls_ports:
        return "the gateway speaks plain HTTP there"
    if parts.scheme == "http" and port in tls_ports:
        return "the gateway speaks TLS there"
    path = parts.path.rstrip("/")
    if api == "openai" and path != "/v1":
        return "OpenAI's clients need a base URL that ends in /v1"
    if api == "anthropic" and path:
        return "Anthropic's clients add /v1 themselves"
    return ""


def right(url: str, api: Api, tls_ports: set[int]) -> str:
    parts = urlsplit(url)
    scheme = "https" if parts.port in tls_ports else "http"
    return f"{scheme}://{parts.netloc}{'/v1' if api == 'openai' else ''}"


def _text(path: Path) -> str:
    try:
        with open_file(path) as file:
            return file.read(_MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return ""
