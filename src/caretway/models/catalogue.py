"""The model list, cached, and the way from a client's model name to Cursor's.

Live discovery is the truth; a list that cannot be refreshed is served stale, because listing models needs no login.
Aliases are an additive layer, and unknown names pass through unless `strict` forbids it.
"""

import asyncio
import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.request import TurnRequest
from ..core.turn import Backend, ModelInfo
from .aliases import known_alias
from .effort import fit_effort

log = logging.getLogger(__name__)

FRESH_S: Final = 300.0
RETRY_S: Final = 10.0
PREFIXES: Final = ("cursor/", "caretway/", "openai/", "anthropic/")
"""What routers put in front of a model's name."""
MAX_MEANT: Final = 256
MAX_MEANT_CHARS: Final = 128
"""Names come from clients: the last so many are remembered, and none that is longer."""


AUTOMATIC_CHOICE: Final = ModelInfo("default", "Auto")
"""Every account has it; it can be asked for when the list itself cannot."""


class ModelCatalogue:
    def __init__(
        self,
        backend: Backend,
        *,
        extra: Sequence[str],
        aliases: Mapping[str, str],
        strict: bool,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._extra = tuple(extra)
        self._aliases = dict(aliases)
        self._strict = strict
        self._clock = clock
        self._lock = asyncio.Lock()
        self._models: dict[str, ModelInfo] = {}
        self._meant: dict[str, str] = {}
        """What clients' own names were found to mean, for as long as the list is the same."""
        self._known_until = 0.0

    async def models(self) -> list[ModelInfo]:
        """Never fails: what is known, at worst what the settings name, or Cursor's automatic choice."""
        async with self._lock:  # one refresh at a time; the others wait for its outcome
            if self._clock() >= self._known_until:
                await self._refresh()
        return list(self._models.values()) or [ModelInfo(name, name) for name in self._extra] or [AUTOMATIC_CHOICE]

    async def _refresh(self) -> None:
        try:
            found = await self._backend.models()
        except GatewayError as error:
            log.warning("the model list could not be fetched: %s", error)
            self._known_until = self._clock() + RETRY_S
            return
        self._models = {model.id: model for model in found}
        for name in self._extra:
            self._models.setdefault(name, ModelInfo(name, name))
        self._meant.clear()
        self._known_until = self._clock() + FRESH_S

    async def find(self, name: str) -> ModelInfo | None:
        known = {model.id: model for model in await self.models()}
        return known.get(name) or known.get(self._upstream_name(name, known))

    async def fit(self, request: TurnRequest) -> TurnRequest:
        """The request with Cursor's id for its model, and with the parameters that this model has."""
        if not self._models:
            await self.models()
        name = request.model
        if name not in self._models:
            name = await self._resolve(name)
        parameters: tuple[tuple[str, str], ...] = ()
        ignored = request.ignored
        if request.effort is not None:
            effort = fit_effort(request.effort, self._models[name].parameters if name in self._models else ())
            if effort is None:
                ignored = (*ignored, "reasoning_effort")
            else:
                parameters = (effort,)
        if (name, parameters, ignored) == (request.model, request.parameters, request.ignored):
            return request
        return replace(request, model=name, parameters=parameters, ignored=ignored)

    async def _resolve(self, name: str) -> str:
        resolved = self._meaning(name)
        if self._strict and resolved not in {model.id for model in await self.models()}:
            near = difflib.get_close_matches(resolved, self._models, n=3, cutoff=0.4)
            raise GatewayError(
                ErrorKind.MODEL_UNKNOWN,
                f"There is no model `{name}`.",
                hint=f"Did you mean {', '.join(near)}?" if near else "See /v1/models.",
                param="model",
            )
        return resolved

    def _meaning(self, name: str) -> str:
        """Clients ask for the same name each time, and finding out takes a look at every model."""
        found = self._meant.get(name)
        if found is None:
            found = self._upstream_name(name, self._models)
            if len(name) <= MAX_MEANT_CHARS:
                self._meant[name] = found
                if len(self._meant) > MAX_MEANT:
                    del self._meant[next(iter(self._meant))]
        return found

    def _upstream_name(self, name: str, known: Mapping[str, ModelInfo]) -> str:
        if name in self._aliases:
            return self._aliases[name]
        for prefix in PREFIXES:
            if name.startswith(prefix) and name != prefix:
                return self._upstream_name(name.removeprefix(prefix), known)
        if name not in known:
            for model in known.values():
                if name in model.aliases:
                    return model.id
            return known_alias(name, list(known)) or name
        return name
