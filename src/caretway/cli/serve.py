"""`caretway serve`: runs the gateway until a signal stops it. Prints a banner (address, account, models, warnings,
simulated answers; never a key) without waiting for Cursor, and messages during shutdown.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from errno import EADDRINUSE
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from .. import __version__
from ..config import Settings, take_notify_socket
from ..core.errors import ErrorKind, GatewayError
from ..server.access import reachable_from_outside
from .flags import PROGRAM, add_setting_flags, settings_from
from .models import models_for_clients
from .process import (
    RESTART,
    CommandFailed,
    Haste,
    exit_code,
    listening_failed,
    log_to_stderr,
    remark,
    say,
    settle_memory,
    stop_signal,
)
from .process import run as run_loop
from .terminal import Style, fitted, pairs, style_for, terminal_width

if TYPE_CHECKING:
    from ..core.turn import Backend
    from ..gateway import Gateway

NAME: Final = "serve"
SUMMARY: Final = "run the gateway"
DESCRIPTION: Final = (
    "Run the gateway until Ctrl-C.\n"
    "\n"
    "These are the flags that most people need; --help-all shows all of them.\n"
    "Each flag is also an environment variable and a key of the TOML file:\n"
    "--log-level is CARETWAY_LOG_LEVEL and log_level. Flags win over variables,\n"
    "variables win over the file. `caretway config` shows each value and its origin.\n"
    "\n"
    "Keys are variables only, because other users can read command lines:\n"
    "  CURSOR_API_KEY        your Cursor API key\n"
    "  CARETWAY_API_KEY      the gateway's own key, which clients must send"
)
EXAMPLES: Final = """\
examples:
  caretway serve                                   http://127.0.0.1:32124
  CURSOR_API_KEY=... caretway serve --port 8080    with an API key
  caretway serve --backend simulator               simulated answers, no account
  caretway serve --config ./caretway.toml          settings from a file

then, in another terminal:
  curl http://127.0.0.1:32124/health
  OPENAI_BASE_URL=http://127.0.0.1:32124/v1 OPENAI_API_KEY=none your-client
"""

MAIN_FLAGS: Final = (
    "backend",
    "host",
    "port",
    "api_key_file",
    "config",
    "workspace",
    "local_tools",
    "mcp_config",
    "thinking",
    "log_level",
)
"""The settings shown by `--help`."""

STANDINGS: Final = {
    "official": "official",
    "unofficial": "unofficial, private protocol",
    "stand-in": "at another address, not Cursor's own",
    "simulated": "simulated answers, not Cursor",
}
EACH_ITS_OWN: Final = "every client brings its own Cursor API key"
NO_KEY: Final = "any-text"
_LABELS: Final = 9
"""The width of the banner's first column, shared by its two parts."""
_LEAST_ROOM: Final = 30
"""The minimum width of a value."""
_PATIENCE: Final = 5.0
"""Seconds that the banner waits for account and models, while the gateway already serves."""
_SLOW_END_S: Final = 1.0
"""If stopping takes longer, print a line even if no response is running."""


