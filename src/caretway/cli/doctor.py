"""`caretway doctor`: checks settings, data directory, backend, account, Cursor's answer and the port (free, a
gateway's, or another program's), and says what to type next.
"""

from __future__ import annotations

import argparse
import errno
import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from ..config import Settings, hosts, process_cursor_agent_files
from ..config.data_dir import Verdict, look
from .flags import MAIN_FLAGS, REACHING_CURSOR, add_setting_flags, settings_from
from .models import models_for_clients
from .process import CommandFailed, log_to_stderr, remark, say
from .process import run as run_loop
from .serve import EACH_ITS_OWN, STANDINGS
from .status import NO_EXPIRY, WITH_OUR_CREDENTIALS, AccountFacts, account_facts
from .terminal import Style, style_for, terminal_width

if TYPE_CHECKING:
    from ..core.errors import GatewayError

NAME: Final = "doctor"
LEAST_ROOM: Final = 30
"""Columns for a finding's words, however narrow the terminal is."""
SUMMARY: Final = "find out what is wrong"
DESCRIPTION: Final = (
    "Check everything that `caretway serve` needs: settings, data directory, backend,\n"
    "account, Cursor's answer and the port. It changes nothing and sends no prompt;\n"
    "with --live it sends up to three, the cheapest part of `caretway prove`.\n"
    "Exit code: 0 everything works, 1 something does not."
)
EXAMPLES: Final = """\
examples:
  caretway doctor
  caretway doctor --port 8080 --json
  caretway doctor --live
"""

PROBE_TIMEOUT_S: Final = 3.0
LIVE_HINTS: Final = {"text": "Find out why: caretway prove"}
DIALLED_HERE: Final = ("agent", "legacy-chat")
"""Backends whose connections the gateway opens itself; the others are programs with rules of their own."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    ok: bool
    detail: str
    hint: str = ""
    """What to type next."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    from ..config import SETTINGS

    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument("--live", action="store_true", help="Also ask a model: up to three short runs on your account.")
    listening = tuple(setting for setting in SETTINGS if setting.name in ("host", "port"))
    add_setting_flags(parser, (*listening, *REACHING_CURSOR), shown=("host", "port", *MAIN_FLAGS))


def run(arguments: argparse.Namespace) -> int:
    settings, remarks = settings_from(arguments)
    log_to_stderr("error")
    remark(remarks)
    findings = [*_on_this_machine(settings), *run_loop(_at_cursor(settings)), check_port(settings.host, settings.port)]
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


def _on_this_machine(settings: Settings) -> Iterator[Finding]:
    yield Finding("settings", True, f"read from {settings.config}" if settings.config else "no settings file")
    yield check_data_dir(settings.data_dir)


def check_data_dir(path: Path) -> Finding:
    """Checks the directory, or the nearest existing one above it."""
    there = next((place for place in (path, *path.parents) if place.exists()), path)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(
            "data directory", False, f"{there} cannot be written to", "Set CARETWAY_DATA_DIR to another one."
        )
    verdict = look(path)
    if verdict is Verdict.FOREIGN:
        hint = f"Choose another --data-dir, or make it yours: sudo chown -R {os.geteuid()} {path}"
        return Finding("data directory", False, f"{path} belongs to another user", hint)
    if verdict in (Verdict.OPEN, Verdict.WRITABLE):
        return Finding("data directory", False, f"{path} is open to other users", f"Close it: chmod 700 {path}")
    return Finding("data directory", True, str(path) if there == path else f"{path} (not created yet)")


def check_agent_files(places: Sequence[Path]) -> Finding:
    """Only says where cursor-agent's files are. Whether it is signed in, only the program knows."""
    there = [str(path) for path in places if path.is_file()]
    return Finding("cursor-agent", True, f"has {', '.join(there)}" if there else "has no files here yet")


async def _at_cursor(settings: Settings) -> list[Finding]:
    from ..backend_factory import open_backend, passes
    from ..core.errors import GatewayError
    from ..models.listing import each_once

    if passes(settings):
        return await _for_others(settings)
    findings: list[Finding] = []
    try:
        async with open_backend(settings) as backend:
            findings.append(Finding("backend", True, f"{backend.name} ({STANDINGS[backend.standing]})"))
            try:
                models = each_once(await models_for_clients(backend, settings))
            except GatewayError as failure:
                findings.append(_failed("Cursor", failure))
            else:
                findings.append(Finding("Cursor", True, f"answers, with {len(models)} models"))
            if backend.name == "cli":
                findings.insert(1, check_agent_files(process_cursor_agent_files()))
            if backend.name in DIALLED_HERE:
                findings[1:1] = [check_network(settings), check_identity(settings)]
            if backend.name == "sdk":
                findings[1:1] = check_ignored_proxy(settings)
            if backend.name in WITH_OUR_CREDENTIALS:
                findings.insert(1, check_account(account_facts(settings, backend.name), backend.name))
    except GatewayError as failure:
        findings.append(_failed("backend", failure))
    return findings


