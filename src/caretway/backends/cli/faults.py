"""Converts cursor-agent's error texts (stderr, or stdout outside its JSON) into GatewayErrors: model, quota with its
reset date, rate, context, sign-in, trust, network, signals. Removes ANSI colours. Pure.

The first match in the table wins: model, quota, credentials, network, because a quota message may mention signing in.
The input never includes the model's own text. The tests have samples for every row.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ...core.errors import ErrorKind, GatewayError, bounded_wait
from ...cursor.transport.refusals import NO_REASON, PROGRAM_CAUSES, AskedRun, without_reason

CHARS_PER_TOKEN: Final = 4
DEFAULT_WINDOW: Final = 200_000
_SHOWN_CHARS: Final = 600

_NETWORK_HINT: Final = "Check the connection and try again."
_AGAIN: Final = "Try again; running `cursor-agent` by hand may show more."
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")


def plain(text: str) -> str:
    """The text without colours and cursor movements."""
    return _ANSI.sub("", text).replace("\r", "\n")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts about the run that the error text does not contain."""

    model: str = ""
    prompt_chars: int = 0
    window: int | None = None
    now: float = 0.0
    """Unix seconds."""
    exit_code: int | None = None
    clean: Callable[[str], str] = str
    """Removes secrets from the displayed text, because the program may print any text."""

    @property
    def half_full(self) -> bool:
        return self.prompt_chars / CHARS_PER_TOKEN >= (self.window or DEFAULT_WINDOW) / 2


