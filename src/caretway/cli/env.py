"""`caretway env`: prints the variables that configure programs for the gateway, as lines for a shell."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from typing import Final

from ..config import Settings
from .clients.values import NO_KEY
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import remark, say

NAME: Final = "env"
SUMMARY: Final = "print variables that point programs at the gateway"
USAGE: Final = "caretway env [openai|anthropic] [flags]"
DESCRIPTION: Final = (
    "Print the variables for programs on OpenAI's or Anthropic's SDKs, of the gateway\n"
    "that runs or, if none does, of where `caretway serve` would listen. With the\n"
    "gateway's key, where it requires one."
)
EXAMPLES: Final = """\
examples:
  eval "$(caretway env)"
  caretway env anthropic
  caretway env --shell fish | source
  caretway env --shell powershell | Out-String | Invoke-Expression
"""

VARIABLES: Final[Mapping[str, Callable[[str, str], Mapping[str, str]]]] = {
    "openai": lambda url, key: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key},
    "anthropic": lambda url, key: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": key},
}


def _powershell(name: str, value: str) -> str:
    quoted = value.replace("'", "''")
    return f"$env:{name} = '{quoted}'"


def _fish(name: str, value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"set -gx {name} '{quoted}'"


SHELLS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "sh": lambda name, value: f"export {name}={shlex.quote(value)}",
    "fish": _fish,
    "powershell": _powershell,
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("api", nargs="?", choices=tuple(VARIABLES), help="Only those of one SDK.")
    parser.add_argument("--shell", choices=tuple(SHELLS), default="sh", help="For which shell. [default: sh]")
    add_setting_flags(parser, REACHING_CURSOR)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    url, key = _address(settings)
    say(lines(arguments.api, url, key, arguments.shell))
    return 0


def lines(api: str | None, url: str, key: str, shell: str) -> list[str]:
    wanted = [api] if api else list(VARIABLES)
    return [SHELLS[shell](name, value) for one in wanted for name, value in VARIABLES[one](url, key).items()]


def _address(settings: Settings) -> tuple[str, str]:
    from ..config.secrets import gateway_keys
    from .client_gateway import requires_key, running_gateway, usual_url

    found = running_gateway(settings)
    if found is not None:
        return found.url, found.key
    remark(["no gateway is running; start it: caretway serve"])
    keys = gateway_keys(settings)
    if not keys and requires_key(settings):
        remark([f"it asks for a key: put one in place of {NO_KEY}; make one: caretway key new --name NAME"])
    return usual_url(settings), keys[0] if keys else NO_KEY
