"""`caretway login`: sign in to Cursor with any browser, with an API key, or with the sign-in of another program."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from ..config import Settings, has_desktop, hosts, importable_sign_ins, process_environment
from ..core.errors import KEYS_PAGE
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import CommandFailed, log_to_stderr, remark, say
from .process import run as run_loop

if TYPE_CHECKING:
    from ..auth.account import Account

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
    settings, remarks = settings_from(arguments)
    remark(remarks)
    log_to_stderr("warning")
    if settings.backend == "cli":
        return _leave_to_cursor_agent("login", settings)
    if settings.backend == "simulator":
        say(["The simulator needs no sign-in. Start it with: caretway serve --backend simulator"])
        return 0
    if arguments.api_key_stdin:
        from ..auth.account import Account

        offered: Account | None = Account(api_key=read_key(sys.stdin, getpass))
    else:
        offered = _imported(arguments.import_from, settings) if arguments.import_from else None
    if settings.backend == "sdk" and (offered is None or not offered.api_key):
        raise _needs_a_key(offered)
    account = run_loop(_sign_in(settings, offered, browser=not arguments.no_browser and has_desktop()))
    say(signed_in(account, settings))
    return 0


def _needs_a_key(offered: Account | None) -> CommandFailed:
    what = "does not sign in with a browser" if offered is None else "cannot use a sign-in without an API key"
    typed = "caretway login --backend sdk --api-key-stdin"
    return CommandFailed(f"Cursor's own package {what}", f"make a key at {KEYS_PAGE}, then type: {typed}", 2)


def _leave_to_cursor_agent(command: str, settings: Settings) -> int:
    """Run the program's own sign-in, which talks to the user itself."""
    import subprocess

    from ..backends.cursor_cli.program import find_program

    program = find_program(settings.agent_bin, process_environment())
    if program is None:
        raise CommandFailed("there is no cursor-agent program", "install it, or name it with --agent-bin")
    remark([f"{program} {command}"])
    return subprocess.run([program, command], check=False).returncode  # noqa: S603 (the user's own program)


def read_key(stdin: TextIO, ask: Callable[[str], str]) -> str:
    """A terminal is read without echo; of a pipe, the first line is read."""
    key = (ask("Cursor API key: ") if stdin.isatty() else stdin.readline()).strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise CommandFailed("this is not an API key", "try: caretway login --api-key-stdin < file-with-the-key")
    return key


def _imported(named: str, settings: Settings) -> Account:
    import time

    from ..auth.imports import MAX_BYTES, read_import

    file = found_file(named, importable_sign_ins())
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MAX_BYTES)
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not text"
        raise CommandFailed(f"cannot read {file}: {reason}") from failure
    remark([f"copying the sign-in from {file}"])
    return read_import(text, url=hosts(settings).api, now=time.time())


def found_file(named: str, candidates: Sequence[Path]) -> Path:
    if named != _SEARCH:
        return Path(named)
    file = next((path for path in candidates if path.is_file()), None)
    if file is None:
        looked = " or ".join(map(str, candidates))
        raise CommandFailed(f"no other program has a sign-in here: no {looked}", "try: caretway login")
    return file


async def _sign_in(settings: Settings, offered: Account | None, *, browser: bool) -> Account:
    """Sign in, then store the account. Credentials that Cursor did not accept are not stored."""
    import asyncio
    import secrets
    import time
    import uuid

    from ..auth.login import VERIFIER_BYTES, invite, sign_in
    from ..auth.renewal import renew
    from ..auth.token_lifetime import due
    from ..backend_factory import open_call, sign_ins

    kept = sign_ins(settings)
    async with open_call(settings) as call:
        if offered is None:
            invitation = invite(secrets.token_bytes(VERIFIER_BYTES), str(uuid.uuid4()))
            link = invitation.link(hosts(settings).login)
            say(["Open this link, on any machine, and sign in to Cursor:", "", f"  {link}", ""])
            if browser:
                await asyncio.to_thread(_open_browser, link)
            say(["Waiting for you to sign in. Ctrl-C stops."])
            account = await sign_in(invitation, call, asyncio.sleep, time.time)
        elif not offered.access_token or due(offered.access_token, offered.received_at, time.time()):
            account = await renew(offered, call, time.time, "Sign in with `caretway login` instead.")
        else:
            # Not renewed before its time: the program it comes from may depend on the same refresh token.
            account = offered
    account = replace(account, who=account.name)
    async with kept.locked():
        kept.keep(hosts(settings).api, account)
    return account


def _open_browser(link: str) -> None:
    import webbrowser

    with suppress(webbrowser.Error):  # the link is on the screen
        webbrowser.open(link)


def signed_in(account: Account, settings: Settings) -> list[str]:
    from ..backend_factory import sign_ins

    lines = [f"Signed in as {account.name or 'a user without a name'}. Stored in {sign_ins(settings).place}."]
    stronger = [name for name in ("access_token", "api_key") if getattr(settings, name)]
    lines += [
        f"Note: {name} ({settings.origin(name)}) is set and takes precedence over this sign-in."
        for name in stronger[:1]
    ]
    return lines
