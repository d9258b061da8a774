"""`caretway login`: signs in with a browser (opened only on a desktop), with an API key from standard input, or by
importing another program's sign-in. Stores only credentials that Cursor accepted; cursor-agent signs in itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from getpass import getpass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from ..config import Settings, cursor_sign_in_files, has_desktop, hosts, process_environment
from ..core.errors import KEYS_PAGE, ErrorKind
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import CommandFailed, log_to_stderr, remark, tell, typed_or_piped
from .process import run as run_loop
from .running import noted_gateways

if TYPE_CHECKING:
    from ..accounts.account import Account
    from ..accounts.login import Call

NAME: Final = "login"
SUMMARY: Final = "sign in to Cursor"
DESCRIPTION: Final = (
    "Sign in to Cursor with a browser, on this machine or any other. The command\n"
    "prints a link, and opens it if this machine has a desktop. Only you can read the\n"
    "stored sign-in. It renews itself, and a running gateway uses it at once."
)
EXAMPLES: Final = """\
examples:
  caretway login                                open the link that it prints
  caretway login --no-browser                   only print it, as over ssh
  caretway login --api-key-stdin < key.txt      sign in with an API key
  caretway login --import                       copy the sign-in of cursor-agent
                                                or of the official SDK
  caretway login --import auth.json             copy it from a file, which may
                                                be one line REFRESH|APIKEY
  caretway login --backend cli                  sign in cursor-agent itself
  caretway login --backend sdk --api-key-stdin  the SDK takes API keys only
"""

TAKE_UP_S: Final = 5.0
"""How long a running gateway may take to use a new sign-in."""
TAKE_UP_LOOK_S: Final = 0.05
_SEARCH: Final = "search"  # `--import` without a file


def add_flags(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--api-key-stdin", action="store_true", help="Read a Cursor API key from standard input.")
    ways.add_argument(
        "--import",
        dest="import_from",
        metavar="FILE",
        nargs="?",
        const=_SEARCH,
        help="Copy a sign-in from FILE, or from Cursor's own programs.",
    )
    parser.add_argument("--no-browser", action="store_true", help="Print the link, but do not open it.")
    add_setting_flags(parser, REACHING_CURSOR, shown=("backend", "token_store", "config", "data_dir"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("warning")
    if settings.backend == "cli":
        return _leave_to_cursor_agent("login", settings)
    if settings.backend == "simulator":
        tell(["The simulator needs no sign-in. Start it with: caretway serve --backend simulator"])
        return 0
    if arguments.api_key_stdin:
        from ..accounts.account import Account

        offered: Account | None = Account(api_key=read_key(sys.stdin, getpass))
    else:
        offered = _imported(arguments.import_from, settings) if arguments.import_from else None
    if settings.backend == "sdk" and (offered is None or not offered.api_key):
        raise _needs_a_key(offered)
    account = run_loop(_sign_in(settings, offered, browser=not arguments.no_browser and has_desktop()))
    tell(signed_in(account, settings, time.time()))
    remark(_taken_up(settings.data_dir))
    return 0


def _taken_up(data_dir: Path) -> list[str]:
    """Waits until the gateways that simulated without an account use the sign-in, and returns a line about each."""
    before = [note for note in noted_gateways(data_dir) if note.backend == "simulator"]
    give_up = time.monotonic() + TAKE_UP_S
    while any(note.awaits_login for note in noted_gateways(data_dir)) and time.monotonic() < give_up:
        time.sleep(TAKE_UP_LOOK_S)
    now = {(note.pid, note.url): note.backend for note in noted_gateways(data_dir)}
    lines: list[str] = []
    for note in before:
        backend = now.get((note.pid, note.url))
        if backend == "simulator":
            lines.append(f"the gateway at {note.url} still simulates: start it again (process {note.pid})")
        elif backend:
            lines.append(f"the gateway at {note.url} answers from Cursor now (backend {backend})")
    return lines


def _needs_a_key(offered: Account | None) -> CommandFailed:
    what = "does not sign in with a browser" if offered is None else "cannot use a sign-in without an API key"
    typed = "caretway login --backend sdk --api-key-stdin"
    return CommandFailed(f"Cursor's own package {what}", f"make a key at {KEYS_PAGE}, then type: {typed}", 2)


def _leave_to_cursor_agent(command: str, settings: Settings) -> int:
    """Runs the program's own sign-in, which interacts with the user directly."""
    import subprocess

    from ..backends.cli.program import child_environment, find_program

    program = find_program(settings.agent_bin, process_environment())
    if program is None:
        raise CommandFailed("there is no cursor-agent program", "install it, or name it with --agent-bin")
    remark([f"{program} {command}"])
    environment = child_environment(process_environment(), None)
    return subprocess.run([program, command], env=environment, check=False).returncode  # noqa: S603 (the user's own program)