_AGAIN: Final = -1
"""Returned in place of an exit code to start again."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_setting_flags(parser, shown=MAIN_FLAGS)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    from ..config.secrets import secrets_in
    from ..server.server import raise_soft_limit
    from .running import announced_gateway

    log_to_stderr(settings.log_level, secrets_in(settings), settings.log_format, settings.log_file)
    raise_soft_limit(settings.max_connections)
    if settings.local_tools == "all":
        from .process import hide_from_children

        hide_from_children()

    try:
        code = run_loop(serve(settings, announced_gateway, style_for(sys.stdout)))
    except OSError as failure:
        if isinstance(failure, BrokenPipeError):
            raise
        from .port_owner import port_owner

        owner = port_owner(settings.data_dir, settings.host, settings.port) if failure.errno == EADDRINUSE else ""
        raise listening_failed(failure, settings.host, settings.port, "caretway serve", owner) from failure
    except GatewayError as failure:
        if failure.kind is not ErrorKind.BAD_REQUEST:
            raise
        raise CommandFailed(str(failure), exit_code=2) from failure  # a wrong setting: no supervisor must retry
    if code == _AGAIN:
        os.execv(sys.executable, [sys.executable, "-m", "caretway", *sys.argv[1:]])  # noqa: S606 - this program itself
    return code


async def _stop_or_restart(again: Haste) -> signal.Signals:
    return await stop_signal(again, also=(RESTART,))


async def serve(
    settings: Settings,
    gateway: Callable[[Settings], AbstractAsyncContextManager[Gateway]],
    style: Style,
    stopped: Callable[[Haste], Awaitable[signal.Signals]] = _stop_or_restart,
) -> int:
    import asyncio

    from ..processes.tasks import spawn
    from .process import notify

    manager = take_notify_socket()
    haste = Haste()
    late: asyncio.TimerHandle | None = None
    try:
        async with gateway(settings) as served:
            settle_memory()
            say(
                opening(
                    settings, served.base_url, served.backend.name, served.backend.standing, style, terminal_width(80)
                )
            )
            notify(manager, "READY=1", f"STATUS=serving {served.base_url} ({served.backend.name})")
            # Runs in the background: an unreachable Cursor must delay neither requests nor Ctrl-C.
            rest = spawn(_say_rest(settings, served, style), "banner")
            try:
                number = await stopped(haste)
            finally:
                rest.cancel()
                notify(manager, "STOPPING=1")
            answers = served.tenants.live - served.tenants.parked
            if answers and settings.shutdown_grace:
                remark([stopping(number, answers, settings.shutdown_grace)])
            else:
                late = asyncio.get_running_loop().call_later(_SLOW_END_S, remark, [stopping(number)])
        return _AGAIN if number is RESTART else exit_code(number)
    except asyncio.CancelledError:
        if haste.asked_by is None:
            raise
        return 128 + haste.asked_by
    finally:
        if late is not None:
            late.cancel()


def stopping(number: signal.Signals, answers: int = 0, grace: float = 0.0) -> str:
    """What the shutdown waits for, if known, and how to stop immediately."""
    again = "press Ctrl-C again" if number is signal.SIGINT else "send the signal again"
    have = "1 answer has" if answers == 1 else f"{answers} answers have"
    return f"stopping{f': {have} up to {grace:g} s to end' if answers else ''}; {again} to stop now"


async def _say_rest(settings: Settings, served: Gateway, style: Style) -> None:
    account = (
        SignInState(brought=True)
        if settings.auth_mode == "passthrough"
        else await _sign_in_state(settings, served.backend)
    )
    say(instructions(served.base_url, account, style, terminal_width(80), client_key(settings)))


async def _sign_in_state(settings: Settings, backend: Backend) -> SignInState:
    import asyncio

    from ..accounts.catalogue import each_once

    facts = SignInState()
    try:
        async with asyncio.timeout(_PATIENCE):
            status = await backend.status()
            if backend.standing != "simulated":  # the first part of the banner says so
                facts = SignInState(status.signed_in, status.detail)
            models = each_once(await models_for_clients(backend, settings))
            return replace(facts, models=tuple(model.id for model in models))
    except GatewayError as failure:
        return replace(facts, trouble=str(failure))
    except TimeoutError:
        return replace(facts, trouble="no answer yet")


class SignInState(Struct, frozen=True):
    """The sign-in that the backend reported; a field is None or empty if not reported."""

    signed_in: bool | None = None
    detail: str = ""
    models: tuple[str, ...] = ()
    trouble: str = ""
    brought: bool = False
    """In passthrough mode every client sends its own key, so there is no account to show."""


def opening(settings: Settings, base_url: str, backend: str, standing: str, style: Style, width: int = 80) -> list[str]:
    """The first part of the banner: the facts known once the socket is open."""
    described = f"{backend} ({STANDINGS[standing]})"
    shown = style.good(described) if standing == "official" else style.careful(described)
    lines = [style.bold(f"Caretway {__version__}")]
    lines += pairs([("address", style.bold(base_url)), ("backend", shown)], style, width=_LABELS)
    if settings.origin("port") == "environment PORT":
        lines += _row("port", "from the variable PORT; CARETWAY_PORT or --port wins", width, style)
    if standing == "simulated":
        lines += ["", *style.loud([line for text in _simulated(settings) for line in _at_most(text, width - 4)]), ""]
    if asks_for_a_key(settings):
        lines += pairs([("key", "clients must send it")], style, width=_LABELS)
    if reachable_from_outside(settings.host):
        clear = "" if settings.tls_cert else ", in the clear: set --tls-cert and --tls-key"
        what = "this gateway" if settings.auth_mode == "passthrough" else "your Cursor account"
        warning = f"anyone with the key can use {what} from other machines{clear}"
        lines += _row("warning", warning, width, style, style.bad)
    if settings.trace is not None:
        what = "WITH prompts and answers" if settings.trace_content else "without prompts, answers, keys and tokens"
        note = f"wire traffic is recorded in {settings.trace}, {what}"
        lines += _row("trace", note, width, style, style.careful)
    return lines


def _simulated(settings: Settings) -> Sequence[str]:
    if settings.backend == "simulator":
        why, then = "The simulator was asked for.", "then start again without it"
    else:
        why, then = "No Cursor credentials were found.", "in another terminal; no restart"
    return (
        "SIMULATED ANSWERS: nothing here comes from Cursor or from any model.",
        f"{why} For real answers, use your own subscription:",
        f"    caretway login        {then}",
    )


def instructions(base_url: str, account: SignInState, style: Style, width: int, key: str = NO_KEY) -> list[str]:
    """The second part of the banner: account, models, and how to configure a client."""
    lines: list[str] = []
    if account.brought:
        listed_by = f"those of each account: GET {base_url}/v1/models with its key"
        lines += _row("account", f"{EACH_ITS_OWN}; no sign-in here", width, style)
        lines += _row("models", listed_by, width, style)
    if account.signed_in is not None or account.detail:
        word = {True: "yes", False: "no", None: "unknown"}[account.signed_in]
        state = f"{word}: {account.detail}" if account.detail else word
        lines += _row("signed in", state, width, style, str if account.signed_in else style.bad)
    if account.trouble and account.trouble != account.detail:
        lines += _row("models", account.trouble, width, style, style.careful)
    elif account.models:
        lines += _row("models", fitted(account.models, max(_LEAST_ROOM, width - _LABELS - 4)), width, style)
    rows = [
        ("OpenAI", f"OPENAI_BASE_URL={base_url}/v1"),
        ("", f"OPENAI_API_KEY={key}"),
        ("Anthropic", f"ANTHROPIC_BASE_URL={base_url}"),
        ("", f"ANTHROPIC_AUTH_TOKEN={key}"),
        ("or", "caretway launch       (starts your client)"),
        ("try", 'caretway ask "Hello!"'),
    ]
    if not account.brought:
        rows.append(("dashboard", "caretway open         (in a browser)"))
    lines += pairs(rows, style, width=_LABELS)
    if command := not_on_path():
        lines += _row("command", f"caretway is not on your PATH: it is {command}", width, style)
    return lines


def _at_most(text: str, room: int) -> list[str]:
    return [text] if len(text) <= room else wrap(text, max(_LEAST_ROOM, room), break_on_hyphens=False)


def _row(label: str, value: str, width: int, style: Style, mark: Callable[[str], str] = str) -> list[str]:
    return pairs([(label, value)], style, width=_LABELS, screen=width, mark=mark)


def not_on_path() -> str:
    """How to type this command if `caretway` is not on PATH; empty otherwise."""
    if shutil.which(PROGRAM):
        return ""
    program = Path(sys.executable).with_name(PROGRAM)
    return str(program) if program.exists() else f"{sys.executable} -m {PROGRAM}"


def client_key(settings: Settings) -> str:
    """A description of the API key that a client must send, never the key itself."""
    if settings.auth_mode == "passthrough":
        return "your-cursor-api-key"
    return "the-gateway-key" if asks_for_a_key(settings) else NO_KEY


def asks_for_a_key(settings: Settings) -> bool:
    from ..assembly import key_file

    return bool(settings.gateway_key or settings.api_key_file or key_file(settings).read())
