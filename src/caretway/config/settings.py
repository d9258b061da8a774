"""The table of all settings: one field each, with default, help and bounds. `setting_named` rejects an unknown name.

The file is long because it is one table: a setting is one row, whatever its group. Sources of values are in `loading`;
effects are in the modules that use a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from .kinds import (
    ALIASES,
    FILES,
    FILLED_TEXT,
    MILLISECONDS,
    NAME,
    PAIRS,
    PATHS,
    REDIS_URL,
    SWITCH,
    TEXT,
    TREE,
    URL,
    URL_OR_NONE,
    WORDS,
    ConfigError,
    Setting,
    choice,
    declared,
    duration,
    hint,
    integer,
    path,
    rows,
    size,
)
from .places import process_data_directory
from .quirks import AGENT_QUIRKS, Quirks

# ---- words

# The values of settings with a choice, and the groups of settings. Values only.

SERVER: Final = "server"
CURSOR: Final = "Cursor"
SESSIONS: Final = "sessions and tools"
MCP: Final = "MCP servers"
LIMITS: Final = "limits"
CLUSTER: Final = "several gateways"
GROUPS: Final = (SERVER, CURSOR, SESSIONS, MCP, LIMITS, CLUSTER)

BackendName = Literal["auto", "sdk", "cli", "agent", "legacy-chat", "simulator"]
WhenAway = Literal["refuse", "allow"]
TransportName = Literal["auto", "h2", "http1"]
SessionName = Literal["auto", "fresh", "required"]
MaxTokens = Literal["ignore", "cut"]
NoProgressRule = Literal["warn", "stop", "off"]
ToolArguments = Literal["note", "refuse"]
ThinkingName = Literal["visible", "hide", "inline"]
PromptStyle = Literal["tags", "transcript"]
CliTransport = Literal["auto", "acp", "print"]
CliMode = Literal["ask", "plan", "agent", "force"]
CliToolEvents = Literal["hidden", "reasoning", "tool_calls"]
LocalTools = Literal["read-only", "all", "off"]
WebSearchBy = Literal["off", "client", "cursor"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
AuthMode = Literal["own", "passthrough"]
TokenStore = Literal["file", "keyring"]
ImageScope = Literal["off", "public", "any"]
McpOffer = Literal["always", "ask", "never"]
McpActivity = Literal["hidden", "note", "reasoning"]


# ---- settings


_server, _cursor = partial(declared, SERVER), partial(declared, CURSOR)
_sessions, _limit = partial(declared, SESSIONS), partial(declared, LIMITS)
_mcp, _cluster = partial(declared, MCP), partial(declared, CLUSTER)
_TIME: Final = duration()
_GRACE: Final = duration(zero=True)
_FILE: Final = path("a file")
_DIRECTORY: Final = path("a directory")
_BUFFER: Final = size(1024)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Settings:
    """All settings of the gateway. Values given in code are checked as strictly as loaded ones."""

    host: str = field(default="127.0.0.1", metadata=_server(FILLED_TEXT, "Address to listen on.", extra_env=("HOST",)))
    port: int = field(
        default=32124,
        metadata=_server(integer(0, 65535), "TCP port to listen on; 0 picks a free one.", extra_env=("PORT",)),
    )
    gateway_key: str | None = field(
        default=None,
        repr=False,
        metadata=_server(
            FILLED_TEXT,
            "The gateway's own key, which clients must send. Not your Cursor key; `caretway key new` makes one.",
            extra_env=("CARETWAY_API_KEY",),
            secret=True,
        ),
    )
    api_key_file: Path | None = field(
        default=None,
        metadata=_server(
            _FILE, "File with the keys that clients may use, one per line (`caretway key new`).", exists="file"
        ),
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata=_server(
            WORDS,
            "Host names that clients may use to reach the gateway, besides localhost and IP addresses; * allows all.",
        ),
    )
    allowed_origins: tuple[str, ...] = field(
        default=(),
        metadata=_server(WORDS, "Web pages that may call the gateway, as in https://app.example; * allows every page."),
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=_server(_FILE, "PEM file with the certificate chain for HTTPS.", exists="file"),
    )
    tls_key: Path | None = field(
        default=None, metadata=_server(_FILE, "PEM file with the certificate's private key.", exists="file")
    )
    config: Path | None = field(
        default=None,
        metadata=_server(
            _FILE, "TOML file with settings.", default_text="caretway/config.toml in the user's config directory"
        ),
    )
    data_dir: Path = field(
        default_factory=process_data_directory,
        metadata=_server(
            _DIRECTORY,
            "Directory for sign-ins, conversations and caches.",
            default_text="caretway in the user's data directory",
        ),
    )
    log_level: LogLevel = field(
        default="info", metadata=_server(choice(get_args(LogLevel)), "Lowest level of log lines to write.")
    )
    log_format: LogFormat = field(
        default="text",
        metadata=_server(choice(get_args(LogFormat)), "How log lines are written: for people, or as JSON."),
    )
    log_file: Path | None = field(
        default=None,
        metadata=_server(_FILE, "Write the log to this file, too. At 10 MB it is rotated; five old ones are kept."),
    )
    trace: Path | None = field(
        default=None,
        metadata=_server(
            _DIRECTORY, "Directory for a redacted recording of this run's wire traffic, for a bug report."
        ),
    )
    trace_content: bool = field(
        default=False, metadata=_server(SWITCH, "Also record prompts and answers; keys and tokens are still left out.")
    )
    keep_alive: float = field(
        default=10.0, metadata=_server(_TIME, "Send a keep-alive to a streaming client after this much silence.")
    )
    first_event_patience: float = field(
        default=10.0,
        metadata=_server(_TIME, "How long the headers of a stream wait for its first event or error.", advanced=True),
    )
    fetch_images: ImageScope = field(
        default="off",
        metadata=_server(
            choice(get_args(ImageScope)),
            "Fetch images that a request names by URL: never, from public addresses, or from any address.",
        ),
    )
    shutdown_grace: float = field(
        default=5.0, metadata=_server(_GRACE, "How long running responses may continue after a request to stop.")
    )

    backend: BackendName = field(
        default="auto",
        metadata=_cursor(
            choice(get_args(BackendName)), "How to reach Cursor; auto picks the best one that you have credentials for."
        ),
    )
    api_key: str | None = field(
        default=None,
        repr=False,
        metadata=_cursor(
            FILLED_TEXT,
            "Your Cursor API key, for the sdk and agent backends.",
            extra_env=("CURSOR_API_KEY",),
            prefixed_env=False,  # CARETWAY_API_KEY is the gateway's own key
            secret=True,
        ),
    )
    access_token: str | None = field(
        default=None,
        repr=False,
        metadata=_cursor(
            FILLED_TEXT,
            "A Cursor access token for the agent backend, used as is instead of an API key.",
            secret=True,
        ),
    )
    auth_mode: AuthMode = field(
        default="own",
        metadata=_cursor(
            choice(get_args(AuthMode)),
            "Whose subscription to use: your own, or (passthrough) the one of each client, which sends its Cursor key.",
        ),
    )
    token_store: TokenStore = field(
        default="file",
        metadata=_cursor(
            choice(get_args(TokenStore)),
            "Where `caretway login` keeps the sign-in: a file in data_dir, or the system's keyring (extra keyring).",
        ),
    )
    agent_bin: str = field(
        default="",
        metadata=_cursor(
            TEXT, "The cursor-agent program.", extra_env=("CURSOR_AGENT_BIN",), default_text="looked for on the PATH"
        ),
    )
    auth_check_timeout: int = field(
        default=5000,
        metadata=_cursor(
            MILLISECONDS,
            "Time limit for asking cursor-agent who is signed in, in milliseconds.",
            advanced=True,
            extra_env=("CURSOR_ACP_AUTH_CHECK_TIMEOUT",),
        ),
    )
    cli_transport: CliTransport = field(
        default="auto",
        metadata=_cursor(
            choice(get_args(CliTransport)),
            "How to run cursor-agent: keep it running (acp), or start it per request (print); auto prefers acp.",
        ),
    )
    cli_mode: CliMode = field(
        default="ask",
        metadata=_cursor(
            choice(get_args(CliMode)),
            "What cursor-agent may do on its own: only read (ask), make plans (plan), everything that needs no "
            "permission (agent), or everything without asking (force).",
        ),
    )
    cli_tool_events: CliToolEvents = field(
        default="hidden",
        metadata=_cursor(
            choice(get_args(CliToolEvents)),
            "How to show the tools that cursor-agent ran itself; tool_calls is for clients that only display them.",
            advanced=True,
        ),
    )
    agent_url: str = field(
        default="https://api2.cursor.sh",
        metadata=_cursor(URL, "Base URL of Cursor, or of a stand-in for it, for sign-in, API and runs."),
    )
    api_url: str = field(
        default="",
        metadata=_cursor(
            URL_OR_NONE, "Base URL of the API alone: tokens, model lists, account.", default_text="agent_url"
        ),
    )
    run_url: str = field(
        default="",
        metadata=_cursor(
            URL_OR_NONE,
            "Base URL for runs alone; members of a team may need their own host.",
            default_text="as api_url, or the host that Cursor names for the account",
        ),
    )
    agent_transport: TransportName = field(
        default="auto",
        metadata=_cursor(choice(get_args(TransportName)), "HTTP version for the Agent API; auto tries HTTP/2 first."),
    )
    agent_ca: Path | None = field(
        default=None,
        metadata=_cursor(
            _FILE, "PEM file with certificate authorities to trust in addition to the system's.", exists="file"
        ),
    )
    proxy: str | None = field(
        default=None,
        repr=False,
        metadata=_cursor(
            FILLED_TEXT,
            "Proxy for what the gateway sends out: http, https, socks5 or socks5h://USER:PASSWORD@HOST:PORT; off uses "
            "none. Without it HTTPS_PROXY, ALL_PROXY and NO_PROXY decide.",
            secret=True,
        ),
    )
    proxy_loopback: bool = field(
        default=False,
        metadata=_cursor(SWITCH, "Use the proxy for addresses of this machine too.", advanced=True),
    )
    agent_client_version: str = field(
        default="",
        metadata=_cursor(
            TEXT, "Client version to send to the Agent API.", advanced=True, default_text="caretway-VERSION"
        ),
    )
    agent_ghost_mode: bool = field(
        default=True, metadata=_cursor(SWITCH, "Ask Cursor to handle requests in its privacy mode.", advanced=True)
    )
    agent_retries: int = field(
        default=2,
        metadata=_cursor(
            integer(0, 2),
            "How often to reopen a run for one request when nothing new arrived in between.",
            advanced=True,
        ),
    )
    agent_quirks: Quirks = field(
        default=Quirks(),
        metadata=_cursor(
            AGENT_QUIRKS,
            "Overrides of what is assumed about Cursor, as NAME=VALUE; `caretway prove` prints what to set.",
            advanced=True,
        ),
    )
    warm: bool = field(
        default=False,
        metadata=_cursor(SWITCH, "Start the backend's processes with the gateway and keep them when idle."),
    )
    models: tuple[str, ...] = field(
        default=(),
        metadata=_cursor(WORDS, "Models to list in addition to those that Cursor offers.", extra_env=("MODELS",)),
    )
    models_only: bool = field(
        default=False, metadata=_cursor(SWITCH, "List and accept the models named by `models`, and no others.")
    )
    strict_models: bool = field(
        default=False,
        metadata=_cursor(
            SWITCH, "Refuse a name that does not match a listed model exactly; otherwise a similar model answers."
        ),
    )
    model_aliases: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_cursor(
            ALIASES,
            "More names for models: NAME=ID, also with parameters behind it. NAME=ID|ID: the next one answers when "
            "Cursor refuses the one before it.",
        ),
    )
    model_parameters: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_cursor(
            PAIRS, "Parameters for requests that choose none: effort, thinking, fast, context, max; as in effort=high."
        ),
    )
    web_search: WebSearchBy = field(
        default="client",
        metadata=_cursor(
            choice(get_args(WebSearchBy)),
            "Who searches the web on agent and sdk: no one, the client's own tools, or Cursor on the account's quota.",
        ),
    )

    session: SessionName = field(
        default="auto",
        metadata=_sessions(
            choice(get_args(SessionName)),
            "auto resumes when safe and replays otherwise; fresh never resumes; required fails instead of replaying.",
        ),
    )
    thinking: ThinkingName = field(
        default="visible",
        metadata=_sessions(
            choice(get_args(ThinkingName)),
            "How clients see the model's thinking: in a field of its own, not at all, or inside the text.",
        ),
    )
    prompt_style: PromptStyle = field(
        default="tags",
        metadata=_sessions(
            choice(get_args(PromptStyle)),
            "How to write earlier tool calls for a backend that takes only text: in tags, or as a transcript.",
            advanced=True,
        ),
    )
    tool_strict: bool = field(
        default=False,
        metadata=_sessions(
            SWITCH,
            "Require a tool call when tools are offered: if the answer has none, ask once more, then accept it. "
            "An answer to tool results needs no call.",
            extra_env=("KILO_TOOL_STRICT",),
        ),
    )
    tool_arguments: ToolArguments = field(
        default="note",
        metadata=_sessions(
            choice(get_args(ToolArguments)),
            "What becomes of a call whose arguments do not fit the tool's schema: passed on with a note, or refused.",
        ),
    )
    max_tokens: MaxTokens = field(
        default="ignore",
        metadata=_sessions(
            choice(get_args(MaxTokens)),
            "What a client's max_tokens does: nothing, because Cursor has no such field, or cut the answer here by the "
            "gateway's own count.",
            advanced=True,
        ),
    )
    workspace: Path | None = field(
        default=None,
        metadata=_sessions(_DIRECTORY, "Directory that local tools and cursor-agent work in.", exists="directory"),
    )
    workspaces: tuple[Path, ...] = field(
        default=(),
        metadata=_sessions(
            PATHS, "More directories that a request may choose with x-caretway-workspace.", exists="directory"
        ),
    )
    local_tools: LocalTools = field(
        default="read-only",
        metadata=_sessions(
            choice(get_args(LocalTools)),
            "Tools to run on this machine when a request offers none; all adds shell and writing.",
        ),
    )
    tool_loop_max_repeat: int = field(
        default=2,
        metadata=_sessions(
            integer(0),
            "How often a call may repeat with the same result (5 times as often if it only looks or runs a command); "
            "0 is off.",
            extra_env=("TOOL_LOOP_MAX_REPEAT",),
        ),
    )
    no_progress: NoProgressRule = field(
        default="warn",
        metadata=_sessions(
            choice(get_args(NoProgressRule)),
            "When a model reads, lists and searches for many steps and finds nothing new: warn it or end the turn.",
        ),
    )
    parked_timeout: float = field(
        default=900.0,
        metadata=_sessions(
            _TIME, "How long a turn waits for tool results; at most a minute after a single forced call."
        ),
    )
    max_parked: int = field(
        default=200, metadata=_sessions(integer(1), "How many turns may wait for tool results at once.", advanced=True)
    )
    disconnect_grace: float = field(
        default=2.0, metadata=_sessions(_GRACE, "How long a turn continues after its client disconnects.")
    )
    store_max_age: float = field(
        default=7 * 86400.0, metadata=_sessions(_TIME, "Forget conversations that were not used for this long.")
    )
    ledger_max_age: float = field(
        default=400 * 86400.0,
        metadata=_sessions(_GRACE, "Delete records of usage older than this (`caretway usage`); 0 keeps no ledger."),
    )
    prices: Mapping[str, object] | None = field(
        default=None,
        metadata=_sessions(
            TREE, "Your own prices, dollars for a million tokens: tables [prices.MODEL] with input, output, cache_read."
        ),
    )

    mcp: Mapping[str, object] | None = field(
        default=None,
        repr=False,
        metadata=_mcp(TREE, "MCP servers whose tools are offered to models: tables [mcp.servers.NAME].", secret=True),
    )
    mcp_config: tuple[Path, ...] = field(
        default=(),
        metadata=_mcp(FILES, "Files that list MCP servers: .mcp.json, opencode.json, mcp.json or TOML.", exists="file"),
    )
    mcp_import: tuple[str, ...] = field(
        default=(),
        metadata=_mcp(
            WORDS,
            "Also use the MCP servers of opencode, claude or cursor; workspace means those of the project.",
        ),
    )
    mcp_offer: McpOffer = field(
        default="always",
        metadata=_mcp(
            choice(get_args(McpOffer)),
            "When to offer MCP tools: always, only to requests with x-caretway-mcp: on, or never.",
        ),
    )
    mcp_activity: McpActivity = field(
        default="hidden",
        metadata=_mcp(
            choice(get_args(McpActivity)),
            "What clients see of MCP calls: nothing, a note beside the answer, or lines in the reasoning.",
        ),
    )
    mcp_connect_timeout: float = field(
        default=30.0, metadata=_mcp(_TIME, "Time limit for starting an MCP server and listing its tools.")
    )
    mcp_call_timeout: float = field(
        default=300.0, metadata=_mcp(_TIME, "Time limit for one MCP call; each progress report restarts it.")
    )
    mcp_start_wait: float = field(
        default=5.0,
        metadata=_mcp(
            _GRACE, "How long the first requests wait for MCP servers that are still starting.", advanced=True
        ),
    )

    connect_timeout: float = field(
        default=8.0, metadata=_limit(_TIME, "Time limit for opening a connection to Cursor.")
    )
    call_timeout: float = field(
        default=30.0, metadata=_limit(_TIME, "Time limit for one call such as the model list.", advanced=True)
    )
    silence_timeout: float = field(
        default=30.0, metadata=_limit(_TIME, "Abandon a run when nothing at all arrives for this long.", advanced=True)
    )
    progress_timeout: float = field(
        default=90.0, metadata=_limit(_TIME, "Abandon a run when only heartbeats arrive for this long.")
    )
    cli_max_processes: int = field(
        default=4, metadata=_limit(integer(1, 256), "How many cursor-agent processes may run at once.")
    )
    cli_queue: int = field(
        default=32,
        metadata=_limit(
            integer(0), "How many requests may wait for a cursor-agent process; more are refused.", advanced=True
        ),
    )
    max_body_bytes: int = field(default=32 * 2**20, metadata=_limit(_BUFFER, "Largest request body to accept."))
    stream_buffer_bytes: int = field(
        default=2**20,
        metadata=_limit(
            _BUFFER, "Unread events to hold per response before applying backpressure to Cursor.", advanced=True
        ),
    )
    max_accounts: int = field(
        default=32,
        metadata=_limit(
            integer(1, 10_000), "How many client accounts to hold at once in passthrough mode.", advanced=True
        ),
    )
    max_concurrent: int = field(default=512, metadata=_limit(integer(1), "How many responses may run at once."))
    max_concurrent_per_key: int = field(
        default=128, metadata=_limit(integer(1), "How many responses may run at once for one gateway key.")
    )
    max_requests_per_minute: int = field(
        default=1200, metadata=_limit(integer(1), "How many requests per minute one gateway key may make.")
    )
    budgets: tuple[str, ...] = field(
        default=(),
        metadata=_limit(
            WORDS,
            "How much may be used, by everybody, by each key, in a conversation or in one run: runs=500/day, "
            "key.cents=500/month, conversation.tokens=5M, run.tokens=1M (docs/usage.md).",
        ),
    )
    hook: str | None = field(
        default=None,
        repr=False,
        metadata=_limit(
            FILLED_TEXT,
            "A command, or an http:// or https:// address, called when a budget is low or used up, when Cursor's "
            "usage is back, and when the sign-in is lost (docs/usage.md).",
            secret=True,
        ),
    )
    max_connections: int = field(
        default=2048, metadata=_limit(integer(1), "How many client connections may be open at once.", advanced=True)
    )
    response_timeout: float = field(
        default=7200.0, metadata=_limit(_TIME, "Time limit for one response, including the wait for its first event.")
    )

    cluster: str | None = field(
        default=None,
        repr=False,
        metadata=_cluster(
            REDIS_URL,
            "Redis or Valkey that several gateways share: redis://host:6379/0, or rediss:// for TLS. A URL with a "
            "password belongs in the variable or the file (docs/cluster.md).",
        ),
    )
    cluster_name: str = field(
        default="default",
        metadata=_cluster(
            NAME, "Prefix of all names in Redis, so that two clusters can share one Redis.", advanced=True
        ),
    )
    cluster_key: str | None = field(
        default=None,
        repr=False,
        metadata=_cluster(
            FILLED_TEXT, "The secret that all gateways of a cluster share; `caretway key new` makes one.", secret=True
        ),
    )
    cluster_key_file: Path | None = field(
        default=None, metadata=_cluster(_FILE, "File with the cluster's key in its only line.", exists="file")
    )
    cluster_address: str | None = field(
        default=None,
        metadata=_cluster(
            URL,
            "How the other gateways reach this one: https://10.0.0.7:32124.",
            default_text="the address that it listens on",
        ),
    )
    cluster_drain: float = field(
        default=30.0,
        metadata=_cluster(_GRACE, "How long turns that wait for tool results stay reachable after a request to stop."),
    )
    cluster_ca: Path | None = field(
        default=None,
        metadata=_cluster(
            _FILE,
            "PEM file with the authority that signed the certificates of Redis and of the other gateways.",
            default_text="those that the system trusts",
            exists="file",
        ),
    )
    cluster_budgets: WhenAway = field(
        default="refuse",
        metadata=_cluster(
            choice(get_args(WhenAway)),
            "What becomes of runs that have a budget while Redis is away, or budgets.sqlite cannot be opened: refuse "
            "them, or allow them and count later.",
        ),
    )
    cluster_plaintext: bool = field(
        default=False,
        metadata=_cluster(SWITCH, "Use no TLS between gateways, because their network is encrypted by other means."),
    )

    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The source of each value; read it with `origin`."""

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            value = getattr(self, setting.name)
            if value is not None or setting.default is not None:
                object.__setattr__(self, setting.name, setting.read(value, self.origin(setting.name)))

    # Written by hand: a generated method with a term for each field is long and is compiled at every start.

    def __repr__(self) -> str:
        shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
        return f"Settings({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, Settings) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, item.name) for item in fields(self) if item.compare)

    @classmethod
    def from_environment(cls, **values: Any) -> "Settings":
        """The settings of `caretway serve`: the user's file and this process's variables, including `CURSOR_API_KEY`.
        `values` override both."""
        from .loading import load_from_process

        loaded = load_from_process({})
        origins = MappingProxyType({**loaded.origins, **dict.fromkeys(values, "code")})
        return replace(loaded, **values, origins=origins)

    def origin(self, name: str) -> str:
        """`default`, `file PATH`, `environment NAME`, `flag --NAME`, or `code` for a value given by the program."""
        setting = setting_named(name, "code")
        if (origin := self.origins.get(name)) is not None:
            return origin
        return "default" if getattr(self, name) == setting.default else "code"


SETTINGS: Final = rows(fields(Settings))
BY_NAME: Final[Mapping[str, Setting]] = MappingProxyType({setting.name: setting for setting in SETTINGS})


def setting_named(name: str, origin: str) -> Setting:
    if (setting := BY_NAME.get(name)) is None:
        raise ConfigError(name, origin, f'there is no setting "{name}"{hint(name.lower(), BY_NAME)}')
    return setting
