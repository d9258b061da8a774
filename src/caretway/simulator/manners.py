"""How the simulated Cursor behaves: one switch for each fact that changes what a client sees.

`CLASSIC` is the simulator as it was first built: it says what a client expects. `LIVE` is the service as others
recorded it; the class of witness of each fact, and the row it stands in, are in `wire/README.md`. A single switch is
flipped with `dataclasses.replace`. Switches that are off in both are for facts that contradict each other, or that
would refuse every client at once.
"""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Manners:
    name: str = "classic"

    # ---- models
    cursor_catalogue: bool = False
    """Lists slugs, base models and variants as Cursor does, and `thinking_details` for none of them."""
    judges_model_shape: bool = False
    """A slug in `requested_model` alone is answered with an empty turn; the other three shapes are taken."""
    refused_shapes: frozenset[str] = frozenset()
    """Shapes (`model_shapes.shape_of`) that are refused without a reason, as single accounts saw it."""
    empty_shapes: frozenset[str] = frozenset()
    """More shapes that are answered with an empty turn."""
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
    """Models of other makers are refused to whoever does not come from `Simulator(home=...)`: without a reason, by a
    stream that ends at once, or as UNSUPPORTED_REGION."""
    pinned_team: Literal["", "ends", "words"] = ""
    """Runs are served on the team's own host alone, which `GetServerConfig` names. Elsewhere their streams end at once,
    or with words about the region. (That host is this server below a path of its own.)"""
    refresh_at: Literal["anywhere", "exchange", "token"] = "anywhere"
    """Where a refresh token is taken: at the key exchange, at `/auth/token`, or also at `/auth/refresh`."""

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
    empty_tools_drop_preamble: bool = False
    """A run request with an empty tool list spares the preamble that no client sees."""
    tools_in_both_places: bool = False
    """A tool that is missing in the run request or in the request context is hidden from the model."""
    judges_schemas: bool = False
    """Schemas that a model's maker refuses end the run with PROVIDER_ERROR."""
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
    refresh_at="exchange",
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
    empty_tools_drop_preamble=True,
    judges_schemas=True,
    limits=True,
)
PROFILES: Final = {profile.name: profile for profile in (CLASSIC, LIVE)}