def _model(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    listed = re.search(r"available models?:\s*([^\n]+)", said, re.IGNORECASE)
    hint = f"Available: {listed[1].strip().rstrip('.')}." if listed else "See /v1/models."
    return GatewayError(ErrorKind.MODEL_UNKNOWN, f"Cursor has no model `{at.model}` for you.", hint, param="model")


def _quota(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    wait, until = reset_time(said, at.now)
    other = re.search(r"continue with ([\w.\-]+(?:\s[\w.\-]+){0,3}?)(?=[.,;\n]|$| to | for )", said, re.IGNORECASE)
    hints = [f"It resets on {until}."] if until else []
    hints += [f"Cursor suggests to continue with {other[1]}."] if other else []
    hint = " ".join(hints) or "See cursor.com/dashboard for the limits of your plan."
    return GatewayError(ErrorKind.QUOTA, "The usage limit of your Cursor plan is reached.", hint, retry_after=wait)


def _exhausted(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    """The error for a bare `resource_exhausted`, which has many causes: a large prompt means a full context."""
    if at.half_full:
        return GatewayError(*_OVERFLOW)
    hint = without_reason(AskedRun(at.model, only=PROGRAM_CAUSES))
    return GatewayError(ErrorKind.REFUSED, "Cursor refused the run and gives no reason.", hint, code=NO_REASON)


def _plan(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    return GatewayError(
        ErrorKind.FORBIDDEN,
        f"Your Cursor plan does not include the model `{at.model}`.",
        "`caretway models` lists what it has; https://cursor.com/dashboard shows the plan.",
        code="plan_or_team_refused",
    )


def _rate(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    seconds = re.search(r"(?:retry|try again) (?:after|in) (\d{1,5})\s*s", said, re.IGNORECASE)
    wait = float(seconds[1]) if seconds else None
    return GatewayError(
        ErrorKind.RATE_LIMITED, "Cursor limits the rate of requests.", "Wait a little and try again.", retry_after=wait
    )


def _untrusted(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    return GatewayError(
        ErrorKind.INTERNAL,
        "cursor-agent refuses to work in a directory that it does not trust.",
        "Update cursor-agent: this build does not honour --trust.",
        code="workspace_not_trusted",
    )


def _down(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    said_so = match[0].strip()
    return GatewayError(ErrorKind.UPSTREAM_DOWN, f"cursor-agent cannot reach Cursor ({said_so}).", _NETWORK_HINT)


def _internal(said: str, match: re.Match[str], at: Circumstances) -> GatewayError:
    shown = " ".join(said.split())[:_SHOWN_CHARS]
    return GatewayError(ErrorKind.UPSTREAM_ERROR, f"Cursor reports a failure of its own: {shown}", _AGAIN)


Make = Callable[[str, re.Match[str], Circumstances], GatewayError]
Fixed = tuple[ErrorKind, str] | tuple[ErrorKind, str, str]
"""An error that does not depend on the text: kind, message, hint."""

_OVERFLOW: Final = (
    ErrorKind.CONTEXT_TOO_LONG,
    "The conversation is too long for the model.",
    "Compact it, or start a new one.",
)
_SIGNED_OUT: Final = (
    ErrorKind.SIGNED_OUT,
    "cursor-agent is not signed in.",
    "Run `cursor-agent login`, or `caretway login --backend cli`.",
)
_DEPRECATED: Final = (
    ErrorKind.UPSTREAM_DEPRECATED,
    "Cursor no longer serves this version of cursor-agent.",
    "Run `cursor-agent update`.",
)
_GONE: Final = (ErrorKind.TURN_GONE, "cursor-agent no longer has the chat that was to be resumed.")

_MODEL_WORDS: Final = r"cannot use this model|model [\"'`]?[\w.\-\[\]=,]*[\"'`]? ?(?:was |is )?not found"
_AUTH_WORDS: Final = (
    r"authentication required|not authenticated|not logged in|\bunauthenticated\b|\bunauthorized\b|"
    r"\b(?:cursor-)?agent login\b|\bCURSOR_API_KEY\b|invalid api key|api key is invalid|session expired|"
    r"authentication failed|\bauth error\b|token (?:is )?(?:invalid|expired)|keychain[^\n]{0,40}locked|"
    r"locked[^\n]{0,40}keychain"
)
_NETWORK_WORDS: Final = (
    r"\bE(?:CONNREFUSED|NOTFOUND|TIMEDOUT|CONNRESET|HOSTUNREACH|NETUNREACH|AI_AGAIN|PIPE)\b|fetch failed|"
    r"socket hang up|network error|\bunavailable\b"
)
_ROWS: Final[tuple[tuple[str, Make | Fixed], ...]] = (
    (_MODEL_WORDS + r"|invalid model|unknown model|no such model", _model),
    (r"usage limit|hit your (?:\w+ )?limit|\bquota\b|out of (?:credits|requests)|spend(?:ing)? limit", _quota),
    (r"not (?:included|available) in your(?: current)? plan|plan does(?: not|n't) include", _plan),
    (r"rate.?limit|too many requests|\b429\b", _rate),
    (r"context (?:length|window|limit|is too)|(?:prompt|conversation|input|request) (?:is )?too long", _OVERFLOW),
    (r"resource_exhausted", _exhausted),
    (_AUTH_WORDS, _SIGNED_OUT),
    (r"no longer supported|please (?:update|upgrade)|\bERROR_DEPRECATED\b", _DEPRECATED),
    (r"workspace trust required|pass --trust|do(?:es)? not trust this", _untrusted),
    (_NETWORK_WORDS, _down),
    (r"(?:session|chat|conversation|thread)[^\n]{0,80}?(?:not found|expired|does not exist)", _GONE),
    (r"no such (?:session|chat|conversation|thread)", _GONE),
    (r"\[internal\]", _internal),
)
TABLE: Final = tuple((re.compile(words, re.IGNORECASE), make) for words, make in _ROWS)

_LOOSE_AUTH: Final = re.compile(
    r"(?<![\w./\\-])o?auth(?![\w/\\-]|\.\w)|\bnot authorized\b|\bplease authenticate\b", re.IGNORECASE
)
"""Sign-in words that errors and notices both use, such as `auth` outside paths. They count only in an error that
matches no row of the table."""


def classify(said: str, at: Circumstances) -> GatewayError:
    """The error for a run that the caller knows has failed."""
    said = at.clean(plain(said)).strip()
    for words, make in TABLE:
        if (match := words.search(said)) is not None:
            return GatewayError(*make) if isinstance(make, tuple) else make(said, match, at)
    return _unknown(said, at)


def is_known(said: str) -> bool:
    """Whether a row of the table matches the text."""
    return any(words.search(plain(said)) for words, _ in TABLE)


def _unknown(said: str, at: Circumstances) -> GatewayError:
    shown = " ".join(said.split())[:_SHOWN_CHARS]
    if at.exit_code is not None and at.exit_code < 0:
        return GatewayError(
            ErrorKind.UPSTREAM_DOWN, f"cursor-agent was killed by signal {-at.exit_code}.", shown or _AGAIN
        )
    if _LOOSE_AUTH.search(said) is not None:
        return GatewayError(*_SIGNED_OUT)
    if at.exit_code == 0:  # other output does not explain the failure
        return GatewayError(
            ErrorKind.UPSTREAM_DOWN, "cursor-agent ended before its answer did (exit code 0).", shown or _AGAIN
        )
    if shown:
        return GatewayError(ErrorKind.INTERNAL, f"cursor-agent failed: {shown}", _AGAIN)
    if at.exit_code:
        return GatewayError(
            ErrorKind.INTERNAL, f"cursor-agent failed with exit code {at.exit_code} and said nothing about it.", _AGAIN
        )
    return GatewayError(ErrorKind.UPSTREAM_PROTOCOL, "cursor-agent reports a failure and gives no reason.", _AGAIN)


def reset_time(said: str, now: float) -> tuple[float | None, str]:
    """(seconds until the usage resets, the day); (None, "") if the text has no date."""
    found = re.search(r"resets? (?:on|at) (\d{1,2})/(\d{1,2})/(\d{4})", said, re.IGNORECASE)
    if found is None:
        return None, ""
    month, day, year = (int(part) for part in found.groups())
    try:
        at = datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        return None, ""
    return bounded_wait(max(60.0, at - now)), f"{year:04}-{month:02}-{day:02}"
