"""Cursor's hosts: the web site for signing in, the API, and the host for runs. Pure.

Each host has a setting. `agent_url` sets all three for a stand-in; a host's own setting wins over it.
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
    """The web site for signing in."""
    api: str
    """The host for tokens, model lists and account. Sign-ins are stored under its address."""
    run: str
    """The host for runs; equal to `api` unless the settings differ."""
    stand_in: bool
    """The API is not Cursor's own."""
    run_fixed: bool
    """The settings name a host for runs, so it is used regardless of Cursor's advice."""

    @property
    def answers_elsewhere(self) -> bool:
        """Whether runs are answered by another service, or belong to another service's account."""
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
