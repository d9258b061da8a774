"""`caretway launch`: starts a client that is configured for the gateway, for this process only, and passes on its exit
code and signals. Without a name it lists the clients, and which are installed and set up.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..config import home_directory, own_variables, process_environment
from . import shell_lines
from .clients.table import ALSO, BY_NAME, CLIENTS, ClientProgram, llm_folder
from .clients.values import FILES, NO_KEY, LaunchPlan, Surroundings, Target
from .figures import ago
from .flags import REACHING_CURSOR, add_setting_flags, given, settings_from
from .process import CommandFailed, remark, say, shown_width
from .process import run as run_loop
from .terminal import Style, columns, pairs, style_for, terminal_width

if TYPE_CHECKING:
    from .client_gateway import ClientGateway

NAME: Final = "launch"
SUMMARY: Final = "start a client, configured for the gateway"
USAGE: Final = "caretway launch [CLIENT] [flags] [-- arguments of the client]"
DESCRIPTION: Final = (
    "Start a client with the gateway as its provider. The gateway that runs is used,\n"
    "on any port; if none runs, one is started, which ends with the client. Nothing\n"
    "is written to the client's files. Without CLIENT: the clients and their state."
)
EXAMPLES: Final = """\
examples:
  caretway launch                               which clients there are
  caretway launch opencode
  caretway launch claude --model claude-opus-5
  caretway launch codex -- exec 'fix the tests'
  caretway launch goose --print                 what it would do
"""
_NOT_FOUND: Final = 127
"""The shells' exit code for a missing program."""
LATELY_S: Final = 30 * 86_400
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", nargs="?", help=f"One of: {', '.join(BY_NAME)}.")
    parser.add_argument("--model", metavar="MODEL", help="The model to use; see `caretway models`.")
    parser.add_argument("--print", action="store_true", help="Show what it would do, and do nothing.")
    add_setting_flags(parser, REACHING_CURSOR)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    style = style_for(sys.stdout)
    if arguments.client is None:
        if arguments.rest:
            raise CommandFailed("which client?", f"one of: {', '.join(BY_NAME)}", exit_code=2)
        from .setup import Journal

        set_up, seen = Journal(settings.data_dir).clients(), seen_lately(settings.data_dir)
        say(overview(surroundings(), set_up, seen, style, terminal_width()))
        return 0
    client = client_named(arguments.client)
    from .client_gateway import client_gateway

    async def launched() -> int:
        async with client_gateway(settings, given(arguments)) as gateway:
            target = gateway.target(arguments.model)
            plan = client.launch(target)
            if arguments.print:
                remark(unlisted(gateway, target))
                say(shown(client, plan, gateway, target, arguments.rest, shown_width(sys.stdout)))
                return 0
            program = shutil.which(client.program)
            if program is None:
                raise CommandFailed(
                    f"{client.title} is not installed: no `{client.program}` on the PATH",
                    f"install it: {client.install}",
                    exit_code=_NOT_FOUND,
                )
            remark(announced(client, gateway, target))
            with _laid_out(plan) as (words, variables):
                inherited = {**plan.defaults, **process_environment()}
                environment = child_environment(inherited, variables, (*plan.without, *own_variables()))
                return await _run_child([program, *words, *arguments.rest], environment)

    return run_loop(launched())


def client_named(word: str) -> ClientProgram:
    client = BY_NAME.get(ALSO.get(word, word))
    if client is None:
        near = difflib.get_close_matches(word, [*BY_NAME, *ALSO], 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(BY_NAME)}"
        raise CommandFailed(f"no such client: {word}", hint, exit_code=2)
    return client


def surroundings() -> Surroundings:
    return Surroundings(home_directory(), process_environment(), Path.exists, sys.platform)


def announced(client: ClientProgram, gateway: ClientGateway, target: Target) -> list[str]:
    how = "running" if gateway.running else "started for it"
    lines = [f"{client.title} with {target.model} by {gateway.url} ({gateway.backend}, {how})"]
    if gateway.simulated:
        lines.append("SIMULATED ANSWERS: nothing comes from Cursor or from any model; for real ones: caretway login")
    return [*lines, *unlisted(gateway, target)]


def unlisted(gateway: ClientGateway, target: Target) -> list[str]:
    """A warning about a model that the account does not list."""
    if not gateway.models or any(model.id == target.model for model in gateway.models):
        return []
    near = difflib.get_close_matches(target.model, [model.id for model in gateway.models], 1)
    return [f"{target.model} is not in the list of models{f'; did you mean {near[0]}?' if near else ''}"]


def child_environment(mine: Mapping[str, str], variables: Mapping[str, str], without: Sequence[str]) -> dict[str, str]:
    """The user's environment plus the plan's variables. The user's proxy is bypassed for this machine."""
    environment = {name: value for name, value in mine.items() if name not in without} | dict(variables)
    if any(environment.get(name) or environment.get(name.upper()) for name in _PROXIES):
        for name in ("NO_PROXY", "no_proxy"):
            kept = [word for word in environment.get(name, "").split(",") if word.strip()]
            environment[name] = ",".join([*kept, *(host for host in _LOOPBACK if host not in kept)])
    return environment


