"""One table of Cursor's refusals with little or no reason: region, plan, data policy, max mode, outdated client,
refused schemas and images, a bare `resource_exhausted`. Each row has the likely causes and a hint. Pure.
Cursor often ends a run with only a code, and one code has many causes. A row has the causes that others found
(`wire/README.md` names the sources). `resource_exhausted` has nine known causes: the hint omits causes that the run
rules out, and lists the others by likelihood.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ...core.errors import ErrorKind
from ..wire.envelope import ConnectError

NO_REASON: Final = "refused_without_reason"
EMPTY_STREAM: Final = "empty_stream"
SCHEMA_REFUSED: Final = "tool_schema_refused"
TEAM_REGION: Final = "team_region_refused"
POLICY_PAGE: Final = "https://cursor.com/dashboard/restricted_models"
PROVIDER_STATUS: Final = "providerStatusCode"
"""The key of `additional_info` with the status of the model's vendor."""
_VAGUE_NAMES: Final = frozenset({"", "UNSPECIFIED", "RESOURCE_EXHAUSTED", "NOT_FOUND"})
_WORDS_COUNT: Final = _VAGUE_NAMES | {"CUSTOM", "CUSTOM_MESSAGE"}
"""Names of errors that only their words explain."""
_OWN_MODELS: Final = ("auto", "default", "composer", "sim-")


class AskedRun(Struct, frozen=True):
    """Facts about the refused run that rule out causes."""

    model: str = ""
    tools: bool = False
    history: bool = False
    """Whether the gateway sent messages of the client's history to Cursor."""
    continued: bool = False
    """Whether the run continues a conversation that Cursor has."""
    heard: bool = False
    """Whether the model had begun to answer."""
    fills_window: bool = False
    """Whether the prompt fills at least half of the model's window, by the gateway's estimate."""
    only: frozenset[str] | None = None
    """The causes that this kind of request leaves open; None: all."""


def is_own(model: str) -> bool:
    """Whether Cursor itself serves the model, so that no other vendor's rules, regions or prices apply."""
    return model.startswith(_OWN_MODELS)


def says_nothing(error: ConnectError) -> bool:
    """Whether an error has only a code and no reason."""
    words = error.message.strip().lower()
    silent = words in ("", "error", error.code, f"[{error.code}] error") and not error.title and not error.detail
    return silent and error.name in _VAGUE_NAMES


class Suspect(Struct, frozen=True):
    what: str
    possible: Callable[[AskedRun], bool]


SUSPECTS: Final = {
    "region": Suspect(
        "the region or the proxy of this machine (`caretway models` lists what is served here, `caretway doctor` shows "
        "the way there)",
        lambda run: not run.heard and not is_own(run.model),
    ),
    "shape": Suspect("the fields that name the model", lambda run: not run.heard),
    "version": Suspect("the client version", lambda run: not run.heard),
    "usage": Suspect('spent usage of "Other Models" (https://cursor.com/dashboard)', lambda run: not is_own(run.model)),
    "plan": Suspect("a plan without this model", lambda run: not run.heard),
    "schema": Suspect("the schema of a tool", lambda run: not run.heard and run.tools),
    "ids": Suspect("call ids in the history", lambda run: not run.heard and run.history),
    "conversation": Suspect(
        "this conversation, once refused and so for ever", lambda run: not run.heard and run.continued
    ),
    "capacity": Suspect("too little capacity at Cursor", lambda _: True),
}
"""The known causes of a bare `resource_exhausted`, the likeliest first."""

TELLS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("region", "usage", "plan"), "ask {other}: if it answers, it is {numbers}"),
    (("shape",), "start with `--agent-quirks model=details`, then `model=both`: if one answers, it was {numbers}"),
    (
        ("version",),
        "if no model answers at all, start with `--agent-client-version` and a version that Cursor ships: {numbers}",
    ),
    (("schema",), "ask without tools: if that is answered, it is {numbers}"),
    (("ids", "conversation"), "ask in a new conversation: if that is answered, it is {numbers}"),
    (("capacity",), "if the same is answered in half an hour, it was {numbers}"),
)
"""How to tell causes apart: the causes, and what to try."""


PROGRAM_CAUSES: Final = frozenset({"region", "usage", "plan", "capacity"})
"""The open causes for cursor-agent, which names models, itself and its calls as Cursor expects."""
CHAT_CAUSES: Final = PROGRAM_CAUSES | {"version"}
"""The open causes for the legacy chat call, which has one form of model names, no tools and no conversations."""


def suspects(run: AskedRun) -> tuple[str, ...]:
    """Names of the causes that this run leaves open, the likeliest first."""
    asked = [name for name in SUSPECTS if run.only is None or name in run.only]
    return tuple(name for name in asked if SUSPECTS[name].possible(run))


