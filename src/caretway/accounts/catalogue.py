"""The cached model list, the request fitted to it (strict or unknown names, `models_only`, parameters, the choice
reported to the client), and the models shown to clients.

The list is refreshed every 5 minutes. If that fails, the old list is served, because listing models needs no login; the
list is never empty. `resolve` interprets names and chooses variants; this module puts them into the request.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.request import ModelChoice, ModelFallback, TurnRequest
from ..core.turn import Backend, ModelInfo
from ..processes.tasks import aside
from .names import NO_WISH, THOUGHT_IDS, Wish, effort_of, read_wishes, spelled, split_suffix
from .resolve import THINKING, Meaning, ModelTable, can_think, choose_variant, default_variant, make_table, resolve

log = logging.getLogger(__name__)

FRESH_S: Final = 300.0
RETRY_S: Final = 10.0
MAX_MEANT: Final = 256
MAX_MEANT_CHARS: Final = 128
"""The longest name, chosen by a client, whose resolution is remembered."""
MAX_NAME_CHARS: Final = 1024
"""The maximum length of a model's name with its parameters, which goes into a header and the log."""
AUTOMATIC_CHOICE: Final = ModelInfo("default", "Auto")
"""Exists for every account; used if the list cannot be fetched."""
_NOTHING: Final = ModelTable({})
_THINKING_WORD: Final = re.compile(r"[^a-z0-9]thinking(?![a-z0-9])", re.IGNORECASE)


class Fitted(NamedTuple):
    """The model and parameters chosen for a request."""

    model: str
    parameters: tuple[tuple[str, str], ...]
    choice: ModelChoice
    effort_met: bool
    """The requested effort has an effect."""
    then: tuple[ModelFallback, ...] = ()


