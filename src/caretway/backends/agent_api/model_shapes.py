"""In which fields of a run a model is asked for. Clients that work with Cursor differ, and so do its answers.

By the base id with all parameters of one variant (`BASE`, as the official clients do), by the flat id in
`model_details` (`DETAILS`), by the flat id in both fields (`BOTH`), or in `requested_model` alone (`REQUESTED`, which
nobody was seen to use). When one may not have been understood, the next one is tried, once, and what worked is
remembered for the account. Pure but for that memory.
"""

from enum import Enum
from typing import Final

from ...core.request import TurnRequest
from ...wire.embedding import embed, tag
from ...wire.errors import ConnectError
from ...wire.messages import pb

_DETAILS: Final = tag(pb.AgentRunRequest, "model_details")
_REQUESTED: Final = tag(pb.AgentRunRequest, "requested_model")
MAX_REMEMBERED: Final = 256


class ModelShape(Enum):
    """The value is the word in the settings."""

    BASE = "base"
    DETAILS = "details"
    BOTH = "both"
    REQUESTED = "requested"


def shapes_for(request: TurnRequest, known: ModelShape | None = None) -> tuple[ModelShape, ...]:
    """The way to ask first, and the one to try when that was not understood. `known`: what worked before."""
    choice = request.choice
    if not choice.slug:
        return (ModelShape.BASE,)  # there is no other name for it
    first, second = (ModelShape.BASE, ModelShape.DETAILS) if choice.listed else (ModelShape.DETAILS, ModelShape.BOTH)
    if known is None or known is first:
        return first, second
    return known, first


def model_fields(request: TurnRequest, shape: ModelShape) -> bytes:
    """The fields of an AgentRunRequest that say which model is meant."""
    choice = request.choice
    if shape is ModelShape.BASE:
        asked = pb.RequestedModel(model_id=request.model, max_mode=choice.max_mode)
        for name, value in request.parameters:
            asked.parameters.add(id=name, value=value)
        return embed(_REQUESTED, asked.SerializeToString())
    slug = choice.slug or request.model
    fields = b""
    if shape is not ModelShape.REQUESTED:
        details = pb.ModelDetails(model_id=slug, display_model_id=slug, display_name=slug, display_name_short=slug)
        if choice.max_mode:
            details.max_mode = True
        fields += embed(_DETAILS, details.SerializeToString())
    if shape is not ModelShape.DETAILS:
        asked = pb.RequestedModel(model_id=slug, max_mode=choice.max_mode)
        fields += embed(_REQUESTED, asked.SerializeToString())
    return fields


def may_be_shape(error: ConnectError) -> str:
    """Why a refusal before any output may be about how the model was asked for; empty when it cannot be."""
    if error.code == "not_found" or error.name == "BAD_MODEL_NAME":
        return "Cursor does not know the model under this name"
    if is_bare(error):
        return "Cursor refuses without a reason"
    return ""


def is_bare(error: ConnectError) -> bool:
    """`resource_exhausted` and nothing else: a spent quota is one of its many reasons."""
    silent = error.message.strip().lower() in ("", "error", "resource_exhausted") and not error.detail
    return error.code == "resource_exhausted" and not error.name and silent


class ShapeMemory:
    """What worked for one account: for each model, and for those of which nothing is known yet."""

    def __init__(self) -> None:
        self._account = ""
        self._models: dict[str, ModelShape] = {}
        self._last: ModelShape | None = None

    def belongs_to(self, account: str) -> None:
        """Another account starts anew."""
        if account != self._account:
            self._account = account
            self._models.clear()
            self._last = None

    def known(self, model: str) -> ModelShape | None:
        return self._models.get(model, self._last)

    def worked(self, model: str, shape: ModelShape) -> None:
        self._models[model] = self._last = shape
        if len(self._models) > MAX_REMEMBERED:
            del self._models[next(iter(self._models))]
