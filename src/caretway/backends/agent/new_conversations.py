"""Begins the conversations of one account, over whatever carries them: openings are composed, blobs of earlier turns
are found, and what was learned in one turn (tokens that are not sent, pauses between calls) is known in the next."""

from ...core.request import TurnRequest
from ...core.turn import Snapshot
from ..builtin_tools.policy import ToolRules
from ..builtin_tools.queries import WebSearch
from .compose import Composer, Opening, RunContext
from .conversation import Conversation
from .snapshots import blob_source
from .step_end import StepPaces
from .turn_clock import ConversationLimits
from .unseen_tokens import UnseenTokens


class NewConversations:
    def __init__(self, limits: ConversationLimits, surroundings: RunContext, *, check_limits: bool) -> None:
        self._limits = limits
        self.compose = Composer(surroundings, limits.max_message_bytes, check_limits=check_limits).compose
        self.unseen = UnseenTokens()
        self._paces = StepPaces(limits.sibling_quiet, limits.sibling_cap)

    def begin(
        self,
        opening: Opening,
        request: TurnRequest,
        rules: ToolRules,
        snapshot: Snapshot | None,
        unseen: int,
        web: WebSearch = "client",
    ) -> Conversation:
        return Conversation(
            opening,
            request,
            policy=rules.policy,
            limits=self._limits,
            fetch_blob=blob_source(snapshot),
            parent=snapshot.parent if snapshot is not None else None,
            unseen=unseen,
            learn=self.unseen.learner(request) if snapshot is None else None,
            pace=self._paces.of(request.model),
            web=web,
        )