def read_key(stdin: TextIO, ask: Callable[[str], str]) -> str:
    """Reads a key from a terminal without echo, otherwise from the first line of a pipe."""
    key = typed_or_piped(ask, "Cursor API key: ", stdin)
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise CommandFailed("this is not an API key", "try: caretway login --api-key-stdin < file-with-the-key")
    return key


def _imported(named: str, settings: Settings) -> Account:
    from ..accounts.store import read_bounded, read_import

    places = cursor_sign_in_files()
    file = found_file(named, places)
    try:
        text = read_bounded(file)
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not text"
        raise CommandFailed(f"cannot read {file}: {reason}") from failure
    remark([f"copying the sign-in from {file}"])
    account = read_import(text, url=hosts(settings).api, now=time.time())
    # The gateway follows changes of another program's own file; a file of the user may be deleted soon.
    return replace(account, copied_from=str(file.absolute())) if file.absolute() in places else account


def found_file(named: str, candidates: Sequence[Path]) -> Path:
    if named != _SEARCH:
        return Path(named)
    file = next((path for path in candidates if path.is_file()), None)
    if file is None:
        looked = " or ".join(map(str, candidates))
        raise CommandFailed(f"no other program has a sign-in here: no {looked}", "try: caretway login")
    return file


async def _sign_in(settings: Settings, offered: Account | None, *, browser: bool) -> Account:
    """Signs in, then stores the account. Credentials that Cursor does not accept are not stored."""
    import asyncio
    import secrets
    import uuid

    from ..accounts.login import VERIFIER_BYTES, invite, renew, sign_in
    from ..upstream import open_call, sign_ins

    kept = sign_ins(settings)
    async with open_call(settings) as call:
        if offered is None:
            invitation = invite(secrets.token_bytes(VERIFIER_BYTES), str(uuid.uuid4()))
            link = invitation.link(hosts(settings).login)
            tell(["Open this link, on any machine, and sign in to Cursor:", "", link, ""])
            if browser:
                await asyncio.to_thread(_open_browser, link)
            tell(["Waiting for you to sign in. Ctrl-C stops."])
            account = await sign_in(invitation, call, asyncio.sleep, time.time)
        elif offered.access_token and await _accepted(call, offered.access_token):
            # Not renewed early: the program of origin may depend on the same refresh token.
            account = offered
        elif offered.renewable:
            account = await renew(offered, call, time.time, _other_ways(offered))
        else:
            raise CommandFailed("Cursor does not accept this sign-in any more", _other_ways(offered))
    account = replace(account, who=account.name)
    async with kept.locked():
        kept.keep(hosts(settings).api, account)
    return account


async def _accepted(call: Call, token: str) -> bool:
    """Whether Cursor accepts the access token, tested by a call that costs nothing."""
    from ..cursor.transport.faults import fault_from_status
    from ..cursor.wire import paths

    headers = {"authorization": f"Bearer {token}", "content-type": paths.UNARY_TYPE, "connect-protocol-version": "1"}
    status, body = await call("POST", paths.USABLE_MODELS, headers, b"")
    return status == 200 or fault_from_status(status, {}, body).kind is not ErrorKind.SIGNED_OUT


def _other_ways(offered: Account) -> str:
    """What to type if the offered credentials are not accepted."""
    if not (offered.access_token or offered.refresh_token):
        return "Check the key, or sign in with `caretway login` instead."
    if offered.copied_from:
        return "Sign in again with the program it comes from, then repeat this. Or run `caretway login`."
    return "Run `caretway login` instead."


def _open_browser(link: str) -> None:
    import webbrowser

    with suppress(webbrowser.Error):  # the link is on the screen
        webbrowser.open(link)


def signed_in(account: Account, settings: Settings, now: float) -> list[str]:
    from ..upstream import sign_ins

    lines = [f"Signed in as {account.name or 'a user without a name'}. Stored in {sign_ins(settings).place}."]
    lines += [line for line in (lasts(account, now),) if line]
    stronger = [name for name in ("access_token", "api_key") if getattr(settings, name)]
    lines += [
        f"Note: {name} ({settings.origin(name)}) is set and takes precedence over this sign-in."
        for name in stronger[:1]
    ]
    return lines


def lasts(account: Account, now: float) -> str:
    """The end of a sign-in and what happens then; empty if unknown."""
    from ..accounts.account import term, utc_text

    ends_at = term(account.access_token, account.received_at).ends_at if account.access_token else inf
    if ends_at == inf or account.api_key:
        return ""
    until = f"It works until {utc_text(ends_at)}"
    if ends_at <= now:
        return f"It was to end at {utc_text(ends_at)}, but Cursor still accepts it."
    if not account.renewable:
        then = "repeat this after signing in again there" if account.copied_from else "run `caretway login` again"
        return f"{until}, and nothing came with it to renew it: then {then}."
    return f"{until}, and is renewed before that if Cursor agrees."
