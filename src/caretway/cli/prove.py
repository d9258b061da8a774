"""`caretway prove`: tries about thirty cases on the user's own account, and writes a receipt of what it saw."""

from __future__ import annotations

import argparse
import errno
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, cast

from .. import __version__
from ..config import Settings, hosts
from ..config.data_dir import close_data_dir
from ..config.quirks import shown_values
from ..core.errors import GatewayError
from ..storage.private_file import write_file
from .flags import REACHING_CURSOR, add_setting_flags, given, settings_from
from .models import models_for_clients
from .process import CommandFailed, confirmed, log_to_stderr, remark, say
from .process import run as run_loop
from .serve import STANDINGS
from .terminal import Style, pairs, style_for

if TYPE_CHECKING:
    from ..config.settings import BackendName
    from ..core.turn import ModelInfo
    from ..prove.cases import Case
    from ..prove.context import Bench, Changes, ProveContext, Roles
    from ..prove.facts import CaseVerdict
    from ..prove.receipt import Receipt

NAME: Final = "prove"
SUMMARY: Final = "try what is known of Cursor on your own account"
DESCRIPTION: Final = (
    "Try on your own account what is known of Cursor's service: about thirty cases,\n"
    "with prompts that hold nothing but markers. It says what that costs and asks\n"
    "first. It prints a table and writes a receipt: facts and figures, no prompt, no\n"
    "name, no secret. `caretway simulate --like RECEIPT` behaves as the receipt says.\n"
    "Exit code: 0 everything that was tried holds, 1 something differs, 2 nothing was\n"
    "tried."
)
EXAMPLES: Final = """\
examples:
  caretway prove
  caretway prove --backend agent --yes --receipt mine.json
  caretway prove --only text --only "parallel calls"
  caretway simulate --like mine.json
"""
CURSORS_OWN: Final = "Cursor's own address"
SEND_TO: Final = "https://github.com/caretway/caretway/issues/new?template=receipt.yml"
WIDTH: Final = 80
_NAME_COLUMN: Final = 20
_STATE_COLUMN: Final = 9
NO_ACCOUNT: Final = "there is no Cursor account to prove this with"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="Do not ask before it sends prompts.")
    parser.add_argument("--model", default="", metavar="TEXT", help="The model to ask. [default: a cheap one]")
    parser.add_argument(
        "--second-model",
        default="",
        metavar="TEXT",
        help="The model for thinking and images. [default: a cheap one that can do both]",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CASE",
        help="Try this case alone, by its name in the table. May be given several times.",
    )
    parser.add_argument(
        "--other-version",
        default="",
        metavar="TEXT",
        help="If the gateway's own client version is refused, try this one, e.g. sdk-python-1.1.0.",
    )
    parser.add_argument("--receipt", type=Path, metavar="FILE", help="Where to write the receipt. [default: here]")
    add_setting_flags(parser, REACHING_CURSOR)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("error")
    settings = with_account(settings)
    cases = chosen_cases(arguments.only)
    return run_loop(_prove(settings, arguments, cases, style_for(sys.stdout)))


def with_account(settings: Settings) -> Settings:
    """The settings with the backend to prove. Raises CommandFailed with the missing piece."""
    from ..upstream import choose_backend, passes
    from .status import WITH_OUR_CREDENTIALS, account_facts

    if passes(settings):
        raise CommandFailed(
            "in passthrough mode there is no account of yours", "try: caretway prove --auth-mode own", 2
        )
    if settings.backend in ("simulator", "legacy-chat"):
        raise CommandFailed(f"the backend {settings.backend} proves nothing", "use --backend agent, sdk or cli", 2)
    backend = choose_backend(settings)
    if backend not in ("agent", "sdk", "cli"):
        raise _no_account(settings.backend)
    if backend in WITH_OUR_CREDENTIALS and account_facts(settings, backend).credential is None:
        raise _no_account(backend)
    return secluded(replace(settings, backend=cast("BackendName", backend)))


def secluded(settings: Settings) -> Settings:
    """The settings without anything of this machine that a model could be offered."""
    return replace(settings, local_tools="off", workspace=None, workspaces=(), mcp_offer="never")


def _no_account(backend: str) -> CommandFailed:
    login = "caretway login --backend sdk --api-key-stdin" if backend == "sdk" else "caretway login"
    return CommandFailed(NO_ACCOUNT, f"type: {login}, or set CURSOR_API_KEY", 2)


def chosen_cases(names: Sequence[str]) -> tuple[Case, ...]:
    from difflib import get_close_matches

    from ..prove.cases import BY_NAME, CASES

    for name in names:
        if name not in BY_NAME:
            near = get_close_matches(name, BY_NAME, 1, 0.3)
            hint = f'try: --only "{near[0]}"' if near else f"there are: {', '.join(BY_NAME)}"
            raise CommandFailed(f"there is no case {name!r}", hint, 2)
    return tuple(case for case in CASES if not names or case.name in names)


