"""Cursor's hosts: the web site for signing in, the API, and the host that runs are sent to. Pure.

Each has a setting. `agent_url` is the short form for a stand-in, which is all three at once; a setting of a host's own
wins over it.
"""

from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from .settings import Settings

CURSOR_SITE: Final = "https://cursor.com"
CURSOR_API: Final = "https://api2.cursor.sh"
CURSOR_DOMAINS: Final = ("cursor.sh", "cursor.com")


class Hosts(Struct, frozen=True):
    login: str
    """The web site that people sign in at."""
    api: str
    """Tokens, model lists, account. Sign-ins are stored under its address."""
    run: str
    """Runs; the same as `api`, unless the settings say otherwise."""
    stand_in: bool
    """The API is not Cursor's own."""
    run_fixed: bool
    """The settings name a host for runs alone: it is used whatever Cursor says."""

    @property
    def answers_elsewhere(self) -> bool:
        """Runs are not answered by Cursor, or for an account that is not Cursor's."""
        return self.stand_in or not _is_cursors(self.run)


def hosts(settings: Settings) -> Hosts:
    short = settings.origin("agent_url") != "default"
    api = settings.api_url or settings.agent_url
    stand_in = api != CURSOR_API
    login = api if stand_in else CURSOR_SITE
    run = settings.run_url or (settings.agent_url if short else api)
    return Hosts(login, api, run, stand_in=stand_in, run_fixed=run != api)


def _is_cursors(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith(tuple(f".{name}" for name in CURSOR_DOMAINS))