@contextmanager
def _laid_out(plan: LaunchPlan) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Writes the plan's files to a private directory. Yields arguments and variables that name it."""
    if not plan.files:
        yield list(plan.arguments), dict(plan.environment)
        return
    with tempfile.TemporaryDirectory(prefix="caretway-launch-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        if plan.mirror:
            _mirrored(llm_folder(surroundings()), place, set(plan.files))
        for name, text in plan.files.items():
            (place / name).write_text(text, encoding="utf-8")
        yield _placed(plan, folder)


def _placed(plan: LaunchPlan, folder: str) -> tuple[list[str], dict[str, str]]:
    words = [word.replace(FILES, folder) for word in plan.arguments]
    return words, {name: value.replace(FILES, folder) for name, value in plan.environment.items()}


def _mirrored(source: Path, place: Path, ours: set[str]) -> None:
    """Links the entries of the client's directory into `place`, except those in `ours`."""
    source.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.name not in ours:
            (place / entry.name).symlink_to(entry)


async def _run_child(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the client in this terminal and process group, so job control works as usual. Ctrl-C at the terminal reaches
    the client directly; signals sent to this process are passed on."""
    import asyncio

    loop = asyncio.get_running_loop()
    process: subprocess.Popen[bytes] | None = None
    early: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        if number is signal.SIGINT and _in_foreground():
            return
        if process is None:
            early.append(number)
        elif process.poll() is None:
            process.send_signal(number)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for number in numbers:
        loop.add_signal_handler(number, pass_on, number)
    try:
        # no shell; no other work is pending in this loop; one call between fork and exec
        process = subprocess.Popen(argv, env=dict(environment), preexec_fn=_ends_with_us())  # noqa: S603, ASYNC220 (the user's own client)
        for number in early:
            process.send_signal(number)
        code = await asyncio.to_thread(process.wait)
    except OSError as failure:
        raise CommandFailed(f"{argv[0]} cannot be started: {failure.strerror}", exit_code=126) from failure
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
    return code if code >= 0 else 128 - code


def _ends_with_us() -> Callable[[], object] | None:
    """A function for the child to call: if this process, which may be its gateway, is killed, the child gets SIGHUP.
    Linux only; elsewhere the child stays without a gateway."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGHUP), 0, 0, 0)


_PR_SET_PDEATHSIG: Final = 1


def _in_foreground() -> bool:
    """Whether our process group has the terminal: then the client gets Ctrl-C directly, too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# ---------------------------------------------------------------------------------------------- what is shown


def shown(
    client: ClientProgram,
    plan: LaunchPlan,
    gateway: ClientGateway,
    target: Target,
    rest: Sequence[str],
    width: int = 0,
) -> list[str]:
    """The command as a shell would run it, without the gateway's key. `width`: the terminal's, or 0."""

    def hidden(text: str) -> str:
        return text if target.key == NO_KEY else text.replace(target.key, "THE-KEY")

    how = "runs" if gateway.running else "would be started on a free port, and end with the client"
    lines = shell_lines.comment(f"gateway: {gateway.url} ({gateway.backend}) {how}", width)
    if plan.files:
        lines.append("files=$(mktemp -d)")
    for name, text in plan.files.items():
        content = hidden(text).rstrip("\n").splitlines()
        if name.endswith((".json", ".ts")):
            content = [part for line in content for part in shell_lines.between_values(line, width)]
        lines += [f"cat > {_typed(f'{FILES}/{name}')} <<'END'", *content, "END"]
    if plan.without:
        lines += shell_lines.command(["unset", *plan.without], width)
    lines += [f'export {name}="${{{name}-{value}}}"' for name, value in plan.defaults.items()]
    for name, value in plan.environment.items():
        placed = [f"export {name}={_typed(hidden(value))}"]
        lines += placed if FILES in value else shell_lines.export(name, hidden(value), width)
    words = [client.program, *plan.arguments, *rest]
    return [*lines, *shell_lines.command([_typed(hidden(word)) for word in words], width)]


def _typed(word: str) -> str:
    """Quotes a word for a shell in which `files` is the directory."""
    return '"$files"'.join(shlex.quote(part) if part else "" for part in word.split(FILES)) or "''"


def overview(
    around: Surroundings, set_up: Sequence[str], seen: Mapping[str, str], style: Style, width: int
) -> list[str]:
    rows = []
    for client in CLIENTS:
        there = shutil.which(client.program, path=around.environment.get("PATH")) is not None
        state = "yes" if client.name in set_up else "-" if client.setup is None else "no"
        lately = seen.get(client.seen_as, "") if client.seen_as else ""
        rows.append((client.name, "yes" if there else "no", state, lately, "" if there else client.install))
    header = ("client", "installed", "set up", "seen", "install it with")
    table = columns(header, rows, Style())
    if max(map(len, table)) > width:  # the rows come first, install commands below
        table = columns(header[:4], [row[:4] for row in rows], Style())
        missing = [(row[0], row[4]) for row in rows if row[4]]
        table += ["", "install", *pairs(missing, Style(), indent="")] if missing else []
    return [
        style.dim(table[0]),
        *table[1:],
        "",
        "start one:  caretway launch CLIENT",
        "for good:   caretway setup CLIENT",
    ]


def seen_lately(data_dir: Path) -> dict[str, str]:
    """The ledger's name of each client -> how long ago its last request was. Empty if the ledger cannot be read."""
    import sqlite3

    from ..usage.queries import last_seen
    from ..usage.writing import reading_ledger

    now = time.time()
    try:
        with reading_ledger(data_dir) as ledger:
            return {name: ago(now - at) for name, at in last_seen(ledger, now - LATELY_S).items()}
    except sqlite3.Error:
        return {}  # `caretway doctor` reports the reason