@asynccontextmanager
async def open_bench(settings: Settings, changes: Changes) -> AsyncIterator[Bench]:
    from ..accounts.catalogue import ModelCatalogue
    from ..prove.context import Bench
    from ..prove.watching import WireWatch
    from ..upstream import open_backend

    close_data_dir(settings.data_dir, settings.origin("data_dir"))
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # backends would leave it open to others
    changed: dict[str, Any] = dict(changes)
    watch = WireWatch() if settings.backend == "agent" else None
    async with open_backend(replace(settings, **changed), watch.around if watch else None) as backend:
        models = ModelCatalogue(backend, extra=(), aliases=settings.model_aliases, strict=False, clock=time.monotonic)
        yield Bench(backend, models, watch, _proxy(settings))


def _proxy(settings: Settings) -> str:
    """The kind of the proxy for runs. Its address stays out of the receipt."""
    from ..upstream import dialler

    proxy = dialler(settings).route(hosts(settings).run).proxy
    return proxy.kind if proxy is not None else ""


async def _prove(settings: Settings, arguments: argparse.Namespace, cases: Sequence[Case], style: Style) -> int:
    from ..prove.context import ProveContext, choose_models
    from ..prove.questions import Prover
    from ..prove.receipt import LAST_RECEIPT, write
    from .prove_gateway import gateway_process

    path = arguments.receipt or Path(f"caretway-receipt-{time.strftime('%Y%m%d-%H%M%S')}.json")
    _can_keep(path)
    async with open_bench(settings, {}) as bench:
        listed = await _models(bench, settings)
        await _are_listed(bench, arguments.model, arguments.second_model)
        roles = choose_models(listed, arguments.model, arguments.second_model)
        say(announced(bench.backend.name, bench.backend.standing, roles, cases, style))
        if not (arguments.yes or confirmed("Go on?", "caretway prove --yes")):
            raise CommandFailed("nothing was sent", exit_code=2)
        start_gateway = partial(gateway_process, given(arguments) | {"backend": settings.backend})
        context = ProveContext(
            partial(open_bench, settings),
            bench,
            roles,
            start_gateway,
            arguments.other_version,
            shown_values(settings.agent_quirks),
        )
        began = time.monotonic()
        verdicts, timings = await _try_all(Prover(context).try_case, cases, style)
        receipt = await _receipt(settings, bench, context, verdicts, timings, time.monotonic() - began)
    service = receipt.about["service"]
    _keep(path, write(receipt))
    _keep_copy(settings.data_dir / LAST_RECEIPT, write(receipt))
    say(["", summary(verdicts, style), f"receipt: {path}", *how_to_send(service)])
    states = {verdict.state for verdict in verdicts.values()}
    return 1 if "differs" in states else 0 if "holds" in states else 2


async def _models(bench: Bench, settings: Settings) -> list[ModelInfo]:
    """The account's models. Raises CommandFailed if the user is not signed in or the backend does not answer."""

    status = await bench.backend.status()
    if not status.signed_in:
        raise CommandFailed(status.detail or NO_ACCOUNT, exit_code=2)
    try:
        return await models_for_clients(bench.backend, settings)
    except GatewayError as failure:
        raise CommandFailed(str(failure), exit_code=2) from failure


async def _are_listed(bench: Bench, *names: str) -> None:
    """Raises CommandFailed for an unlisted name: a typing error would look like a refusal by the service."""
    for name in filter(None, names):
        if await bench.models.find(name) is None:
            raise CommandFailed(f"your account lists no model {name!r}", "see: caretway models", 2)


async def try_cases(settings: Settings, cases: Sequence[Case]) -> dict[str, CaseVerdict]:
    """Tries cases without output, for `caretway doctor --live`."""
    from ..prove.context import ProveContext, choose_models
    from ..prove.questions import Prover

    async with open_bench(settings, {}) as bench:
        roles = choose_models(await _models(bench, settings))
        prover = Prover(ProveContext(partial(open_bench, settings), bench, roles))
        return {case.name: await prover.try_case(case) for case in cases}


def announced(backend: str, standing: str, roles: Roles, cases: Sequence[Case], style: Style) -> list[str]:
    from ..prove.cases import cost

    here = [case for case in cases if backend in case.backends]
    runs = cost(here)
    others = ", ".join(dict.fromkeys(filter(None, (roles.second, roles.tiered))))
    rows = [
        ("backend", f"{backend} ({STANDINGS[standing]})"),
        ("model", roles.cheap),
        ("others", f"{others}, for what that one cannot show" if others else ""),
        ("cost", f"up to {runs} short run{'s' * (runs != 1)} on your account"),
    ]
    rows = [(label, value) for label, value in rows if value]
    return pairs(rows, style, indent="")


