"""`caretway open`: opens the running gateway's dashboard in a browser."""

import argparse
from contextlib import suppress
from typing import Final

from ..config import Settings, has_desktop
from .flags import add_setting_flags, settings_from
from .process import CommandFailed, say
from .running import NOT_RUNNING, START_ONE, answering_gateways

NAME: Final = "open"
SUMMARY: Final = "open the dashboard in a browser"
DESCRIPTION: Final = (
    "Open the dashboard of the gateway that is running. Without a desktop, as over\n"
    "ssh, it prints the address. Exit code: 0 found, 1 no gateway runs."
)
EXAMPLES: Final = """\
examples:
  caretway open
  caretway open --print
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--print", action="store_true", dest="only_print", help="Print the address only.")
    add_setting_flags(parser, (), shown=("config", "data_dir"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    url = dashboard_url(settings)
    say([url])
    if not arguments.only_print and has_desktop():
        import webbrowser

        with suppress(webbrowser.Error):  # the address is on the screen
            webbrowser.open(url)
    return 0


def dashboard_url(settings: Settings) -> str:
    """The address of the newest running gateway with a dashboard. Raises CommandFailed if there is none."""
    found = list(answering_gateways(settings.data_dir))
    if not found:
        raise CommandFailed(NOT_RUNNING, START_ONE)
    if all(note.launched for note in found):
        raise CommandFailed(f"{found[0].url} serves the client it was started for, without a dashboard", START_ONE)
    for note in found:
        if not (note.passthrough or note.launched):
            return f"{note.url}/"
    raise CommandFailed("the gateway that runs has no dashboard, because its clients bring their own accounts")
