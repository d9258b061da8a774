"""Whether the next model of an alias answers instead of one that Cursor refuses, and the request for it. Pure.

Only a refusal that another model of the same account may not get leads on: a pool of usage that is spent, a plan or a
policy without the model, a model that Cursor does not know. A refusal without a reason is none of these; the agent
backend turns it into a spent pool where the account's usage says so. Our own budgets refuse every model alike. Which
models come next is decided by `accounts/models/resolve.py` and, for a named key, by `usage/keys/named_key.py`.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from ..core.errors import OWN_BUDGET, ErrorKind, GatewayError
from ..core.request import ModelFallback, TurnRequest
from .plan import Parked

RUNG: Final = "next model"
"""In the log line, beside what is done about lost runs."""
REASON: Final = "Cursor refused the model, and its alias names another"
_KINDS: Final = frozenset({ErrorKind.QUOTA, ErrorKind.MODEL_UNKNOWN})
_CODES: Final = frozenset({"plan_or_team_refused", "model_blocked"})


def leads_on(error: GatewayError) -> bool:
    """Another model of the same account may be served where this one is refused."""
    if error.kind is ErrorKind.FORBIDDEN:
        return error.code in _CODES
    return error.kind in _KINDS and error.reason != OWN_BUDGET


def next_request(request: TurnRequest, error: GatewayError) -> TurnRequest | None:
    """For the next model of the alias; None: there is none, or it would not help."""
    if not request.fallbacks or not leads_on(error):
        return None
    first, *others = request.fallbacks
    why = f"{first.choice.why}; {request.model} was refused ({error.code or error.kind.value})"
    return _asking(request, first, tuple(others), why)


def same_model(request: TurnRequest, told: TurnRequest) -> TurnRequest:
    """What the model is told, for the model of another form of the same request."""
    return replace(
        told, model=request.model, parameters=request.parameters, choice=request.choice, fallbacks=request.fallbacks
    )


def going_on(request: TurnRequest, parked: Iterable[Parked]) -> TurnRequest:
    """For the model that has the turn already, if that is a later one of the alias."""
    models = {turn.model for turn in parked}
    for at, each in enumerate(request.fallbacks):
        if each.model in models and request.model not in models:
            why = f"{each.choice.why}; {request.model} was refused before"
            return _asking(request, each, request.fallbacks[at + 1 :], why)
    return request


def _asking(request: TurnRequest, one: ModelFallback, others: tuple[ModelFallback, ...], why: str) -> TurnRequest:
    choice = replace(one.choice, why=why, instead_of=request.model)
    return replace(request, model=one.model, parameters=one.parameters, choice=choice, fallbacks=others)
