"""cursor-agent's list of models: parsed from its text, kept on disk, served stale while a newer one is fetched; only
`auto` when there is none; a row for each alias.

Listing needs no login.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...core.errors import GatewayError
from ...core.turn import ModelInfo
from ...storage.private_file import write_file
from ...tasks import spawn
from .faults import plain
from .model_options import Parameters

log = logging.getLogger(__name__)

FALLBACK: Final = (ModelInfo("auto", "Auto"),)
_ROW: Final = re.compile(r"^\s*[*•]?\s*([A-Za-z0-9][\w.:/\-\[\]=,]*)\s+[-–]\s+(\S.*?)\s*$")
_MARKS: Final = re.compile(r"\s*\((?:current|default)\)", re.IGNORECASE)


def read_models(said: str) -> tuple[ModelInfo, ...]:
    """Lines such as `id - Display Name  (current) (default)`; everything else is decoration."""
    found: dict[str, ModelInfo] = {}
    for line in plain(said).splitlines():
        if (row := _ROW.match(line)) is not None:
            name = _MARKS.sub("", row[2]).strip()
            found.setdefault(row[1], ModelInfo(row[1], name, reasoning="thinking" in row[1]))
    return tuple(found.values())


def with_aliases(models: Sequence[ModelInfo], aliases: Mapping[str, str]) -> tuple[ModelInfo, ...]:
    """The list and a row for each alias that leads somewhere and is not itself a model."""
    ids = {model.id for model in models}
    rows = (
        ModelInfo(alias, f"{alias} ({target})", stands_for=target)
        for alias, target in aliases.items()
        if alias not in ids and (target in ids or target == "auto")
    )
    return (*models, *rows)


class ModelList:
    def __init__(
        self,
        file: Path,
        fetch: Callable[[], Awaitable[Sequence[ModelInfo]]],
        clock: Callable[[], float],
        *,
        fresh: float,
    ) -> None:
        self._file = file
        self._fetch = fetch
        self._clock = clock
        self._fresh = fresh
        self._models: tuple[ModelInfo, ...] = ()
        self._fetched_at = 0.0
        self._loaded = self._fetching = False

    async def models(self) -> tuple[ModelInfo, ...]:
        if not self._loaded:
            self._loaded = True
            self._load()
        if not self._models:
            await self._refresh()
        elif not 0 <= self._clock() - self._fetched_at < self._fresh and not self._fetching:
            self._fetching = True
            spawn(self._refresh(), "cursor-agent-models")
        return self._models or FALLBACK

    @property
    def known(self) -> frozenset[str]:
        return frozenset(model.id for model in self._models)

    def learn(self, model: str, parameters: Parameters) -> None:
        """What can be set of a model is told only by a session that has it."""
        if any(one.id == model and one.parameters != parameters for one in self._models):
            rows = (replace(one, parameters=parameters) if one.id == model else one for one in self._models)
            self._models = tuple(rows)
            self._save()

    async def _refresh(self) -> None:
        self._fetching = True
        try:
            found = tuple(await self._fetch())
        except (GatewayError, TimeoutError) as failure:
            log.warning("cursor-agent did not list its models: %s", str(failure) or "no answer in time")
            return
        finally:
            self._fetching = False
        if found:
            known = {one.id: one.parameters for one in self._models}
            found = tuple(replace(one, parameters=known.get(one.id, ())) for one in found)
            self._models, self._fetched_at = found, self._clock()
            self._save()

    def _load(self) -> None:
        try:
            kept: Any = msgspec.json.decode(self._file.read_bytes())
            self._models = tuple(_row(row) for row in kept["models"])
            self._fetched_at = float(kept["fetched_at"])
        except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError):
            self._models = ()  # none yet, or one that another version wrote

    def _save(self) -> None:
        rows = [
            {"id": one.id, "name": one.name, "reasoning": one.reasoning, "parameters": one.parameters}
            for one in self._models
        ]
        try:
            write_file(self._file, msgspec.json.encode({"fetched_at": self._fetched_at, "models": rows}), durable=False)
        except OSError as failure:
            log.warning("the model list cannot be kept in %s: %s", self._file, failure)


def _row(kept: Mapping[str, Any]) -> ModelInfo:
    parameters = tuple((key, tuple(values)) for key, values in kept.get("parameters", ()))
    return ModelInfo(kept["id"], kept["name"], reasoning=kept["reasoning"], parameters=parameters)