class ModelCatalogue:
    def __init__(
        self,
        backend: Backend,
        *,
        extra: Sequence[str],
        aliases: Mapping[str, str],
        strict: bool,
        clock: Callable[[], float],
        only: bool = False,
        usual: Mapping[str, str] | None = None,
    ) -> None:
        """`extra`: more names to list; with `only` no other names are listed. `usual`: parameters for requests without
        a choice."""
        self._backend = backend
        self._extra = tuple(extra)
        self._aliases = dict(aliases)
        self._strict = strict
        self._only = only and bool(self._extra)
        self._usual = read_wishes(usual or {})
        self._clock = clock
        self._lock = asyncio.Lock()
        self._table = _NOTHING
        self._found: list[ModelInfo] = []
        self._listed: list[ModelInfo] = []
        self._allowed: frozenset[str] = frozenset()
        """With `only`: the ids of the models that the listed names resolve to."""
        self._fitted: dict[tuple[str, str | None, bool | None], Fitted] = {}
        """Requested model -> result, for the current list. Clients repeat their requests, and resolving one looks at
        every model."""
        self._known_until = 0.0

    @property
    def aliases(self) -> Mapping[str, str]:
        return self._aliases

    @property
    def strict(self) -> bool:
        return self._strict

    async def change_aliases(self, aliases: Mapping[str, str]) -> None:
        """Applies other aliases from the next request on and fetches the list again."""
        async with self._lock:
            self._aliases, self._found, self._known_until = dict(aliases), [], 0.0
            self._fitted.clear()
        await self.models()

    async def models(self) -> list[ModelInfo]:
        """Never fails: the known list, else the models of the settings, else Cursor's automatic choice."""
        async with self._lock:  # one refresh at a time; concurrent calls wait for its outcome
            if self._clock() >= self._known_until:
                await self._refresh()
        return list(self._listed) or [ModelInfo(name, name) for name in self._extra] or [AUTOMATIC_CHOICE]

    async def _refresh(self) -> None:
        try:
            found = await self._backend.models()
        except GatewayError as error:
            log.warning("the model list could not be fetched: %s", error)
            self._known_until = self._clock() + RETRY_S
            return
        if list(found) != self._found:  # usually the list is the same
            self._table = await aside(_table, tuple(found), tuple(self._aliases.items()))
            self._found = list(found)
            self._listed = shown_models(self._table, self._extra, only=self._only)
            if self._only:
                meant = [resolve(row.id, self._table) for row in self._listed if row.id not in self._aliases]
                plain = [one for one in meant if one.exact and one.wish == NO_WISH]
                self._allowed = frozenset(one.model.id for one in plain if one.model is not None)
            self._fitted.clear()
        self._known_until = self._clock() + FRESH_S

    async def find(self, name: str) -> ModelInfo | None:
        listed = {model.id: model for model in await self.models()}
        if name in listed:
            return listed[name]
        meant = resolve(name, self._table)
        return None if self._refusal(name, meant) is not None else meant.model

    async def fit(self, request: TurnRequest) -> TurnRequest:
        """The request with Cursor's id for its model and the parameters of one variant."""
        if not self._table.models:
            await self.models()
        model, parameters, choice, effort_met, then = self._known_fit(request.model, request.effort, request.thinking)
        for name in request.else_models:
            other = self._known_fit(name, request.effort, request.thinking)
            then += (ModelFallback(*other[:3], asked=name), *(replace(each, asked=name) for each in other.then))
        ignored = request.ignored if effort_met else (*request.ignored, "reasoning_effort")
        return replace(request, model=model, parameters=parameters, choice=choice, fallbacks=then, ignored=ignored)

    def _known_fit(self, name: str, effort: str | None, thinking: bool | None) -> Fitted:
        if len(name) > MAX_NAME_CHARS:
            raise self._unknown(name, self._table.models)
        asked = name, effort, thinking
        fitted = self._fitted.get(asked)
        if fitted is None:
            fitted = self._fit(*asked)
            if len(name) <= MAX_MEANT_CHARS and len(effort or "") <= MAX_MEANT_CHARS:
                self._fitted[asked] = fitted
                if len(self._fitted) > MAX_MEANT:
                    del self._fitted[next(iter(self._fitted))]
        return fitted

    def _fit(self, name: str, effort: str | None, thinking: bool | None) -> Fitted:
        meant = resolve(name, self._table)
        if (refusal := self._refusal(name, meant)) is not None:
            raise refusal
        if meant.model is None:
            choice = ModelChoice(exactly=name, why=meant.why, slug=name, listed=False)
            return Fitted(name, (), choice, effort_met=effort is None)
        fitted = self._chosen(name, meant, effort, thinking)
        if not meant.then:
            return fitted
        others = (self._chosen(name, other, effort, thinking) for other in meant.then)
        return fitted._replace(then=tuple([ModelFallback(*other[:3]) for other in others]))

    def _chosen(self, name: str, meant: Meaning, effort: str | None, thinking: bool | None) -> Fitted:
        assert meant.model is not None
        asked = Wish(effort=None if effort is None else effort_of(effort), thinking=thinking)
        wish = meant.wish.over(asked).over(self._usual)
        chosen = choose_variant(meant.model, wish)
        variant = chosen.variant
        thinks_anyway = meant.model.reasoning and wish.thinking
        unmet = [key for key in chosen.unmet if key != "thinking" or not thinks_anyway]
        missing = set(unmet) & _said(meant.wish)
        if self._strict and missing:
            raise _no_variant(name, meant.model, sorted(missing))
        usual = variant.parameters == default_variant(meant.model).parameters and not variant.max_mode
        exactly = meant.model.id if usual else spelled(meant.model.id, variant.parameters, variant.max_mode)
        choice = ModelChoice(
            answers_as=name if meant.own and not missing else meant.model.id if meant.wish == NO_WISH else exactly,
            exactly=exactly,
            why=_why(meant, unmet),
            slug=variant.slug or ("" if meant.model.variants else meant.model.id),
            max_mode=variant.max_mode,
            listed=not meant.model.flat,
            images=meant.model.images,
        )
        effort_met = effort is None or "effort" not in unmet or _has_effort(meant.model)
        return Fitted(meant.model.id, variant.parameters, choice, effort_met)

    def _refusal(self, name: str, meant: Meaning) -> GatewayError | None:
        base = split_suffix(name)[0]
        if base not in self._table.models and base not in self._aliases and (once := _thinking_once(base)) != base:
            return _thinking_twice(base, once)
        if self._only and name not in self._aliases and not self._is_allowed(name, meant):
            return self._unknown(name, self._extra)
        if self._strict and self._table.models and (meant.model is None or not meant.exact):
            return None if name in self._extra else self._unknown(name, self._table.models)
        return None

    def _is_allowed(self, name: str, meant: Meaning) -> bool:
        """Whether the settings list the name, or its model by another name: with parameters, thinking or respelled."""
        if name in self._extra or (not self._table.models and name.removesuffix(THINKING) in self._extra):
            return True
        return meant.model is not None and meant.exact and meant.model.id in self._allowed

    def _unknown(self, name: str, known: Sequence[str] | Mapping[str, ModelInfo]) -> GatewayError:
        from difflib import get_close_matches  # imported only after a mistake

        near = get_close_matches(name[:MAX_MEANT_CHARS], list(known), n=3, cutoff=0.4)
        return GatewayError(
            ErrorKind.MODEL_UNKNOWN,
            f"There is no model `{name[:200]}`.",
            hint=f"Did you mean {', '.join(near)}?" if near else "See /v1/models.",
            param="model",
        )