async def _try_all(
    try_case: Callable[[Case], Any], cases: Sequence[Case], style: Style
) -> tuple[dict[str, CaseVerdict], dict[str, int]]:
    """Prints each row when it is known; a terminal shows the running case below."""
    verdicts: dict[str, CaseVerdict] = {}
    timings: dict[str, int] = {}
    say([""])
    for number, case in enumerate(cases, 1):
        if style.colour:
            print(f"{number}/{len(cases)} {case.name} ...", end="", flush=True)
        began = time.monotonic()
        verdicts[case.name] = verdict = await try_case(case)
        timings[case.name] = round((time.monotonic() - began) * 1000)
        if style.colour:
            print("\r\x1b[K", end="")
        say(row(case.name, verdict, style))
    return verdicts, timings


def row(name: str, verdict: CaseVerdict, style: Style) -> list[str]:
    """A line of the table, folded so that it fits 80 columns."""
    paint = {"holds": style.good, "differs": style.bad, "not tried": style.dim}[verdict.state]
    indent = _STATE_COLUMN + _NAME_COLUMN + 4
    says = wrap(verdict.says, WIDTH - indent, break_on_hyphens=False)
    helps = [style.bold(line) for line in wrap(verdict.helps, WIDTH - indent, break_on_hyphens=False)]
    head = f"{paint(verdict.state.ljust(_STATE_COLUMN))}  {name.ljust(_NAME_COLUMN)}  "
    first, *rest = [*says, *helps]
    return [head + first, *(" " * indent + line for line in rest)]


def summary(verdicts: Mapping[str, CaseVerdict], style: Style) -> str:
    counts = {
        state: sum(one.state == state for one in verdicts.values()) for state in ("holds", "differs", "not tried")
    }
    words = f"{counts['holds']} hold, {counts['differs']} differ, {counts['not tried']} not tried"
    return (style.bad if counts["differs"] else style.good)(words)


def how_to_send(service: str) -> list[str]:
    """How to send the receipt. Only a receipt from Cursor's own address is worth sending."""
    if service != CURSORS_OWN:
        return [f"it is of {service}: there is no need to send it"]
    return [
        "it has no prompt, no name and no secret. To help others, attach that file to:",
        f"  {SEND_TO}",
    ]


async def _receipt(
    settings: Settings,
    bench: Bench,
    context: ProveContext,
    verdicts: Mapping[str, CaseVerdict],
    timings: Mapping[str, int],
    seconds: float,
) -> Receipt:
    from caretway_sim.catalogue import is_shipped

    from ..prove.cases import BY_NAME, cost
    from ..prove.receipt import Receipt

    known = hosts(settings)
    here = [BY_NAME[name] for name in verdicts if settings.backend in BY_NAME[name].backends]
    about = {
        "caretway": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}".lower(),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "backend": settings.backend,
        "service": "another address" if known.stand_in or known.run_fixed else CURSORS_OWN,
        "model": await _listed(bench, context.roles.cheap),
        "second model": await _listed(bench, context.roles.second),
        "model with rungs": await _listed(bench, context.roles.tiered),
    }
    if bench.watch is not None:
        named = context.changes.get("agent_client_version") or settings.agent_client_version
        about["client version"] = "our own" if not named else str(named) if is_shipped(str(named)) else "another"
        about["transport"] = bench.watch.transport.name if bench.watch.transport else ""
    if settings.backend == "sdk":
        from importlib.metadata import version

        about["cursor-sdk"] = version("cursor-sdk")
    return Receipt(about, context.facts, verdicts, cost(here), round(seconds), timings)


async def _listed(bench: Bench, name: str) -> str:
    """The id in Cursor's list, because the receipt must not contain what the user typed."""
    if not name:
        return "none"
    found = await bench.models.find(name)
    return found.id if found is not None else "not listed"


def _can_keep(path: Path) -> None:
    """Checks the path before any run is spent. Raises CommandFailed."""
    there = path.exists()
    if path.is_dir():
        raise _cannot_keep(path, os.strerror(errno.EISDIR))
    if not there and not path.parent.is_dir():
        raise _cannot_keep(path, os.strerror(errno.ENOENT))
    if not os.access(path if there else path.parent, os.W_OK):
        raise _cannot_keep(path, os.strerror(errno.EACCES))


def _keep(path: Path, text: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as failure:
        raise _cannot_keep(path, failure.strerror) from failure


def _keep_copy(path: Path, text: str) -> None:
    """Writes a copy for the dashboard, after the requested file."""
    try:
        write_file(path, text)
    except OSError as failure:
        remark([f"{path} cannot be written: {failure.strerror}"])


def _cannot_keep(path: Path, why: str | None) -> CommandFailed:
    return CommandFailed(f"cannot write {path}: {why}", "name another file: --receipt FILE", 2)
