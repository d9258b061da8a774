"""`caretway logout`: deletes the sign-in on this machine; a running gateway stops using it, too."""

from __future__ import annotations

import argparse
from typing import Final

from ..config import Settings, hosts
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import log_to_stderr, say
from .process import run as run_loop

NAME: Final = "logout"
SUMMARY: Final = "forget the sign-in on this machine"
DESCRIPTION: Final = (
    "Delete the sign-in that `caretway login` stored on this machine. A running\n"
    "gateway stops using it with its next request. To end the session itself, go to\n"
    "Cursor's settings on its web site."
)
EXAMPLES: Final = """\
examples:
  caretway logout
  caretway logout --agent-url http://127.0.0.1:32125    sign out of a simulator
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_setting_flags(parser, REACHING_CURSOR, shown=("agent_url", "token_store", "config", "data_dir"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("warning")
    forgotten = run_loop(_forget(settings))
    say([f"Signed out of {hosts(settings).api}." if forgotten else f"No sign-in is stored for {hosts(settings).api}."])
    return 0


async def _forget(settings: Settings) -> bool:
    from ..upstream import sign_ins

    kept = sign_ins(settings)
    async with kept.locked():
        return kept.forget(hosts(settings).api)
