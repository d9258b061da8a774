"""`caretway top`: a live view of the running gateway: the last hour, a table of turns, keys to sort, to cancel a turn
and to quit. On a pipe, or with `--once` or `--json`, it prints once. Data comes from the dashboard's API.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final
from urllib.parse import quote

from ..config import Settings
from .flags import add_setting_flags, settings_from
from .process import CommandFailed, log_to_stderr, say
from .running import answering_gateways, ask, gateway_there
from .terminal import levels_for, style_for, terminal_width
from .top_view import SORTS, TopState, listing, ordered, screen

NAME: Final = "top"
SUMMARY: Final = "watch what the running gateway does"
DESCRIPTION: Final = (
    "Show what the running gateway does, live: the last hour, today's cost, and its\n"
    "turns with the tools they are waiting for. Keys: s sorts, r reverses, j and k\n"
    "choose a turn, c cancels it, q quits.\n"
    "On a pipe, or with --once, print it once."
)
EXAMPLES: Final = """\
examples:
  caretway top
  caretway top --once
  caretway top --json | jq '.turns[].model'
"""
EVERY_S: Final = 1.0
HOUR_EVERY: Final = 5
"""The number of refreshes of the turns for each refresh of the last hour."""
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_DOWN: Final = (b"j", b"\x1b[B", b"\x1bOB")
_UP: Final = (b"k", b"\x1b[A", b"\x1bOA")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="Show it once and exit.")
    parser.add_argument("--json", action="store_true", help="Print the snapshot as JSON and exit.")
    add_setting_flags(parser, ("host",), shown=("port", "config", "data_dir"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("error")
    gateway = find_gateway(settings)
    now, overview = gateway.now(), gateway.overview()
    if arguments.json:
        say([json.dumps(now | {"overview": overview}, indent=2)])
    elif arguments.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(listing(now, overview, style_for(sys.stdout), terminal_width(80), levels_for(sys.stdout)))
    else:
        _watch(gateway, now, overview)
    return 0


class WatchedGateway:
    """A client of one gateway's dashboard API. Blocking."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._key = key

    def now(self) -> dict[str, Any]:
        return self._ask("GET", "now")

    def overview(self) -> dict[str, Any]:
        """The last hour, or why it is unknown if the ledger cannot be read."""
        try:
            return self._ask("GET", "overview")
        except CommandFailed as failure:
            return {"minutes": [], "trouble": failure.message}

    def cancel(self, turn: str) -> str:
        """Cancels a turn and returns the outcome in words."""
        try:
            csrf = self._ask("GET", "session")["csrf"] or ""
            self._ask("DELETE", f"turns/{quote(turn, safe='')}", csrf)
        except CommandFailed as failure:
            return failure.message
        return "cancelled"

    def _ask(self, method: str, path: str, csrf: str = "") -> dict[str, Any]:
        answer = ask(self.url, f"/caretway/v1/{path}", self._key, method=method, csrf=csrf)
        if answer.status not in (0, 200):
            raise CommandFailed(answer.error)
        if not isinstance(answer.body, dict):
            raise CommandFailed(f"the gateway at {self.url} does not answer", "is it still running?")
        return answer.body


def find_gateway(settings: Settings) -> WatchedGateway:
    from ..config.secrets import gateway_keys
    from .client_gateway import usual_url

    behind_tls = ""
    for note in answering_gateways(settings.data_dir):
        if note.url.startswith("https:"):
            behind_tls = behind_tls or note.url
            continue
        if note.passthrough:
            raise CommandFailed("every client of this gateway has an account of its own: there is nothing to watch")
        return WatchedGateway(note.url, note.key)
    url = usual_url(settings)
    if not gateway_there(url, settings.data_dir):
        if behind_tls:
            raise CommandFailed(
                f"the gateway at {behind_tls} speaks TLS, and `caretway top` does not",
                f"open {behind_tls} in a browser",
            )
        raise CommandFailed(f"no gateway is running at {url}", "start one: caretway serve")
    keys = gateway_keys(settings)
    return WatchedGateway(url, keys[0] if keys else "")


# ---- live


def _watch(gateway: WatchedGateway, now: dict[str, Any], overview: dict[str, Any]) -> None:
    state, style, levels = TopState(), style_for(sys.stdout), levels_for(sys.stdout)
    with _raw_terminal() as keyboard:
        for look in count(1):
            width, height = shutil.get_terminal_size((80, 24))
            _draw(screen(now, overview, state, style, width, height, levels))
            keys = _keys(keyboard, EVERY_S)
            for key in keys:
                if key in (b"q", b"Q", b"\x03", b"\x04"):
                    return
                state = _pressed(key, state, now, gateway)
            try:
                now = gateway.now()
                if look % HOUR_EVERY == 0:
                    overview = gateway.overview()
            except CommandFailed as failure:
                state = replace(state, remark=f"{failure.message}; q quits")


def _pressed(key: bytes, state: TopState, now: dict[str, Any], gateway: WatchedGateway) -> TopState:
    if state.asking:
        answer = gateway.cancel(state.chosen) if key in (b"y", b"Y") else ""
        return replace(state, asking=False, remark=answer)
    state = replace(state, remark="")
    turns = [turn["id"] for turn in ordered(now["turns"], state)]
    at = turns.index(state.chosen) if state.chosen in turns else -1
    if key == b"s":
        return replace(state, sort=SORTS[(SORTS.index(state.sort) + 1) % len(SORTS)])
    if key == b"r":
        return replace(state, reverse=not state.reverse)
    if key in _DOWN and turns:
        return replace(state, chosen=turns[min(at + 1, len(turns) - 1)])
    if key in _UP and turns:
        return replace(state, chosen=turns[max(at - 1, 0)])
    if key == b"c":
        return replace(state, asking=True) if at >= 0 else replace(state, remark="choose a turn first: j, k")
    return state


def _draw(lines: list[str]) -> None:
    sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")
    sys.stdout.flush()


def _keys(keyboard: int, patience: float) -> list[bytes]:
    """The pressed keys, if any; an arrow is one key."""
    ready, _, _ = select.select([keyboard], [], [], patience)
    if not ready:
        return []
    data = os.read(keyboard, 64)
    if not data:
        return [b"q"]  # the terminal is gone
    return [data] if data in (*_DOWN, *_UP) else [bytes([one]) for one in data]


@contextmanager
def _raw_terminal() -> Iterator[int]:
    """Delivers keys at once without echo, on the alternate screen. Restores the terminal at the end."""
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        sys.stdout.write(_ENTER)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
