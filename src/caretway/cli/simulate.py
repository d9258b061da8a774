"""`caretway simulate`: the simulated Cursor as a server of its own, for other clients and for bug reports."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .process import CommandFailed, exit_code, listening_failed, log_to_stderr, say, stop_signal
from .process import run as run_loop
from .terminal import Style, pairs, style_for

if TYPE_CHECKING:
    import ssl

NAME: Final = "simulate"
SUMMARY: Final = "run the simulated Cursor as a server"
DESCRIPTION: Final = (
    "Run the simulated Cursor on HTTP/1.1 and HTTP/2 until Ctrl-C. It accepts any\n"
    "credentials, calls no model, and obeys lines in a prompt that begin with `sim:`."
)
EXAMPLES: Final = """\
examples:
  caretway simulate --port 32125
  CURSOR_API_KEY=any caretway serve --backend agent \\
      --agent-url http://127.0.0.1:32125
  curl http://127.0.0.1:32125/_sim/stats
  caretway simulate --tls               HTTPS, with a new certificate
  caretway simulate --switch refresh_at=nowhere    no login is renewed
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="TEXT", help="Address to listen on. [default: 127.0.0.1]"
    )
    parser.add_argument(
        "--port", default=32125, type=_port, metavar="N", help="TCP port; 0 picks a free one. [default: 32125]"
    )
    parser.add_argument(
        "--prefer",
        choices=("h1", "h2"),
        default="h1",
        help="HTTP version to announce to the official SDK. [default: h1]",
    )
    parser.add_argument(
        "--profile",
        choices=("live", "classic"),
        default="live",
        help="How it behaves: as others recorded Cursor, or as clients expect. [default: live]",
    )
    parser.add_argument(
        "--switch",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Change one habit of the profile; may be repeated. docs/like-cursor.md names them.",
    )
    parser.add_argument("--tls", action="store_true", help="Serve HTTPS with a temporary certificate authority.")


def _port(text: str) -> int:
    if not 0 <= (number := int(text)) <= 65535:
        raise argparse.ArgumentTypeError("expected a whole number from 0 to 65535")
    return number


def run(arguments: argparse.Namespace) -> int:
    log_to_stderr("info")
    with ExitStack() as cleanup:
        context: ssl.SSLContext | None = None
        authority: Path | None = None
        if arguments.tls:
            from tempfile import TemporaryDirectory

            from ..simulator.tls import TlsUnavailable, throw_away_ca

            directory = cleanup.enter_context(TemporaryDirectory(prefix="caretway-simulate-"))
            try:
                context, authority = throw_away_ca(Path(directory))
            except TlsUnavailable as missing:
                raise CommandFailed(str(missing)) from missing
        return run_loop(_simulate(arguments, context, authority, style_for(sys.stdout)))


async def _simulate(
    arguments: argparse.Namespace, context: ssl.SSLContext | None, authority: Path | None, style: Style
) -> int:
    from ..simulator import Simulator
    from ..simulator.manners import PROFILES, SWITCHES, flipped

    try:
        manners = flipped(PROFILES[arguments.profile], arguments.switch)
    except ValueError as wrong:
        raise CommandFailed(str(wrong), f"the switches are {', '.join(SWITCHES)}", 2) from wrong
    simulator = Simulator(prefer=arguments.prefer, manners=manners)
    try:
        try:
            port = await simulator.listen(arguments.host, arguments.port, ssl_context=context)
        except OSError as failure:
            raise listening_failed(failure, arguments.host, arguments.port, "caretway simulate") from failure
        say(ready(arguments.host, port, authority, style))
        return exit_code(await stop_signal())
    finally:
        await simulator.aclose()


def ready(host: str, port: int, authority: Path | None, style: Style) -> list[str]:
    """The address comes first: scripts wait for that line."""
    name = f"[{host}]" if ":" in host else host
    url = f"{'http' if authority is None else 'https'}://{name}:{port}"
    trust = "" if authority is None else f" --agent-ca {authority}"
    curl = "curl" if authority is None else f"curl --cacert {authority}"
    rows = [] if authority is None else [("authority", str(authority))]
    rows += [
        ("counters", f"{curl} {url}/_sim/stats"),
        ("gateway", f"CURSOR_API_KEY=any caretway serve --backend agent --agent-url {url}{trust}"),
    ]
    return [f"listening on {style.bold(url)}", *pairs(rows, style)]