def without_reason(run: AskedRun) -> str:
    """The hint for a refusal without a reason: the likely causes, and how to tell them apart."""
    numbers = {name: number for number, name in enumerate(suspects(run), 1)}
    named = "; ".join(f"({number}) {SUSPECTS[name].what}" for name, number in numbers.items())
    if len(numbers) == 1:
        return f"The only known cause left is {SUSPECTS[next(iter(numbers))].what}; it has lasted half an hour."
    other = "another model of `caretway models`" if is_own(run.model) else "the model `composer-2.5`"
    tells = []
    for about, words in TELLS:
        if found := [f"({numbers[name]})" for name in about if name in numbers]:
            tells.append(words.format(other=other, numbers=" or ".join(found)))
    return f"Known causes, the likeliest first: {named}. To tell them apart: {'; '.join(tells)}."


Words = str | Callable[[AskedRun], str]
"""Text for users; a function if it depends on the refused run."""


def words_for(words: Words, run: AskedRun) -> str:
    return words if isinstance(words, str) else words(run)


class Refusal(Struct, frozen=True):
    """One row of the table. It matches if all its conditions hold."""

    row: str
    kind: ErrorKind
    hint: Words
    name: str = ""
    """Cursor's own name of the error."""
    connect: str = ""
    """The Connect code of the error."""
    words: str = ""
    """A pattern for Cursor's text in lower case."""
    info: tuple[str, str] | None = None
    unheard: bool = False
    """Matches only before the model's first output."""
    silent: bool = False
    """Matches only an error without a reason."""
    code: str | None = None
    """The error's code for the client; None: the code of its kind."""
    message: Words = ""
    """Replaces Cursor's text if it is empty or misleading."""
    call_hint: str = ""
    """The hint for calls other than a run; empty: the hint of the kind."""


VERSION_HINT: Final = (
    "Update Caretway (`caretway doctor` says how). Until then `--agent-client-version VERSION` sends the version of a "
    "client that Cursor ships; `cursor-agent --version` prints one."
)
_CALL_HINT: Final = (
    "Known causes: (1) the client version: start with `--agent-client-version VERSION` and one that Cursor ships, "
    "which `cursor-agent --version` prints; (2) the region or the proxy of this machine; (3) too little capacity at "
    "Cursor, if the same is answered in half an hour."
)
_REGION_HINT: Final = (
    "Cursor decides by the address that the request comes from: check a VPN or proxy of this machine; `caretway "
    "doctor` shows the way that requests take. `caretway models` lists what is served here; Cursor's own models "
    "(`composer-2.5`) are served in more regions."
)
_TEAM_HINT: Final = (
    "Your team is pinned to another host, and Cursor named none that works. Start with `--run-url https://HOST`; "
    "cursor-agent keeps that host in its cli-config.json, as `agentnUrl`."
)

