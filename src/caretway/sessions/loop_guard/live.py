"""The loop guard for tools that run without the client during one turn (in the gateway, in cursor-agent, in the SDK):
the same rules as for a client's tools. Counts a call when it begins and its result when it ends.

In: calls with their arguments, results as text. Out: a verdict. At the limit the model is to be told (`Tell`), where
somebody can; a call that begins after that ends the turn (`EndLoop`). A bounded number of results is kept, as hashes.
"""

import logging
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ...core.errors import GatewayError
from .rule import (
    LOOKING,
    NoProgress,
    RepeatLevel,
    loop_error,
    plain_name,
    repeat_level,
    wander_error,
    wander_level,
    wander_warning,
    warning,
)
from .wander import Wander, only_looks

log = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 10_000
"""Different results of one turn. After that the counting starts again."""


class GuardSettings(Struct, frozen=True):
    max_repeat: int = 2
    """0: identical calls are not counted."""
    no_progress: NoProgress = "warn"


class Tell(Struct, frozen=True):
    """The model should hear this before it goes on."""

    message: str
    lost: bool = False
    """It looks around without anything new; otherwise one call repeats."""


class EndLoop(Struct, frozen=True):
    error: GatewayError


LiveVerdict = Tell | EndLoop | None


class _LiveRun(Struct):
    """One call, made again and again with the same result."""

    result: int
    repeats: int = 0


class LiveGuard:
    __slots__ = ("_clock", "_runs", "_seen", "_settings", "_tells", "_told", "_wander")

    def __init__(
        self, settings: GuardSettings, clock: Callable[[], float], context_chars: int = 0, *, tells: bool = True
    ) -> None:
        """`context_chars`: what the model reads at the beginning. `tells`: the model can be told something."""
        self._settings = settings
        self._tells = tells
        self._clock = clock
        self._runs: dict[tuple[str, str], _LiveRun] = {}
        self._seen: set[tuple[str, str, int]] = set()
        self._wander = Wander(context_chars)
        self._told = False

    def began(self, tool: str, arguments: str) -> EndLoop | None:
        """A call is about to run, or has just begun."""
        run = self._runs.get((tool, arguments))
        if run is None or self._level(tool, run.repeats + 1) is not RepeatLevel.PAST_LIMIT:
            return None
        log.warning("loop guard: %s repeated %d times; the turn ends", tool, run.repeats + 1)
        return EndLoop(loop_error(tool, self.calls(tool, arguments), "", warned=self._told and self._tells))

    def calls(self, tool: str, arguments: str) -> int:
        """How often this call was made with the same result, one that is about to be made included."""
        run = self._runs.get((tool, arguments))
        return 1 if run is None else run.repeats + 2

    def ended(self, tool: str, arguments: str, result: str) -> LiveVerdict:
        """Its result is there; empty when nobody told it."""
        call, found = (tool, arguments), hash(result)
        if (*call, found) not in self._seen:  # the model looks elsewhere, or what it looks at moves
            self._runs.clear()
            if len(self._seen) >= MAX_REMEMBERED:
                self._seen.clear()
            self._seen.add((*call, found))
        run = self._runs.get(call)
        if run is None or run.result != found:
            run = self._runs[call] = _LiveRun(found)
        else:
            run.repeats += 1
        lost = self._no_progress(tool, arguments, result)
        if isinstance(lost, EndLoop):
            return lost
        if self._level(tool, run.repeats) is RepeatLevel.AT_LIMIT:
            self._told = True
            self._log(tool, "repeated", run.repeats)
            return Tell(warning(run.repeats + 1))
        return lost

    def _level(self, tool: str, repeats: int) -> RepeatLevel:
        return repeat_level(repeats, self._settings.max_repeat, generous=plain_name(tool) in LOOKING)

    def _no_progress(self, tool: str, arguments: str, result: str) -> LiveVerdict:
        wander, now = self._wander, self._clock()
        wander.step((result,), looks=only_looks(tool, arguments), now=now)
        level = wander_level(wander.steps, wander.tokens, wander.seconds(now), self._settings.no_progress)
        if level is RepeatLevel.PAST_LIMIT:
            log.warning("loop guard: %s brought nothing new %d times; the turn ends", tool, wander.steps)
            return EndLoop(wander_error(wander.steps, wander.tokens))
        if level is not RepeatLevel.AT_LIMIT:
            return None
        self._log(tool, "brought nothing new", wander.steps)
        return Tell(wander_warning(wander.steps, wander.tokens), lost=True)

    def _log(self, tool: str, how: str, times: int) -> None:
        done = "the model is warned" if self._tells else "the model cannot be warned here"
        log.warning("loop guard: %s %s %d times; %s", tool, how, times, done)
