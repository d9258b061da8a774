"""`caretway simulate`: runs the simulated Cursor as a server: profile, HTTP version, TLS with a temporary certificate
authority.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .flags import one_of
from .process import CommandFailed, exit_code, listening_failed, log_to_stderr, remark, say, shown_width, stop_signal
from .process import run as run_loop
from .shell_lines import command
from .terminal import Style, pairs, style_for

if TYPE_CHECKING:
    import ssl

    from caretway_sim.manners import Manners

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
  caretway simulate --tls --proxy 32126 --switch refuses_direct=true
                                        reached through a proxy only
  caretway simulate --like mine.json    as a receipt of `caretway prove` says
"""

_LABELS: Final = 13
"""Columns before the values: the longest label and its padding."""
_LEAST_ROOM: Final = 20
_PROXY_FAULTS: Final = ("silent", "closes", "closes_later", "garbage", "forbids", "negotiate")


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
    behaviour = parser.add_mutually_exclusive_group()
    behaviour.add_argument(
        "--profile",
        choices=("live", "classic"),
        default="live",
        help="How it behaves: as others recorded Cursor, or as clients expect. [default: live]",
    )
    behaviour.add_argument(
        "--like", type=Path, metavar="RECEIPT", help="Behave as a receipt of `caretway prove` says Cursor does."
    )
    parser.add_argument(
        "--switch",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Change one habit of the profile; may be repeated. src/caretway_sim/README.md names them.",
    )
    parser.add_argument(
        "--proxy",
        type=_proxy,
        metavar="[USER:PASSWORD@]PORT",
        help="Also run a proxy (HTTP CONNECT and SOCKS5) on this port; it knows the simulator as cursor.test.",
    )
    parser.add_argument(
        "--proxy-fault",
        choices=_PROXY_FAULTS,
        metavar="FAULT",
        default="",
        help=f"What the proxy does instead of its work: {one_of(_PROXY_FAULTS)}.",
    )
    parser.add_argument("--tls", action="store_true", help="Serve HTTPS with a temporary certificate authority.")


def _port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("expected a whole number from 0 to 65535")
    return number


def _proxy(text: str) -> tuple[str, str, int]:
    """Parses a proxy's user, password and port."""
    who, _, port = text.rpartition("@")
    user, _, password = who.partition(":")
    return user, password, _port(port)


def run(arguments: argparse.Namespace) -> int:
    log_to_stderr("info")
    manners = _manners(arguments)
    with ExitStack() as cleanup:
        context: ssl.SSLContext | None = None
        authority: Path | None = None
        if arguments.tls:
            from tempfile import TemporaryDirectory

            from caretway_sim.proxy import TlsUnavailable, throw_away_ca

            directory = cleanup.enter_context(TemporaryDirectory(prefix="caretway-simulate-"))
            try:
                context, authority = throw_away_ca(Path(directory))
            except TlsUnavailable as missing:
                raise CommandFailed(str(missing)) from missing
        return run_loop(_simulate(arguments, manners, context, authority, style_for(sys.stdout)))


def _manners(arguments: argparse.Namespace) -> Manners:
    from caretway_sim.manners import PROFILES, SWITCHES, flipped

    profile = PROFILES[arguments.profile] if arguments.like is None else _like(arguments.like)
    try:
        return flipped(profile, arguments.switch)
    except ValueError as wrong:
        raise CommandFailed(str(wrong), f"the switches are {', '.join(SWITCHES)}", 2) from wrong


def _like(path: Path) -> Manners:
    from ..prove.likeness import differences, like
    from ..prove.receipt import MAX_BYTES, BadReceipt, read_facts

    try:
        with path.open("rb") as file:
            manners = like(read_facts(file.read(MAX_BYTES + 1)))
    except OSError as failure:
        raise CommandFailed(f"cannot read {path}: {failure.strerror}", exit_code=2) from failure
    except BadReceipt as wrong:
        hint = "a receipt is what `caretway prove` writes"
        raise CommandFailed(f"cannot use {path}: {wrong}", hint, 2) from wrong
    apart = ", ".join(differences(manners))
    remark([f"as {path} says; not as in the profile live: {apart or 'nothing'}"])
    return manners


async def _simulate(
    arguments: argparse.Namespace,
    manners: Manners,
    context: ssl.SSLContext | None,
    authority: Path | None,
    style: Style,
) -> int:
    from caretway_sim import Simulator
    from caretway_sim.proxy import SimProxy

    if manners.refuses_direct and arguments.proxy is None:
        raise CommandFailed("refuses_direct without a proxy serves no one", "add --proxy PORT", 2)
    user, password, proxy_port = arguments.proxy or ("", "", 0)
    proxy = SimProxy(user, password, arguments.proxy_fault)
    simulator = Simulator(prefer=arguments.prefer, manners=manners, home=proxy.comes_from_here)
    try:
        try:
            port = await simulator.listen(arguments.host, arguments.port, ssl_context=context)
        except OSError as failure:
            raise listening_failed(failure, arguments.host, arguments.port, "caretway simulate") from failure
        through = ""
        if arguments.proxy is not None:
            try:
                proxy_port = await proxy.listen("127.0.0.1", proxy_port)
            except OSError as failure:
                why = failure.strerror or str(failure)
                raise CommandFailed(
                    f"the proxy cannot listen on port {proxy_port}: {why}", "try: --proxy 0"
                ) from failure
            through = _through(user, password, proxy_port)
        say(ready(arguments.host, port, authority, style, through, shown_width(sys.stdout)))
        return exit_code(await stop_signal())
    finally:
        await proxy.aclose()
        await simulator.aclose()


def _through(user: str, password: str, port: int) -> str:
    """The proxy's address as variables contain it."""
    from urllib.parse import quote

    return f"{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"


def ready(host: str, port: int, authority: Path | None, style: Style, proxy: str = "", width: int = 0) -> list[str]:
    """The lines after the start. The address is first: scripts wait for it. `proxy`: with user and password."""
    name = f"[{host}]" if ":" in host else host
    scheme = "http" if authority is None else "https"
    url = f"{scheme}://{name}:{port}"
    trust = "" if authority is None else f" --agent-ca {authority}"
    curl = "curl" if authority is None else f"curl --cacert {authority}"
    rows = [] if authority is None else [("authority", str(authority))]
    reached, way = url, ""
    if proxy:
        from caretway_sim.proxy import ONLY_THERE

        reached, way = f"{scheme}://{ONLY_THERE}:{port}", f"{scheme.upper()}_PROXY=http://{proxy} "
        curl = f"{curl} --proxy http://{proxy}"
        rows.append(("proxy", f"http://{proxy} or socks5h://{proxy}"))
    typed = {
        "counters": f"{curl} {reached}/_sim/stats",
        "gateway": f"{way}CURSOR_API_KEY=any caretway serve --backend agent --agent-url {reached}{trust}",
    }
    room = max(_LEAST_ROOM, width - _LABELS) if width else 0
    for label, line in typed.items():
        first, *rest = command(line.split(), room)
        rows += [(label, first), *(("", more) for more in rest)]
    return [f"listening on {style.bold(url)}", *pairs(rows, style)]
