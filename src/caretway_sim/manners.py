"""The behaviour of the simulated Cursor: one switch for each recorded fact, in two profiles, `live` (the default) and
`classic`.

`wire/README.md` has a row with the witness of each fact. `CLASSIC` is the first version of the simulator: it behaves as
clients expect. Flip a single switch with `dataclasses.replace`, or as text with `flipped`. Switches that are off in
both profiles are for facts that contradict each other, or that would refuse every client at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_type_hints

import msgspec


@dataclass(frozen=True, slots=True)
class Manners:
    name: str = "classic"

    # ---- models
    cursor_catalogue: bool = False
    """Lists slugs, base models and variants as Cursor does, without `thinking_details`."""
    hides_bases: bool = False
    """Serves neither list of base models: clients can learn flat ids only."""
    judges_model_shape: bool = False
    """A slug in `requested_model` alone gets an empty turn; the other three shapes are accepted."""
    refused_shapes: frozenset[str] = frozenset()
    """Shapes (`model_shapes.shape_of`) that are refused without a reason, as recorded on single accounts."""
    empty_shapes: frozenset[str] = frozenset()
    """Further shapes that get an empty turn."""
    refused_models: tuple[tuple[str, str], ...] = ()
    """(base id, fault): models that the account may not use, and the error; faults as in `sim: fail`."""
    whole_variants: bool = False
    """Parameters must be exactly those of one listed variant, and a model with levels needs them; otherwise
    `not_found`."""
    demands_max_mode: bool = False
    """A variant that needs max mode is refused (MAX_MODE_REQUIRED) unless every model field of the request sets it."""
    strict_list_type: bool = False
    """`GetUsableModels` responds 415 to the content type of a stream."""

    # ---- who calls, and from where
    known_versions_only: bool = False
    """A client version that Cursor did not release is refused with a bare `resource_exhausted`, for every model."""
    version_refusal: Literal["bare", "outdated", "update_words"] = "bare"
    """How such a version is refused: without a reason, as OUTDATED_CLIENT, or in words."""
    judges_calls: bool = False
    """Every call, not only a run, is refused for its version."""
    run_on_http1_is_464: bool = False
    """`Run` over HTTP/1.1 gets 464, as from the load balancer."""
    run_is_464: bool = False
    """`Run` over HTTP/2 gets 464 too: a proxy on the way speaks HTTP/1.1 to the load balancer."""
    abroad: Literal["", "bare", "ends", "words"] = ""
    """Refuses models of other makers to clients that do not come through `simulate --proxy`: without a reason, by a
    stream that ends at once, or as UNSUPPORTED_REGION."""
    refuses_direct: bool = False
    """Connections that do not come through `simulate --proxy` are cut."""
    pinned_team: Literal["", "ends", "words"] = ""
    """Serves runs only on the team's own host, which `GetServerConfig` names. On any other host their streams end at
    once, or with words about the region. (The team's host is this server below a path prefix.)"""

    # ---- sign-in and usage
    refresh_at: Literal["anywhere", "exchange", "oauth", "token", "refresh", "nowhere"] = "anywhere"
    """The endpoint that accepts a refresh token: the key exchange, `/oauth/token`, `/auth/token` or `/auth/refresh`."""
    rotates_refresh: bool = False
    """A refresh token works once: each renewal returns a new one, and the old one is refused."""
    one_token: bool = False
    """A browser sign-in returns one token for both uses; a renewal returns no new refresh token."""
    sign_in_life_s: int = 3600
    """Lifetime of the access token of a browser sign-in."""
    sign_in_ends: int = 0
    """Every sign-in gets this status instead of tokens; 0: sign-ins succeed."""
    renewal_down: int = 0
    """Every renewal gets this status; 0: renewals succeed."""
    team_seats: bool = False
    """Every account has a team seat: usage without the team's id reports nothing."""
    usage_lag_s: int = 0
    """Delay between a run and its usage event."""
    events_ignore_dates: bool = False
    """Usage events are listed for any dates and without a total, as recorded on one account."""
    period_usage: Literal["told", "refused", "silent"] = "told"
    """How `GetCurrentPeriodUsage` responds; `silent`: never."""

    # ---- calls
    argument_text: Literal["all so far", "pieces"] = "all so far"
    """The content of each `args_text_delta`."""
    two_ids: bool = False
    """The envelope's `call_id` differs from the call's `tool_call_id`. One lineage of clients reports this; another,
    which works, waits for ever when they differ. So it is off in both profiles."""
    long_ids: bool = False
    """Call ids have 85 characters with a newline in the middle."""
    lists_calls: bool = True
    """`tool_requests_listed` announces the number of calls in a step."""
    sibling_gaps_ms: tuple[int, ...] = ()
    """Gaps between the calls of one step, used in turn."""
    tokens_in_gaps: bool = False
    """`token_delta` continues between the calls of one step."""
    asks_in_turn: bool = False
    """All calls of a step are written first; then each is requested after the result of the one before."""
    checkpoint_after_call_ms: int | None = None
    """Delay of a checkpoint after the last call of a step, before any result."""

    # ---- checkpoints and ends
    early_checkpoint: bool = False
    """Sends a checkpoint before the first word."""
    first_window_unknown: bool = False
    """The first checkpoint of a run has 0 as the size of the context window."""
    lingers_ms: int = 0
    """How long the body stays open after the end-of-stream frame."""
    bloats_checkpoints: bool = False
    """Checkpoints hold far more than a client wants to keep, as in very long chats."""
    tells_cost: bool = False
    """`turn_ended` estimates the cost of the run. Never recorded with a value."""
    absurd_cache_reads: bool = False
    """`turn_ended` reports far more cache reads than the context holds."""

    # ---- history
    drops_system_roots: bool = False
    """Root messages with the role `system` do not reach the model."""
    parts_only: bool = False
    """A user's root message with a bare string as content ends the run, late; composer and auto accept it."""
    pictures_as_uris: bool = False
    """An image in a root message must be a `data:` URI with `mediaType`."""
    pairs_only: bool = False
    """A tool result without its call ends the run."""
    plain_ids_only: bool = False
    """Call ids in roots that a client wrote may have only letters, digits, `_` and `-`; otherwise a bare refusal."""
    reads_results_anywhere: bool = False
    """Reads results in `turns` and in an assistant's prose too."""
    resume_needs_checkpoint: bool = False
    """`resume_action` on a replayed history gets an empty turn on composer-2.5."""
    poisons: bool = False
    """A conversation id stays refused after a bare refusal."""

    # ---- prompt and tools
    custom_prompt: bool = True
    """The account may set a system prompt (`custom_system_prompt`); one recorded account may not."""
    empty_tools_drop_preamble: bool = False
    """A run request with an empty tool list omits the preamble, which no client sees."""
    tools_in_both_places: bool = False
    """Hides a tool from the model that is missing in the run request or in the request context."""
    judges_schemas: bool = False
    """A schema that the model's maker refuses ends the run with PROVIDER_ERROR."""
    strict_families: frozenset[str] = frozenset()
    """Families whose makers refuse everything that any maker was recorded to refuse, as an unrecorded maker may."""
    limits: bool = False
    """At most 330 tools in 120,000 bytes, a user message below 1 MiB, fewer than 208 root messages."""


CLASSIC: Final = Manners()
LIVE: Final = Manners(
    name="live",
    cursor_catalogue=True,
    judges_model_shape=True,
    whole_variants=True,
    demands_max_mode=True,
    strict_list_type=True,
    run_on_http1_is_464=True,
    refresh_at="oauth",
    one_token=True,
    sign_in_life_s=86400,
    long_ids=True,
    lists_calls=False,
    sibling_gaps_ms=(318, 573, 713, 1189),
    tokens_in_gaps=True,
    checkpoint_after_call_ms=120,
    early_checkpoint=True,
    first_window_unknown=True,
    lingers_ms=500,
    drops_system_roots=True,
    parts_only=True,
    pictures_as_uris=True,
    pairs_only=True,
    plain_ids_only=True,
    reads_results_anywhere=True,
    resume_needs_checkpoint=True,
    poisons=True,
    custom_prompt=False,
    empty_tools_drop_preamble=True,
    judges_schemas=True,
    limits=True,
)
LIVE_AT_ONCE: Final = replace(LIVE, sibling_gaps_ms=(), lingers_ms=0)
"""`LIVE` without the delays: for demonstrations and most tests."""
PROFILES: Final = {profile.name: profile for profile in (LIVE, CLASSIC)}

SWITCHES: Final = tuple(field.name for field in fields(Manners) if field.name != "name")


def flipped(manners: Manners, switches: Iterable[str]) -> Manners:
    """The manners with switches as `NAME=VALUE`; a value is JSON or a word. Raises ValueError."""
    kinds = get_type_hints(Manners)
    for switch in switches:
        name, given, text = switch.partition("=")
        if name not in SWITCHES or not given:
            raise ValueError(f"there is no switch `{name}`" if given else f"expected NAME=VALUE, not `{switch}`")
        try:
            value: Any = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = text
        try:
            change = {name: msgspec.convert(value, kinds[name])}
        except msgspec.ValidationError as wrong:
            raise ValueError(f"`{text}` is no value of {name}: {wrong}") from wrong
        manners = replace(manners, **change)
    return manners
