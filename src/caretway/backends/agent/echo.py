"""Text and thinking that a new attempt repeats: what the client has already seen since the last checkpoint is skipped;
text that differs from it is `Diverged`, thinking may differ. Also what the client is told then.

A resumed run repeats what came after its checkpoint; a run that has no checkpoint repeats everything.
"""

from typing import Final

from ...core.errors import ErrorKind, GatewayError

MAX_UNSAVED_CHARS: Final = 4 * 1024 * 1024
PAGE: Final = 1024
"""So many pieces are joined to one."""


class Diverged(Exception):
    """The model tells another story than the one the client already has."""

    def __init__(self, what: str, *, in_call: bool = False) -> None:
        super().__init__(what)
        self.in_call = in_call
        """The client has a part of a call that will not be completed."""


class Echo:
    __slots__ = ("_cap", "_pages", "_skip_reasoning", "_thought", "_thoughts", "_unsaved", "chars", "skip")

    def __init__(self, max_unsaved_chars: int = MAX_UNSAVED_CHARS) -> None:
        self._pages: list[str] = []
        self._unsaved: list[str] = []
        """After the pages: a word costs more to keep than a page."""
        self.chars = 0
        self._cap = max_unsaved_chars
        self._thoughts: list[str] = []
        self._thought: list[str] = []
        self.skip = self._skip_reasoning = ""
        """What the new attempt has not caught up with."""

    @property
    def replayable(self) -> bool:
        return self.chars <= self._cap

    def saved(self) -> None:
        """A checkpoint holds everything that this attempt has said so far. What the attempt before said beyond that is
        still to come."""
        self._unsaved = [self.skip] if self.skip else []
        self._thought = [self._skip_reasoning] if self._skip_reasoning else []
        self._pages, self._thoughts = [], []
        self.chars = len(self.skip) + len(self._skip_reasoning)

    def rewind(self) -> None:
        """A new attempt begins at the last checkpoint."""
        self.skip = "".join([*self._pages, *self._unsaved])
        self._skip_reasoning = "".join([*self._thoughts, *self._thought])

    def text(self, text: str) -> str:
        if self.skip:
            if self.skip.startswith(text):
                self.skip = self.skip[len(text) :]
                return ""
            if not text.startswith(self.skip):
                raise Diverged("the model said something else than before")
            text, self.skip = text[len(self.skip) :], ""
        self.chars += len(text)
        if self.chars <= self._cap:
            self._unsaved.append(text)
            if self._unsaved[PAGE:]:
                self._pages.append("".join(self._unsaved))
                self._unsaved = []
        return text

    def reasoning(self, text: str) -> str:
        if self._skip_reasoning:
            if self._skip_reasoning.startswith(text):
                self._skip_reasoning = self._skip_reasoning[len(text) :]
                return ""
            text = text.removeprefix(self._skip_reasoning)  # what is read together may go on beyond it
            self._skip_reasoning = ""  # other thoughts may lead to the same words: only the answer must not differ
        self.chars += len(text)
        if self.chars <= self._cap:
            self._thought.append(text)
            if self._thought[PAGE:]:
                self._thoughts.append("".join(self._thought))
                self._thought = []
        return text


def diverged_fault(why: Diverged, *, in_call: bool) -> GatewayError:
    """What the client is told when the answer it has a part of cannot be completed."""
    if in_call:
        return GatewayError(
            ErrorKind.UPSTREAM_DOWN,
            f"Cursor did not complete a tool call that it had begun: {why}.",
            hint="Do not run that call. Ask again.",
            code="tool_call_cut",
        )
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"The connection to Cursor broke in the middle of the answer, and then {why}.",
        hint="Ask again.",
    )
