"""How the simulated Cursor behaves: one switch for each recorded fact (ids, gaps between calls, checkpoints, limits,
refusals, refresh), in two profiles, `live` (the default) and `classic`.

The witness of each fact, and the row it stands in, are in `wire/README.md`. `CLASSIC` is the simulator as it was first
built: it says what a client expects. A single switch is flipped with `dataclasses.replace`, or as text with `flipped`.
Switches that are off in both are for facts that contradict each other, or that would refuse every client at once.
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
    """Lists slugs, base models and variants as Cursor does, and `thinking_details` for none of them."""
    hides_bases: bool = False
    """Neither list of base models is served: flat ids are all that a client can learn."""
    judges_model_shape: bool = False
    """A slug in `requested_model` alone is answered with an empty turn; the other three shapes are taken."""
    refused_shapes: frozenset[str] = frozenset()
    """Shapes (`model_shapes.shape_of`) that are refused without a reason, as single accounts saw it."""
    empty_shapes: frozenset[str] = frozenset()
    """More shapes that are answered with an empty turn."""
    refused_models: tuple[tuple[str, str], ...] = ()
    """(base id, fault): models that the account is not served, and what it is told; faults as in `sim: fail`."""
    whole_variants: bool = False
    """Parameters must be exactly those of one advertised variant, and a tiered model needs them: else `not_found`."""
    demands_max_mode: bool = False
    """A variant that needs max mode is refused (MAX_MODE_REQUIRED) unless every model field that travels says so."""
    strict_list_type: bool = False
    """`GetUsableModels` answers 415 to the content type of a stream."""

    # ---- who calls, and from where
    known_versions_only: bool = False
    """A client version that Cursor did not ship is refused with a bare `resource_exhausted`, whatever the model."""
    version_refusal: Literal["bare", "outdated", "update_words"] = "bare"
    """How such a version is refused: without a reason, as OUTDATED_CLIENT, or in words."""
    judges_calls: bool = False
    """Not only runs are refused for the version, but every call."""
    run_on_http1_is_464: bool = False
    """`Run` over HTTP/1.1 is answered 464, as the load balancer does."""
    run_is_464: bool = False
    """The same over HTTP/2: something on the way speaks HTTP/1.1 to the load balancer."""
    abroad: Literal["", "bare", "ends", "words"] = ""
    """Models of other makers are refused to clients that do not come through `simulate --proxy`: without a reason, by
    a stream that ends at once, or as UNSUPPORTED_REGION."""
    refuses_direct: bool = False
    """Connections that do not come through `simulate --proxy` are cut."""
    pinned_team: Literal["", "ends", "words"] = ""
    """Runs are served on the team's own host alone, which `GetServerConfig` names. Elsewhere their streams end at once,
    or with words about the region. (That host is this server below a path of its own.)"""

    # ---- sign-in and usage
    refresh_at: Literal["anywhere", "exchange", "oauth", "token", "refresh", "nowhere"] = "anywhere"
    """Where a refresh token is taken: at the key exchange, `/oauth/token`, `/auth/token` or `/auth/refresh`."""
    rotates_refresh: bool = False
    """A refresh token works once: with the new access token comes a new one, and the old one is refused."""
    one_token: bool = False
    """A sign-in by browser gives one token, in both places; renewing it brings no other refresh token."""
    sign_in_life_s: int = 3600
    """How long the access token of a sign-in by browser lives."""
    sign_in_ends: int = 0
    """A sign-in is answered with this status instead of tokens; 0: it succeeds."""
    renewal_down: int = 0
    """Every renewal is answered with this status; 0: it is served."""
    team_seats: bool = False
    """Every account has a team's seat: usage without the team's id reports nothing."""
    usage_lag_s: int = 0
    """How long after a run its usage event can be seen."""
    events_ignore_dates: bool = False
    """Usage events are listed whatever dates are asked for, and not counted, as one account saw it."""
    period_usage: Literal["told", "refused", "silent"] = "told"
    """How `GetCurrentPeriodUsage` is answered; `silent`: never."""

    # ---- calls
    argument_text: Literal["all so far", "pieces"] = "all so far"
    """What `args_text_delta` holds each time."""
    two_ids: bool = False
    """The envelope's `call_id` is not the `tool_call_id` of the call itself. One lineage of clients says that this
    happens; another one, which works, waits for ever when they differ. So it is off in both profiles."""
    long_ids: bool = False
    """Call ids have 85 characters and a newline in the middle."""
    lists_calls: bool = True
    """`tool_requests_listed` announces how many calls a step has."""
    sibling_gaps_ms: tuple[int, ...] = ()
    """Between the calls of one step; the gaps come in this order, again and again."""
    tokens_in_gaps: bool = False
    """`token_delta` keeps coming between the calls of one step."""
    asks_in_turn: bool = False
    """All calls of a step are written, and then each is asked for after the result of the one before."""
    checkpoint_after_call_ms: int | None = None
    """A checkpoint this long after the last call of a step, before any result."""

    # ---- checkpoints and ends
    early_checkpoint: bool = False
    """A checkpoint before the first word."""
    first_window_unknown: bool = False
    """The first checkpoint of a run says 0 where the size of the context window belongs."""
    lingers_ms: int = 0
    """How long the body stays open after the end-of-stream frame."""
    bloats_checkpoints: bool = False
    """Checkpoints have far more in them than a client wants to keep, as those of very long chats do."""
    tells_cost: bool = False
    """`turn_ended` estimates what the run has cost. Nobody has seen it filled."""
    absurd_cache_reads: bool = False
    """`turn_ended` tells of far more tokens read from the cache than the context holds."""

    # ---- history
    drops_system_roots: bool = False
    """Root messages of the role `system` do not reach the model."""
    parts_only: bool = False
    """A user's root message whose content is a bare string ends the run, late; composer and auto take it."""
    pictures_as_uris: bool = False
    """A picture in a root message must be a `data:` URI with `mediaType`."""
    pairs_only: bool = False
    """A tool result without its call ends the run."""
    plain_ids_only: bool = False
    """Call ids in roots that a client wrote must be of letters, digits, `_` and `-`: else a bare refusal."""
    reads_results_anywhere: bool = False
    """Results are seen in `turns` and in an assistant's prose too."""
    resume_needs_checkpoint: bool = False
    """`resume_action` on a replayed history gives an empty turn on composer-2.5."""
    poisons: bool = False
    """After a bare refusal a conversation id stays refused."""

    # ---- prompt and tools
    custom_prompt: bool = True
    """The account may have a system prompt of its own (`custom_system_prompt`); one that was recorded may not."""
    empty_tools_drop_preamble: bool = False
    """A run request with an empty tool list spares the preamble that no client sees."""
    tools_in_both_places: bool = False
    """A tool that is missing in the run request or in the request context is hidden from the model."""
    judges_schemas: bool = False
    """Schemas that a model's maker refuses end the run with PROVIDER_ERROR."""
    strict_families: frozenset[str] = frozenset()
    """Families whose makers refuse all that any maker was seen to refuse, as one that nobody has recorded may."""
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
"""What `LIVE` says and refuses, without the waits that only take time: for a demonstration, and for most tests."""
PROFILES: Final = {profile.name: profile for profile in (LIVE, CLASSIC)}

SWITCHES: Final = tuple(field.name for field in fields(Manners) if field.name != "name")


def flipped(manners: Manners, switches: Iterable[str]) -> Manners:
    """With switches as `NAME=VALUE`; a value is JSON, or a word. Raises ValueError."""
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
