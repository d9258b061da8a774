"""`caretway models`: the models that clients see with the same settings, as a table or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..config import Settings
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import CommandFailed, log_to_stderr, say
from .process import run as run_loop
from .terminal import Style, columns, style_for, terminal_width

if TYPE_CHECKING:
    from ..core.turn import Backend, ModelInfo

NAME: Final = "models"
SUMMARY: Final = "list the models Cursor offers you"
DESCRIPTION: Final = "List the models that clients of `caretway serve` get to see with the same\nsettings."
EXAMPLES: Final = """\
examples:
  caretway models
  caretway models gpt codex
  caretway models --json
  caretway models --backend simulator
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "caretway models [FILTER] [flags]"
    parser.add_argument("filter", nargs="*", metavar="FILTER", help="Only models whose names contain these words.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    add_setting_flags(parser, REACHING_CURSOR)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("warning")
    models = matching(run_loop(_ask(settings)), arguments.filter)
    if arguments.filter and not models:
        raise CommandFailed(f"no model matches {' '.join(arguments.filter)!r}", "see: caretway models")
    say(
        [as_json(models)]
        if arguments.json
        else as_table(models, style_for(sys.stdout), terminal_width() if sys.stdout.isatty() else None)
    )
    return 0


async def _ask(settings: Settings) -> Sequence[ModelInfo]:
    from ..upstream import open_backend

    async with open_backend(settings) as backend:
        return await models_for_clients(backend, settings)


async def models_for_clients(backend: Backend, settings: Settings) -> list[ModelInfo]:
    """The models of `/v1/models` with these settings. Unlike the route, it fails if Cursor does not answer."""
    from ..accounts.catalogue import shown_models
    from ..accounts.resolve import make_table
    from ..processes.tasks import aside

    table = await aside(make_table, await backend.models(), settings.model_aliases)
    return shown_models(table, settings.models, only=settings.models_only)


def matching(models: Sequence[ModelInfo], words: Sequence[str]) -> list[ModelInfo]:
    """The models with all of the words in their id, name or aliases."""

    def known_as(model: ModelInfo) -> str:
        return " ".join((model.id, model.name, *model.aliases)).lower()

    return [model for model in models if all(word.lower() in known_as(model) for word in words)]


def as_json(models: Sequence[ModelInfo]) -> str:
    from ..accounts.names import spelled

    listed = [
        {
            "id": model.id,
            "name": model.name,
            "aliases": list(model.aliases),
            "stands_for": model.stands_for,
            "reasoning": model.reasoning,
            "context_window": model.context_window,
            "max_context_window": model.max_window,
            "images": model.images,
            "parameters": {name: list(values) for name, values in model.parameters},
            "variants": [spelled(model.id, one.parameters, one.max_mode) for one in model.variants],
        }
        for model in models
    ]
    return json.dumps(listed, indent=2, ensure_ascii=False)


def as_table(models: Sequence[ModelInfo], style: Style, width: int | None = None) -> list[str]:
    """A table of the models. `width`: the terminal's; columns that do not fit are left out, the last ones first."""
    if not models:
        return ["no models"]
    twins: dict[str, list[str]] = {}
    for model in models:
        if model.stands_for:
            twins.setdefault(model.stands_for, []).append(model.id)
    from ..accounts.catalogue import each_once

    models = each_once(models)
    rows = [
        (
            model.id,
            model.name,
            "yes" if model.reasoning else "",
            " ".join(f"{name}={'|'.join(values)}" for name, values in model.parameters),
            ", ".join([*model.aliases, *twins.get(model.id, ())]),
        )
        for model in models
    ]
    header = ("id", "name", "reasoning", "parameters", "aliases")
    if width is None:
        return columns(header, rows, style)
    for kept in (5, 4, 3, 2):
        if max(map(len, columns(header[:kept], [row[:kept] for row in rows], Style()))) <= width:
            break
    else:
        kept = 1
    lines = columns(header[:kept], [row[:kept] for row in rows], style)
    hidden = [name for index, name in enumerate(header) if index >= kept and any(row[index] for row in rows)]
    return [*lines, *([style.dim(f"not shown: {', '.join(hidden)}; --json has all")] if hidden else [])]
