"""Builds the simulated server's messages as enveloped bytes; splits text into words; a template for fast streams. No
state."""

import re
from typing import Any, Final

from caretway.cursor.wire.envelope import ConnectError, pack, write_end
from caretway.cursor.wire.messages import pb

from .script import ScriptStream

_WORD: Final = re.compile(r"\s*\S+\s*|\s+")


def server(**kind: Any) -> bytes:
    """One message of the server, by the name of its field."""
    return pack(pb.AgentServerMessage(**kind).SerializeToString())


def update(**kind: Any) -> bytes:
    """One update of a run, by the name of its field."""
    return server(interaction_update=pb.InteractionUpdate(**kind))


HEARTBEAT: Final = update(heartbeat=pb.HeartbeatUpdate())


def text(words: str) -> bytes:
    return update(text_delta=pb.TextDeltaUpdate(text=words))


def tokens(count: int) -> bytes:
    return update(token_delta=pb.TokenDeltaUpdate(tokens=count))


def end(error: ConnectError | None = None) -> bytes:
    return pack(write_end(error), end=True)


def words(text: str) -> list[str]:
    """The text in the pieces that a model streams: a word with the white space after it."""
    return _WORD.findall(text)


class StreamTemplate:
    """Text deltas of one size. They differ in their text only, so only the text is inserted."""

    def __init__(self, step: ScriptStream) -> None:
        sample = text("x" * step.size)
        self._head = sample[: len(sample) - step.size]
        self._step = step

    def delta(self, index: int) -> bytes:
        return self._head + self._step.delta(index).encode("ascii")
