"""Which model a simulated run request means: the four shapes of its fields, unknown and dead models, whole variants,
max mode, shapes that get a refusal or an empty turn. Pure.

The shapes: (a) a base id with a whole variant in `requested_model` alone; (b) a slug in `model_details` alone; (c) a
slug in both; (d) a slug in `requested_model` alone, which no client uses that works.
"""

from dataclasses import dataclass

from caretway.cursor.wire.errors import ConnectError
from caretway.cursor.wire.messages import pb

from . import faults
from .catalogue import BY_ID, BY_SLUG, BaseModel, Variant
from .manners import Manners


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    """What runs: the base id with the variant in brackets, or the id as it came where nobody judges it."""
    empty: bool = False
    """The turn ends at once, without a word and without tokens."""


def shape_of(request: pb.AgentRunRequest) -> str:
    """How it asks: base, details, both or requested."""
    asked, named = request.requested_model.model_id, request.model_details.model_id
    if asked and named:
        return "both"
    if named:
        return "details"
    return "base" if request.requested_model.parameters or asked in BY_ID else "requested"


def choose(request: pb.AgentRunRequest, manners: Manners) -> Choice | ConnectError:
    requested, details = request.requested_model, request.model_details
    asked = requested.model_id or details.model_id
    if not manners.cursor_catalogue:
        return Choice(asked)
    shape = shape_of(request)
    if shape in manners.refused_shapes:
        return faults.SCRIPTED["bare"]
    if shape in manners.empty_shapes:
        return Choice(asked, empty=True)
    params = {parameter.id: parameter.value for parameter in requested.parameters}
    found = _find(asked, params, manners)
    if isinstance(found, ConnectError):
        return found
    base, variant = found
    if refusal := dict(manners.refused_models).get(base.id):
        return faults.SCRIPTED[refusal]
    lonely = bool(requested.model_id) and not details.model_id
    if manners.judges_model_shape and lonely and asked not in BY_ID:
        return Choice(variant.bracket(base.id), empty=True)
    if variant.dead:
        return faults.NOT_FOUND
    if manners.demands_max_mode and variant.max_mode:
        told = [field.max_mode for field in (requested, details) if field.model_id]
        if not all(told):
            return faults.SCRIPTED["max_mode"]
    return Choice(variant.bracket(base.id))


def _find(asked: str, params: dict[str, str], manners: Manners) -> tuple[BaseModel, Variant] | ConnectError:
    base = BY_ID.get(asked)
    if params:
        if base is None:
            return faults.NOT_FOUND
        exact = next((variant for variant in base.variants if dict(variant.params) == params), None)
        if exact is None and not manners.whole_variants:
            exact = next((one for one in base.variants if params.items() <= dict(one.params).items()), None)
        return faults.NOT_FOUND if exact is None else (base, exact)
    if asked in BY_SLUG:
        return BY_SLUG[asked]
    if base is None:
        return faults.UNKNOWN_MODEL
    if base.tiered and manners.whole_variants:
        return faults.NOT_FOUND
    return base, base.default