@lru_cache(maxsize=4)
def _table(listed: tuple[ModelInfo, ...], aliases: tuple[tuple[str, str], ...]) -> ModelTable:
    """Indexes a model list. Cached, because most accounts have the same list and 400 models take 45 ms (November
    2026)."""
    return make_table(listed, dict(aliases))


def _said(wish: Wish) -> set[str]:
    """The parts that the wish sets, in the words of `VariantChoice.unmet`."""
    parts = {
        "effort": wish.effort,
        "thinking": wish.thinking,
        "fast": wish.fast,
        "context": wish.context,
        "max": wish.max_mode,
    }
    return {key for key, value in parts.items() if value is not None} | {key for key, _ in wish.other}


def _has_effort(model: ModelInfo) -> bool:
    return any(key in THOUGHT_IDS for key, _ in model.parameters)


def _why(meant: Meaning, unmet: Sequence[str]) -> str:
    return f"{meant.why}; the nearest variant, without the {', '.join(unmet)} asked for" if unmet else meant.why


def _thinking_once(base: str) -> str:
    """The name without its second `-thinking`, in any spelling and position."""
    first = _THINKING_WORD.search(base)
    return base if first is None else base[: first.end()] + _THINKING_WORD.sub("", base[first.end() :])


def _thinking_twice(base: str, once: str) -> GatewayError:
    return GatewayError(
        ErrorKind.MODEL_UNKNOWN,
        f"There is no model `{base[:200]}`: a thinking model has no thinking variant.",
        hint=f"Use `{once[:200]}`.",
        param="model",
    )


def _no_variant(name: str, model: ModelInfo, missing: Sequence[str]) -> GatewayError:
    has = ", ".join(f"{key}={'|'.join(values)}" for key, values in model.parameters)
    return GatewayError(
        ErrorKind.MODEL_UNKNOWN,
        f"`{name[:200]}` is no variant of {model.id}: there is none with this {', '.join(missing)}.",
        hint=f"It has {has}." if has else "It has no parameters.",
        param="model",
    )


# ---- the list that clients see


def shown_models(table: ModelTable, extra: Sequence[str] = (), *, only: bool = False) -> list[ModelInfo]:
    """The models that clients see. `extra`: more names to list; with `only` these are the whole list, unless
    there are none. For a model that can think, `NAME-thinking` is listed, too."""
    listed = {} if only and extra else {model.id: model for model in _with_thinking(list(table.models.values()))}
    for name in extra:
        for each in (name, name + THINKING) if _has_twin(name, table) else (name,):
            listed.setdefault(each, _named(each, table))
    return list(listed.values())


def each_once(models: Iterable[ModelInfo]) -> list[ModelInfo]:
    """The models without rows that are another name of a model."""
    return [model for model in models if not model.stands_for]


def _named(name: str, table: ModelTable) -> ModelInfo:
    """A name of the settings as a row of the list, with the known facts of its model."""
    meant = resolve(name, table)
    if meant.model is None or not meant.exact:
        return ModelInfo(name, name)
    return meant.model if meant.model.id == name else replace(meant.model, id=name, name=name, aliases=())


def _has_twin(name: str, table: ModelTable) -> bool:
    meant, twin = resolve(name, table), resolve(name + THINKING, table)
    plain = meant.model is not None and meant.exact and meant.wish == NO_WISH and not meant.then
    return plain and "think" not in name and twin.model is not None and twin.exact and can_think(twin.model)


def _with_thinking(models: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Adds a thinking row for each model that can think, for clients that can choose only a model."""
    ids = {model.id for model in models}
    listed: list[ModelInfo] = []
    for model in models:
        listed.append(model)
        twin = model.id + THINKING
        if twin in ids or "think" in model.id or model.flat or model.stands_for or not can_think(model):
            continue
        name = f"{model.name or model.id} (thinking)"
        listed.append(replace(model, id=twin, name=name, aliases=(), reasoning=True, stands_for=model.id))
    return listed
