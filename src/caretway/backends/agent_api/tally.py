"""What a turn has used: Cursor's own count when it comes, our estimate until then.

Cursor counts at the end of a turn only. A step in between, or an older server, gets an estimate that is marked as one.
"""

from dataclasses import dataclass
from typing import Final

from ...core.estimate import CHARS_PER_TOKEN
from ...core.events import Usage
from ...wire.messages import pb

ASSUMED_WINDOW: Final = 200_000
"""Tokens, when no checkpoint has said it."""


@dataclass(slots=True)
class Tally:
    prompt_chars: int
    used_tokens: int = 0
    max_tokens: int = 0
    spoken_tokens: int = 0
    spoken_chars: int = 0

    def checkpoint(self, details: pb.ConversationTokenDetails) -> None:
        self.used_tokens, self.max_tokens = details.used_tokens, details.max_tokens

    def next_response(self) -> None:
        self.spoken_tokens = self.spoken_chars = 0

    @property
    def fills_window(self) -> bool:
        """The prompt takes half of the model's window or more: then a refusal may be about its size."""
        return self._prompt() * 2 >= (self.max_tokens or ASSUMED_WINDOW)

    def estimate(self) -> Usage:
        output = self.spoken_tokens or self.spoken_chars // CHARS_PER_TOKEN
        return Usage(max(1, self._prompt()), max(1, output), estimated=True)

    def reported(self, ended: pb.TurnEndedUpdate) -> Usage:
        read = ended.input_tokens if ended.HasField("input_tokens") else None
        written = ended.output_tokens if ended.HasField("output_tokens") else None
        if read is None and written is None:
            return self.estimate()
        return Usage(
            read,
            written,
            ended.cache_read_tokens if ended.HasField("cache_read_tokens") else None,
            ended.cache_write_tokens if ended.HasField("cache_write_tokens") else None,
            ended.reasoning_tokens if ended.HasField("reasoning_tokens") else None,
        )

    def _prompt(self) -> int:
        return self.used_tokens or self.prompt_chars // CHARS_PER_TOKEN
