"""`caretway capabilities`: what this copy can do here, for programs that set it up for somebody: backends and why one
cannot be used, extras, APIs, clients and their state, gateways that run, commands, and what to type next.

Everything is read from the tables that the other commands use. Nothing is sent to Cursor, and nothing is changed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from .. import __version__
from ..clients.table import CLIENTS
from ..config import SETTINGS, Settings, process_environment, process_home
from .doctor import would_use
from .flags import MAIN_FLAGS, REACHING_CURSOR, add_setting_flags, settings_from
from .launch import seen_lately, surroundings
from .parsing import flags_of, subcommands
from .process import CommandFailed, log_to_stderr, remark, say, shown_width
from .process import run as run_loop
from .running import answers, noted_gateways
from .terminal import GAP, Style, columns, fitted, pairs, style_for, terminal_width, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..local_checks import Finding

NAME: Final = "capabilities"
SUMMARY: Final = "what this copy can do here, for programs"
DESCRIPTION: Final = (
    "Show what this copy can do here: which backends could be used and why others\n"
    "cannot, extras, APIs, clients and their state, gateways that run, commands, and\n"
    "what to type next. For coding agents: --json. It sends nothing to Cursor and\n"
    "changes nothing; whether Cursor answers, `caretway doctor` finds out."
)
EXAMPLES: Final = """\
examples:
  caretway capabilities
  caretway capabilities --json | jq '.next[].command'
  caretway capabilities --json | jq '.backends[] | select(.usable)'
"""
OWN_SIGN_IN: Final = ("sdk", "cli", "agent")
"""Backends that answer from Cursor, when they can be used."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    add_setting_flags(parser, REACHING_CURSOR, shown=MAIN_FLAGS)


def run(arguments: argparse.Namespace) -> int:
    settings, remarks = settings_from(arguments)
    remark(remarks)
    log_to_stderr("error")
    found = gathered(settings, arguments.tree)
    if arguments.json:
        say([json.dumps(found, indent=2, ensure_ascii=False)])
    else:
        say(as_lines(found, style_for(sys.stdout), shown_width(sys.stdout) or terminal_width(80)))
    return 0


def gathered(settings: Settings, tree: argparse.ArgumentParser) -> dict[str, Any]:
    from .doctor_backends import check_backends

    chosen = would_use(settings)
    backends = backend_rows(run_loop(check_backends(settings)), chosen)
    gateways = gateway_rows(settings)
    clients = client_rows(settings)
    return {
        "caretway": installation(settings),
        "settings": changed_settings(settings),
        "backends": backends,
        "gateways": gateways,
        "apis": api_rows(),
        "clients": clients,
        "commands": command_rows(tree),
        "next": next_steps(backends, gateways, clients, start=start_command()),
    }


def installation(settings: Settings) -> dict[str, Any]:
    import platform
    from pathlib import Path

    from ..installation import extra_installed, install_command, this_installation, update_command
    from ..update_notice import read_note

    here = this_installation()
    return {
        "version": __version__,
        "newest": read_note(settings.data_dir).newest or None if settings.update_check else None,
        "where": str(here.checkout or here.source or Path(__file__).parents[1]),
        "python": platform.python_version(),
        "system": sys.platform,
        "update": update_command(here),
        "extras": [
            {"name": name, "installed": there, "install": install_command(name, here=here)}
            for name, packages in here.extras.items()
            for there in (extra_installed(packages),)
        ],
    }


def changed_settings(settings: Settings) -> dict[str, Any]:
    """Where they are, and which are not as they come; secrets only by name."""
    origins = {one: settings.origin(one.name) for one in SETTINGS}
    return {
        "file": str(settings.config) if settings.config else None,
        "data_dir": str(settings.data_dir),
        "changed": [
            {"name": one.name, "value": one.show(getattr(settings, one.name)), "from": origin}
            for one, origin in origins.items()
            if origin != "default"
        ],
    }


def backend_rows(findings: Sequence[Finding], chosen: str) -> list[dict[str, Any]]:
    from ..backend_factory import STANDING_OF

    return [
        {
            "name": one.name,
            "standing": STANDING_OF[one.name],
            "usable": one.ok,
            "chosen": one.name == chosen,
            "detail": one.detail,
            "hint": one.hint,
        }
        for one in findings
    ]


def gateway_rows(settings: Settings) -> list[dict[str, Any]]:
    """Those that answer. The key in a gateway's note is not told."""
    from ..backend_factory import STANDING_OF

    rows = []
    for note in noted_gateways(settings.data_dir):
        if note.url.startswith("http:") and not answers(note.url):
            continue
        row = {name: value for name, value in asdict(note).items() if name not in ("key", "started")}
        rows.append(
            row
            | {
                "standing": STANDING_OF.get(note.backend, ""),
                "openai_base_url": f"{note.url}/v1",
                "anthropic_base_url": note.url,
                "page": f"{note.url}/",
            }
        )
    return rows


def api_rows() -> list[dict[str, Any]]:
    from ..dialects.registry import dialects

    return [
        {"api": dialect.name, "path": f"/v1{route.path}", "methods": [*route.operations], "websocket": route.websocket}
        for dialect in dialects()
        for route in dialect.routes
        if any(operation.turn for operation in route.operations.values())
    ]