def _live(settings: Settings) -> list[Finding]:
    """The cheapest cases of `caretway prove`; what keeps them from being tried is a finding, too."""
    from ..core.errors import GatewayError
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
        # What helps `prove` is to look at `doctor`, and here we are.
        Finding(
            f"live: {name}",
            verdict.state == "holds",
            verdict.says,
            verdict.helps and LIVE_HINTS.get(name, verdict.helps),
        )
        for name, verdict in verdicts.items()
    ]


def check_network(settings: Settings) -> Finding:
    """Which way the gateway's connections take, and why; whether it is open, Cursor's answer shows."""
    from ..transport_factory import dialler

    known, way = hosts(settings), dialler(settings)
    told = [f"{way.route(url)} to {url}" for url in dict.fromkeys((known.api, known.run))]
    return Finding("network", True, "; ".join(told))


def check_ignored_proxy(settings: Settings) -> list[Finding]:
    """The SDK's package goes past every proxy, whether its address can be used or not."""
    from ..core.errors import GatewayError
    from ..transport_factory import dialler

    try:
        route = dialler(settings).route(hosts(settings).api)
    except GatewayError as unusable:
        told = unusable.message
    else:
        if route.proxy is None:
            return []
        told = f"{route.proxy.source} names {route.proxy.url}"
    return [
        Finding("network", True, f"direct: the SDK ignores proxies ({told})", "Behind a proxy use --backend agent.")
    ]


def check_identity(settings: Settings) -> Finding:
    """Only a run shows whether Cursor takes it, and this sends none."""
    from ..backend_factory import client_version

    told = f"{settings.agent_client_type}, version {client_version(settings)}"
    if settings.agent_client_version:
        return Finding("identity", True, f"{told} ({settings.origin('agent_client_version')})")
    return Finding(
        "identity", True, f"{told}: our own name; if Cursor refuses every run, name another by --agent-client-version"
    )


def check_account(facts: AccountFacts, backend: str) -> Finding:
    if facts.credential is None:
        command = "caretway login --backend sdk --api-key-stdin" if backend == "sdk" else "caretway login"
        return Finding("account", False, "nobody is signed in", f"Run `{command}`, or set CURSOR_API_KEY.")
    until = f"until {facts.expires}" if facts.expires else NO_EXPIRY
    told = ", ".join(filter(None, (facts.account, facts.credential, until)))
    return Finding("account", not facts.over, told, f"Not renewed: {facts.renewal}." if facts.renewal else "")


async def _for_others(settings: Settings) -> list[Finding]:
    """In passthrough mode the owner's credentials are not used, so they are not checked either."""
    from ..backend_factory import open_backend, open_call, without_credentials
    from ..core.errors import GatewayError

    try:
        async with open_backend(without_credentials(settings)) as backend:
            findings = [Finding("backend", True, f"{backend.name} ({STANDINGS[backend.standing]})")]
    except GatewayError as failure:
        return [_failed("backend", failure)]
    findings.append(Finding("account", True, f"{EACH_ITS_OWN}; nobody signs in here"))
    findings += [check_network(settings), check_identity(settings)]
    try:
        async with open_call(settings) as call:
            status, _ = await call("GET", "/", {}, b"")
    except GatewayError as failure:
        return [*findings, _failed("Cursor", failure)]
    hint = "" if status < 500 else "Try again in a moment, and check --agent-url."
    return [*findings, Finding("Cursor", status < 500, f"answers at {hosts(settings).api} (HTTP {status})", hint)]


def _failed(name: str, failure: GatewayError) -> Finding:
    return Finding(name, False, failure.message, failure.hint)


def check_port(host: str, port: int) -> Finding:
    """The port is fine when it is free, or when a gateway answers on it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
        return Finding("port", True, f"{host} port {port} is free")
    except OSError as failure:
        if failure.errno != errno.EADDRINUSE:
            return Finding("port", False, f"{host} port {port}: {failure.strerror or failure}", "Use another --port.")
    if version := _gateway_there(host, port):
        return Finding("port", True, f"a gateway is running on {host} port {port}: {version}")
    return Finding("port", False, f"{host} port {port} is taken by another program", "Use another --port.")


def _gateway_there(host: str, port: int) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("HEAD", "/")
        head = connection.getresponse()
        return f"caretway, backend {name}" if (name := head.getheader("x-caretway-backend")) else ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def as_lines(findings: list[Finding], style: Style, columns: int | None = None) -> list[str]:
    """A finding's words are folded to the columns of a terminal; without one they stay in one line."""
    width = max(len(finding.name) for finding in findings)
    indent = " " * (width + 8)
    lines: list[str] = []
    for finding in findings:
        mark = style.good("ok  ") if finding.ok else style.bad("FAIL")
        words = [finding.detail, finding.hint] if finding.hint else [finding.detail]
        if columns is not None:
            room = max(columns - len(indent), LEAST_ROOM)
            words = [line for text in words for line in wrap(text, room, break_on_hyphens=False) or [""]]
        first, *rest = words
        lines += [f"{mark}  {finding.name.ljust(width)}  {first}", *(indent + line for line in rest)]
    return lines
