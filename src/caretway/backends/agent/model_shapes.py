"""In which fields of a run request a model is named (base with variant, or flat id), which way is tried next when
Cursor refuses one, and what is remembered for an account: what worked, and whose schemas must be simple.

By the base id with all parameters of one variant (`BASE`, as the official clients do), by the flat id in
`model_details` (`DETAILS`), by the flat id in both fields (`BOTH`), or in `requested_model` alone (`REQUESTED`, which
nobody was seen to use). Pure but for the memory.
"""

from enum import Enum
from functools import lru_cache
from typing import Final

from ...core.request import ModelChoice, TurnRequest
from ...cursor.transport.refusals import says_nothing
from ...cursor.wire.embedding import embed, tag
from ...cursor.wire.errors import ConnectError
from ...cursor.wire.messages import pb

_DETAILS: Final = tag(pb.AgentRunRequest, "model_details")
_REQUESTED: Final = tag(pb.AgentRunRequest, "requested_model")
MAX_REMEMBERED: Final = 256


class ModelShape(Enum):
    """The value is the word in the settings."""

    BASE = "base"
    DETAILS = "details"
    BOTH = "both"
    REQUESTED = "requested"


_ONLY_BASE: Final = (ModelShape.BASE,)
_LISTED: Final = (ModelShape.BASE, ModelShape.DETAILS)
_UNLISTED: Final = (ModelShape.DETAILS, ModelShape.BOTH)


def shapes_for(request: TurnRequest, known: ModelShape | None = None) -> tuple[ModelShape, ...]:
    """The way to ask first, and the one to try when that was not understood. `known`: what worked before."""
    choice = request.choice
    if not choice.slug:
        return _ONLY_BASE  # there is no other name for it
    usual = _LISTED if choice.listed else _UNLISTED
    if known is ModelShape.BASE and not choice.listed:
        known = None  # it worked for a model with a base id, which this one has not
    return usual if known is None or known is usual[0] else (known, usual[0])


@lru_cache(maxsize=MAX_REMEMBERED)
def model_fields(
    model: str, parameters: tuple[tuple[str, str], ...], choice: ModelChoice, shapes: tuple[ModelShape, ...]
) -> tuple[tuple[bytes, bytes], ...]:
    """(`model_details`, `requested_model`) of an AgentRunRequest in each of these ways; a field may be empty."""
    return tuple(_fields(model, parameters, choice, shape) for shape in shapes)


def _fields(
    model: str, parameters: tuple[tuple[str, str], ...], choice: ModelChoice, shape: ModelShape
) -> tuple[bytes, bytes]:
    if shape is ModelShape.BASE:
        return b"", _requested(model, parameters, max_mode=choice.max_mode)
    slug = choice.slug or model
    details = requested = b""
    if shape is not ModelShape.REQUESTED:
        named = pb.ModelDetails(model_id=slug, display_model_id=slug, display_name=slug, display_name_short=slug)
        if choice.max_mode:
            named.max_mode = True
        details = embed(_DETAILS, named.SerializeToString())
    if shape is not ModelShape.DETAILS:
        requested = _requested(slug, (), max_mode=choice.max_mode)
    return details, requested


def _requested(model: str, parameters: tuple[tuple[str, str], ...], *, max_mode: bool) -> bytes:
    asked = pb.RequestedModel(model_id=model, max_mode=max_mode)
    for name, value in parameters:
        asked.parameters.add(id=name, value=value)
    return embed(_REQUESTED, asked.SerializeToString())


def may_be_shape(error: ConnectError) -> str:
    """Why a refusal before any output may be about how the model was asked for; empty when it cannot be."""
    if error.code == "not_found" or error.name == "BAD_MODEL_NAME":
        return "Cursor does not know the model under this name"
    if is_bare(error):
        return "Cursor refuses without a reason"
    return ""


def is_bare(error: ConnectError) -> bool:
    """`resource_exhausted` and nothing else: a spent quota is one of its many reasons."""
    return error.code == "resource_exhausted" and says_nothing(error)


class AccountMemory:
    """What worked for one account: for each model, and for those of which nothing is known yet. And whose makers
    answered when they got simpler schemas than usual."""

    def __init__(self) -> None:
        self._account = ""
        self._models: dict[str, ModelShape] = {}
        self._last: ModelShape | None = None
        self._strict: dict[str, None] = {}

    def belongs_to(self, account: str) -> None:
        """Another account starts anew."""
        if account != self._account:
            self._account = account
            self._models.clear()
            self._last = None
            self._strict.clear()

    def known(self, model: str) -> ModelShape | None:
        return self._models.get(model, self._last)

    def worked(self, model: str, shape: ModelShape) -> None:
        self._models[model] = self._last = shape
        if len(self._models) > MAX_REMEMBERED:
            del self._models[next(iter(self._models))]

    def is_strict(self, model: str) -> bool:
        return model in self._strict

    def took_simplest(self, model: str) -> None:
        self._strict[model] = None
        if len(self._strict) > MAX_REMEMBERED:
            del self._strict[next(iter(self._strict))]