REFUSALS: Final = (
    Refusal(
        "schema",
        ErrorKind.BAD_REQUEST,
        "Most often it is a tool's schema: Fable takes no anyOf, oneOf or allOf; Gemini, Grok and Kimi take no enum of "
        "other than strings and no list of item schemas. Ask without tools: if that is answered, simplify them or "
        "choose another model.",
        name="PROVIDER_ERROR",
        info=(PROVIDER_STATUS, "400"),
        code=SCHEMA_REFUSED,
        message="Cursor: the model's maker refused the request as malformed (PROVIDER_ERROR, status 400)",
    ),
    Refusal(
        "policy",
        ErrorKind.FORBIDDEN,
        lambda run: f"Accept the model's data policy at {POLICY_PAGE}/{run.model}, or choose another model.",
        name="MODEL_BLOCKED",
        code="model_blocked",
    ),
    Refusal("outdated", ErrorKind.UPSTREAM_DEPRECATED, VERSION_HINT, name="OUTDATED_CLIENT", call_hint=VERSION_HINT),
    Refusal("outdated", ErrorKind.UPSTREAM_DEPRECATED, VERSION_HINT, words=r"update required", call_hint=VERSION_HINT),
    Refusal("region", ErrorKind.FORBIDDEN, _REGION_HINT, name="UNSUPPORTED_REGION", code="region_refused"),
    Refusal(
        "team_region",
        ErrorKind.FORBIDDEN,
        _TEAM_HINT,
        words=r"region is not (yet )?(available|supported|enabled) for your team",
        code=TEAM_REGION,
    ),
    Refusal(
        "region",
        ErrorKind.FORBIDDEN,
        _REGION_HINT,
        words=r"not (yet )?(available|supported|served) in (your|this) (region|country)|unsupported (region|country)",
        code="region_refused",
    ),
    Refusal(
        "max_mode",
        ErrorKind.FORBIDDEN,
        lambda run: f"Ask for `{run.model or 'MODEL'}@max`; max mode is a matter of the plan.",
        name="MAX_MODE_REQUIRED",
        code="max_mode_required",
    ),
    Refusal(
        "picture",
        ErrorKind.BAD_REQUEST,
        "Send images as PNG or JPEG, best below 256 KiB and 2000 pixels.",
        name="CLAUDE_IMAGE_TOO_LARGE",
        code="picture_refused",
    ),
    Refusal(
        "picture",
        ErrorKind.BAD_REQUEST,
        "Send images as PNG or JPEG, best below 256 KiB and 2000 pixels.",
        words=r"unable to parse image",
        code="picture_refused",
    ),
    Refusal(
        "no_exec",
        ErrorKind.UPSTREAM_ERROR,
        "Cursor waited for the answer to a tool of its own and did not get it. Ask again; if it happens again, record "
        "it with `--trace DIRECTORY` and report it.",
        connect="internal",
        words=r"no exec result",
        code="no_exec_result",
    ),
    Refusal(
        "not in plan",
        ErrorKind.FORBIDDEN,
        "`caretway models` lists what your plan has; https://cursor.com/dashboard shows the plan.",
        connect="failed_precondition",
        words=r"(not|n't) (included|available|part) (in|of|on|with) your( current)? plan|plan does(n't| not) include",
        code="plan_or_team_refused",
    ),
    Refusal(
        "plan",
        ErrorKind.FORBIDDEN,
        "Most often the plan does not have the model: `caretway models` lists what it has. For a member of a team it "
        "can be the host: start with `--run-url https://HOST`; cursor-agent keeps that host in its cli-config.json, as "
        "`agentnUrl`.",
        connect="failed_precondition",
        silent=True,
        code="plan_or_team_refused",
        message="Cursor does not serve this run to this account and gives no reason (failed_precondition)",
    ),
    Refusal(
        "denied",
        ErrorKind.FORBIDDEN,
        "It is the sign-in or a rule of your team: `caretway status` shows the account, `caretway login` signs in "
        "anew; `caretway models` lists what you can use.",
        connect="permission_denied",
        silent=True,
        message="Cursor denies this run to this account and gives no reason (permission_denied)",
    ),
    Refusal(
        "gone",
        ErrorKind.MODEL_UNKNOWN,
        lambda run: (
            "`caretway models` lists the ids your account can use; a listed one can be dead too, then choose another."
            + (" If it answered a moment ago, begin a new conversation." if run.continued else "")
        ),
        connect="not_found",
        unheard=True,
        silent=True,
        message=lambda run: (
            "Cursor knows no such model, or no longer knows the conversation (not_found)"
            if run.continued
            else "Cursor knows no such model (not_found)"
        ),
    ),
    Refusal(
        "late",
        ErrorKind.BAD_REQUEST,
        lambda run: (
            "Cursor takes about 1 MiB in one message, 200 messages of a history, and 330 tools or 120,000 bytes of "
            f"them. Send less{', or begin a new conversation' if run.continued or run.history else ''}; the same "
            "request is refused again."
        ),
        connect="invalid_argument",
        silent=True,
        code="refused_as_invalid",
        message="Cursor refused the request as invalid and gives no reason (invalid_argument)",
    ),
    Refusal(
        "bare",
        ErrorKind.REFUSED,
        without_reason,
        connect="resource_exhausted",
        silent=True,
        code=NO_REASON,
        message="Cursor refused the run and gives no reason",
        call_hint=_CALL_HINT,
    ),
)
"""The rows; the first that matches an error is used."""


def refusal_of(error: ConnectError) -> Refusal | None:
    words = f"{error.title}\n{error.detail}\n{error.message}".lower()
    for row in REFUSALS:
        if (
            (not row.name or row.name == error.name)
            and (not row.connect or row.connect == error.code)
            and (not row.words or (error.name in _WORDS_COUNT and re.search(row.words, words)))
            and (row.info is None or row.info in error.info)
            and (not row.silent or says_nothing(error))
        ):
            return row
    return None


def call_hint(error: ConnectError) -> str:
    """The hint for a refused call other than a run; empty: the hint of the kind."""
    row = refusal_of(error)
    return "" if row is None else row.call_hint


def may_be_conversation(error: ConnectError) -> str:
    """Why a kept conversation may have caused a refusal before any output; empty if it cannot be the cause."""
    if not says_nothing(error):
        return ""
    return {
        "resource_exhausted": "a conversation that was refused once can stay so",
        "not_found": "Cursor may no longer have the conversation",
        "invalid_argument": "the conversation may have grown past a limit",
    }.get(error.code, "")