def client_rows(settings: Settings) -> list[dict[str, Any]]:
    from .setup_journal import Journal

    path = surroundings().environment.get("PATH")
    set_up, seen = Journal(settings.data_dir).clients(), seen_lately(settings.data_dir)
    return [
        {
            "name": client.name,
            "title": client.title,
            "installed": shutil.which(client.program, path=path) is not None,
            "set_up": client.name in set_up,
            "seen": seen.get(client.seen_as) if client.seen_as else None,
            "api": client.api,
            "launch": client.starts_with,
            "setup": f"caretway setup {client.name} --yes" if client.setup else None,
            "install": client.install,
            "docs": f"docs/clients/{client.page}",
        }
        for client in CLIENTS
    ]


def command_rows(tree: argparse.ArgumentParser) -> list[dict[str, Any]]:
    from .completion import words

    flags = {name: [*flags_of(parser)] for name, parser in subcommands(tree).items()}
    return [
        {"name": one.name, "summary": one.help, "actions": [*one.actions], "json": "--json" in flags[one.name]}
        for one in words(tree)
    ]


def start_command() -> str:
    """A service where there is a manager for it, else the program itself."""
    from .service_manager import manager_here

    try:
        problem = manager_here(process_environment(), process_home()).problem()
    except CommandFailed:
        return "caretway serve"
    return "caretway serve" if problem else "caretway service install"


def next_steps(
    backends: Sequence[Mapping[str, Any]],
    gateways: Sequence[Mapping[str, Any]],
    clients: Sequence[Mapping[str, Any]],
    *,
    start: str,
) -> list[dict[str, str]]:
    """Pure. What is missing between here and a client with real answers, in order."""
    steps = []
    if not any(one["usable"] for one in backends if one["name"] in OWN_SIGN_IN):
        steps.append({"why": "nobody is signed in: answers would be simulated", "command": "caretway login"})
    if not gateways:
        steps.append({"why": "no gateway runs", "command": start})
    if not any(one["installed"] for one in clients):
        steps.append({"why": "no client that is known here is installed", "command": "caretway launch"})
    steps += [
        {"why": f"{one['title']} does not know the gateway yet", "command": one["setup"]}
        for one in clients
        if one["installed"] and one["setup"] and not one["set_up"]
    ]
    return [*steps, {"why": "the last word on all of it", "command": "caretway doctor"}]


def as_lines(found: Mapping[str, Any], style: Style, width: int) -> list[str]:
    here = found["caretway"]
    told = f"caretway {here['version']} in {here['where']}, Python {here['python']}; update: {here['update']}"
    first, *rest = wrapped(told, width - len(GAP))
    lines = [style.bold(first), *(GAP + line for line in rest)]
    lines += ["", style.bold("here"), *_table(_facts(found), style, width)]
    lines += ["", style.bold("backends") + style.dim("   * is the one that `caretway serve` would take")]
    lines += _table(_backends(found["backends"]), style, width)
    lines += ["", style.bold("gateways"), *_table(_gateways(found["gateways"]), style, width)]
    rows = [
        (one["name"], "yes" if one["installed"] else "no", _state(one), one["seen"] or "", one["api"])
        for one in found["clients"]
    ]
    header = ("client", "installed", "set up", "seen", "API")
    lines += ["", *columns(header, rows, style)]
    lines += ["", style.bold("next"), *_table([(one["command"], one["why"]) for one in found["next"]], style, width)]
    return lines


def _facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    here, settings = found["caretway"], found["settings"]
    extras = [one["name"] for one in here["extras"] if one["installed"]]
    changed = [one["name"] for one in settings["changed"]]
    return [
        ("extras", ", ".join(extras) or "none"),
        ("data", settings["data_dir"]),
        ("settings", settings["file"] or "no file"),
        ("changed", fitted(changed, 60) or "nothing"),
        ("APIs", ", ".join(one["path"] for one in found["apis"])),
    ]


def _backends(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [
        (
            f"{'*' if one['chosen'] else ' '} {one['name']}",
            f"{'yes' if one['usable'] else 'no'}, {one['standing']}: "
            + " ".join(filter(None, (one["detail"].rstrip(".") + ".", one["hint"]))),
        )
        for one in rows
    ]


def _gateways(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    if not rows:
        return [("none", "no gateway of yours runs")]
    return [
        (one["url"], f"{one['backend']} ({one['standing']}), version {one['version']}, process {one['pid']}")
        for one in rows
    ]


def _state(client: Mapping[str, Any]) -> str:
    return "yes" if client["set_up"] else "no" if client["setup"] else "-"


def _table(rows: Sequence[tuple[str, str]], style: Style, width: int) -> list[str]:
    """Beside each other, or below where the first words are long."""
    if max(len(first) for first, _ in rows) <= width // 2:
        return pairs(rows, style, screen=width)
    return [
        line for first, then in rows for line in (f"  {first}", *(f"      {part}" for part in wrapped(then, width - 6)))
    ]
