"""A live turn as those who look at the gateway see it: state, model, who asked, since when, which tools it waits for,
about how many tokens it has said. Made on demand; no words of the conversation are in it.
"""

from msgspec import Struct

from ..core.request import ToolCall
from .lifecycle import SessionState
from .live import LiveTurn


class TurnView(Struct, frozen=True, gc=False):
    id: str
    state: str
    model: str
    client: str
    key: str
    dialect: str
    conversation: str
    session: str
    """Of its newest response, as the client was told: fresh, continued, replayed, resumed."""
    reason: str
    started_at: float
    since: float
    """When it came to its state. Both in unix seconds."""
    responses: int
    tokens: int
    """Of the response that is being made, estimated."""
    waiting_for: tuple[str, ...] = ()
    """Names of the tools whose results it waits for."""


def turn_view(live: LiveTurn) -> TurnView:
    account, origin = live.account, live.account.origin
    session, reason = account.newest
    return TurnView(
        id=live.tickets.sid,
        state=live.state.value,
        model=live.request.model,
        client=origin.caller.client,
        key=origin.caller.key,
        dialect=origin.dialect,
        conversation=account.conversation,
        session=session,
        reason=reason,
        started_at=account.started_at,
        since=live.since,
        responses=account.responses,
        tokens=live.fold.tokens if live.fold is not None else 0,
        waiting_for=_waiting_for(live) if live.state is SessionState.PARKED else (),
    )


def _waiting_for(live: LiveTurn) -> tuple[str, ...]:
    open_ = set(live.open)
    return tuple([part.name for part in live.answer.parts if isinstance(part, ToolCall) and part.id in open_])
