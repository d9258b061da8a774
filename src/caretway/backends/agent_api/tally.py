"""What Cursor's messages say about tokens, handed to the tally of the turn. Pure.

Cursor counts pieces of output as they come, the context at each checkpoint, and everything once more when the run ends:
then for all its model calls together.
"""

from typing import Final

from ...core.estimate import tokens
from ...core.events import RunUsage, Usage
from ...core.tally import Tally
from ...wire.messages import pb

ASSUMED_WINDOW: Final = 200_000
"""Tokens, when no checkpoint has said it."""


class AgentTally(Tally):
    __slots__ = ("max_tokens",)

    def __init__(self, prompt_chars: int, known_tokens: int = 0) -> None:
        """`known_tokens`: what the conversation held when it was continued; then the prompt is only what is new."""
        super().__init__(known_tokens + tokens(prompt_chars))
        self.max_tokens = 0

    def take(self, message: pb.AgentServerMessage) -> None:
        """Any message of the server; most have nothing to say here."""
        match message.WhichOneof("message"):
            case "interaction_update":
                self._update(message.interaction_update)
            case "exec_server_message":
                if message.exec_server_message.WhichOneof("message") != "request_context_args":
                    self.speaking()
                    self.calling()
            case "interaction_query":
                self.speaking()
                self.calling()
                self.answered()
            case "conversation_checkpoint_update":
                details = message.conversation_checkpoint_update.token_details
                self.max_tokens = details.max_tokens or self.max_tokens  # the first one often says 0
                self.checkpoint(details.used_tokens)
            case _:
                pass

    def _update(self, update: pb.InteractionUpdate) -> None:
        match update.WhichOneof("message"):
            case "token_delta":
                self.speaking()
                self.spoken_tokens += update.token_delta.tokens
            case "partial_tool_call" | "tool_call_started":
                self.speaking()
                self.calling()
            case "tool_call_completed":
                self.answered()
            case _:
                pass

    @property
    def fills_window(self) -> bool:
        """The prompt takes half of the model's window or more: then a refusal may be about its size."""
        return self.expected * 2 >= (self.max_tokens or ASSUMED_WINDOW)

    def turn_ended(self, ended: pb.TurnEndedUpdate) -> Usage:
        return self.ended(read_total(ended))


def read_total(ended: pb.TurnEndedUpdate) -> RunUsage | None:
    """None: an older server, which does not count."""
    if not ended.HasField("input_tokens") and not ended.HasField("output_tokens"):
        return None
    return RunUsage(
        ended.input_tokens if ended.HasField("input_tokens") else None,
        ended.output_tokens if ended.HasField("output_tokens") else None,
        ended.cache_read_tokens if ended.HasField("cache_read_tokens") else None,
        ended.cache_write_tokens if ended.HasField("cache_write_tokens") else None,
        ended.reasoning_tokens if ended.HasField("reasoning_tokens") else None,
    )
