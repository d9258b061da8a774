"""What a named key may do with a request: which models it may ask for, also as the next ones of an alias, and which
directory it works in. Pure.

A model may be used when the one that is taken fits the key's patterns, or when the name that was asked for is on the
key's list as it is: then whoever made the key knows what it stands for.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.request import TurnRequest
from ..core.turn import ModelInfo
from .named_key import NamedKey


def restricted(key: NamedKey, asked: str, request: TurnRequest) -> TurnRequest:
    """`asked`: the model as the client named it; `request` has the one that is taken. Raises GatewayError."""
    if not _may_use(key, asked, request.model):
        raise GatewayError(
            ErrorKind.FORBIDDEN,
            f"The key {key.name} may not use the model {request.model}.",
            hint=f"It may use: {', '.join(key.models)}. See /v1/models.",
            param="model",
            code="model_not_allowed",
        )
    if request.fallbacks:
        allowed = [each for each in request.fallbacks if _may_use(key, asked, each.model)]
        request = replace(request, fallbacks=tuple(allowed))
    return replace(request, home=key.workspace) if key.workspace else request


def visible(key: NamedKey, models: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Those of the list that the key may use."""
    return [model for model in models if _may_use(key, model.id, model.stands_for or model.id)]


def _may_use(key: NamedKey, asked: str, taken: str) -> bool:
    listed = asked.lower() in (pattern.lower() for pattern in key.models)
    return listed or key.may_use(taken)
