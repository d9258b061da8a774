"""A hook as a setting: a command (split into words, never given to a shell) or an http or https address; and what it is
told, as JSON. Pure.
"""

import shlex
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

KEPT: Final = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "DBUS_SESSION_BUS_ADDRESS")
"""What a command gets of the environment; keys and tokens may be in the rest."""


class CommandHook(Struct, frozen=True):
    argv: tuple[str, ...]


class WebHook(Struct, frozen=True):
    origin: str
    path: str


def read_hook(text: str) -> CommandHook | WebHook:
    """Raises ValueError; the text is not repeated, because an address may hold a secret."""
    if text.lower().startswith(("http://", "https://")):
        parts = urlsplit(text)
        if not parts.hostname or parts.username is not None or (parts.port is not None and not parts.port):
            raise ValueError("the address has no host, or a user in it")
        path = parts.path or "/"
        return WebHook(f"{parts.scheme}://{parts.netloc}", f"{path}?{parts.query}" if parts.query else path)
    argv = tuple(shlex.split(text))
    if not argv:
        raise ValueError("there is no command in it")
    return CommandHook(argv)


def message(event: str, sentence: str, at: float) -> bytes:
    return msgspec.json.encode({"event": event, "message": sentence, "at": round(at), "from": "caretway"})


def command_environment(environment: Mapping[str, str], event: str) -> dict[str, str]:
    return {name: environment[name] for name in KEPT if name in environment} | {"CARETWAY_EVENT": event}
