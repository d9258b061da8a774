"""The table of all settings: one field each, with default, help and bounds. `setting_named` rejects an unknown name.

The file is long because it is one table: a setting is one row, whatever its group. Sources of values are in `loading`;
effects are in the modules that use a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from .kinds import (
    ALIASES,
    FILES,
    FILLED_TEXT,
    MILLISECONDS,
    NAME,
    PAIRS,
    PATHS,
    REDIS_URL,
    TEXT,
    TREE,
    URL,
    URL_OR_NONE,
    WORDS,
    ConfigError,
    Setting,
    declared,
    duration,
    hint,
    integer,
    path,
    rows,
    size,
)
from .places import data_directory
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

    host: str = _server("127.0.0.1", "Address to listen on.", FILLED_TEXT, extra_env=("HOST",))
    port: int = _server(32124, "TCP port to listen on; 0 picks a free one.", integer(0, 65535), extra_env=("PORT",))
    gateway_key: str | None = _server(
        None,
        "The gateway's own key, which clients must send. Not your Cursor key; `caretway key new` makes one.",
        FILLED_TEXT,
        extra_env=("CARETWAY_API_KEY",),
        secret=True,
    )
    api_key_file: Path | None = _server(
        None, "File with the keys that clients may use, one per line (`caretway key new`).", _FILE, exists="file"
    )
    allowed_hosts: tuple[str, ...] = _server(
        (),
        "Host names that clients may use to reach the gateway, besides localhost and IP addresses; * allows all.",
        WORDS,
    )
    allowed_origins: tuple[str, ...] = _server(
        (), "Web pages that may call the gateway, as in https://app.example; * allows every page.", WORDS
    )
    tls_cert: Path | None = _server(None, "PEM file with the certificate chain for HTTPS.", _FILE, exists="file")
    tls_key: Path | None = _server(None, "PEM file with the certificate's private key.", _FILE, exists="file")
    config: Path | None = _server(
        None, "TOML file with settings.", _FILE, default_text="caretway/config.toml in the user's config directory"
    )
    data_dir: Path = _server(
        data_directory,
        "Directory for sign-ins, conversations and caches.",
        _DIRECTORY,
        default_text="caretway in the user's data directory",
    )
    log_level: LogLevel = _server("info", "Lowest level of log lines to write.")
    log_format: LogFormat = _server("text", "How log lines are written: for people, or as JSON.")
    log_file: Path | None = _server(
        None, "Write the log to this file, too. At 10 MB it is rotated; five old ones are kept.", _FILE
    )
    trace: Path | None = _server(
        None, "Directory for a redacted recording of this run's wire traffic, for a bug report.", _DIRECTORY
    )
    trace_content: bool = _server(False, "Also record prompts and answers; keys and tokens are still left out.")
    keep_alive: float = _server(10.0, "Send a keep-alive to a streaming client after this much silence.", _TIME)
    first_event_patience: float = _server(
        10.0, "How long the headers of a stream wait for its first event or error.", _TIME, advanced=True
    )
    fetch_images: ImageScope = _server(
        "off", "Fetch images that a request names by URL: never, from public addresses, or from any address."
    )
    shutdown_grace: float = _server(5.0, "How long running responses may continue after a request to stop.", _GRACE)

    backend: BackendName = _cursor(
        "auto", "How to reach Cursor; auto picks the best one that you have credentials for."
    )
    api_key: str | None = _cursor(
        None,
        "Your Cursor API key, for the sdk and agent backends.",
        FILLED_TEXT,
        extra_env=("CURSOR_API_KEY",),
        prefixed_env=False,  # CARETWAY_API_KEY is the gateway's own key
        secret=True,
    )
    access_token: str | None = _cursor(
        None, "A Cursor access token for the agent backend, used as is instead of an API key.", FILLED_TEXT, secret=True
    )
    auth_mode: AuthMode = _cursor(
        "own",
        "Whose subscription to use: your own, or (passthrough) the one of each client, which sends its Cursor key.",
    )
    token_store: TokenStore = _cursor(
        "file", "Where `caretway login` keeps the sign-in: a file in data_dir, or the system's keyring (extra keyring)."
    )
    agent_bin: str = _cursor(
        "", "The cursor-agent program.", TEXT, extra_env=("CURSOR_AGENT_BIN",), default_text="looked for on the PATH"
    )
    auth_check_timeout: int = _cursor(
        5000,
        "Time limit for asking cursor-agent who is signed in, in milliseconds.",
        MILLISECONDS,
        advanced=True,
        extra_env=("CURSOR_ACP_AUTH_CHECK_TIMEOUT",),
    )
    cli_transport: CliTransport = _cursor(
        "auto", "How to run cursor-agent: keep it running (acp), or start it per request (print); auto prefers acp."
    )
    cli_mode: CliMode = _cursor(
        "ask",
        "What cursor-agent may do on its own: only read (ask), make plans (plan), everything that needs no "
        "permission (agent), or everything without asking (force).",
    )
    cli_tool_events: CliToolEvents = _cursor(
        "hidden",
        "How to show the tools that cursor-agent ran itself; tool_calls is for clients that only display them.",
        advanced=True,
    )
    agent_url: str = _cursor(
        "https://api2.cursor.sh", "Base URL of Cursor, or of a stand-in for it, for sign-in, API and runs.", URL
    )
    api_url: str = _cursor(
        "", "Base URL of the API alone: tokens, model lists, account.", URL_OR_NONE, default_text="agent_url"
    )
    run_url: str = _cursor(
        "",
        "Base URL for runs alone; members of a team may need their own host.",
        URL_OR_NONE,
        default_text="as api_url, or the host that Cursor names for the account",
    )
    agent_transport: TransportName = _cursor("auto", "HTTP version for the Agent API; auto tries HTTP/2 first.")
    agent_ca: Path | None = _cursor(
        None, "PEM file with certificate authorities to trust in addition to the system's.", _FILE, exists="file"
    )
    proxy: str | None = _cursor(
        None,
        "Proxy for what the gateway sends out: http, https, socks5 or socks5h://USER:PASSWORD@HOST:PORT; off uses "
        "none. Without it HTTPS_PROXY, ALL_PROXY and NO_PROXY decide.",
        FILLED_TEXT,
        secret=True,
    )
    proxy_loopback: bool = _cursor(False, "Use the proxy for addresses of this machine too.", advanced=True)
    agent_client_version: str = _cursor(
        "", "Client version to send to the Agent API.", TEXT, advanced=True, default_text="caretway-VERSION"
    )
    agent_ghost_mode: bool = _cursor(True, "Ask Cursor to handle requests in its privacy mode.", advanced=True)
    agent_retries: int = _cursor(
        2,
        "How often to reopen a run for one request when nothing new arrived in between.",
        integer(0, 2),
        advanced=True,
    )
    agent_quirks: Quirks = _cursor(
        Quirks(),
        "Overrides of what is assumed about Cursor, as NAME=VALUE; `caretway prove` prints what to set.",
        AGENT_QUIRKS,
        advanced=True,
    )
    warm: bool = _cursor(False, "Start the backend's processes with the gateway and keep them when idle.")
    models: tuple[str, ...] = _cursor(
        (), "Models to list in addition to those that Cursor offers.", WORDS, extra_env=("MODELS",)
    )
    models_only: bool = _cursor(False, "List and accept the models named by `models`, and no others.")
    strict_models: bool = _cursor(
        False, "Refuse a name that does not match a listed model exactly; otherwise a similar model answers."
    )
    model_aliases: Mapping[str, str] = _cursor(
        dict,
        "More names for models: NAME=ID, also with parameters behind it. NAME=ID|ID: the next one answers when "
        "Cursor refuses the one before it.",
        ALIASES,
    )
    model_parameters: Mapping[str, str] = _cursor(
        dict,
        "Parameters for requests that choose none: effort, thinking, fast, context, max; as in effort=high.",
        PAIRS,
    )
    web_search: WebSearchBy = _cursor(
        "client",
        "Who searches the web on agent and sdk: no one, the client's own tools, or Cursor on the account's quota.",
    )

    session: SessionName = _sessions(
        "auto",
        "auto resumes when safe and replays otherwise; fresh never resumes; required fails instead of replaying.",
    )
    thinking: ThinkingName = _sessions(
        "visible", "How clients see the model's thinking: in a field of its own, not at all, or inside the text."
    )
    prompt_style: PromptStyle = _sessions(
        "tags",
        "How to write earlier tool calls for a backend that accepts only text: in tags, or as a transcript.",
        advanced=True,
    )
    tool_strict: bool = _sessions(
        False,
        "Require a tool call when tools are offered: if the answer has none, ask once more, then accept it. "
        "An answer to tool results needs no call.",
        extra_env=("KILO_TOOL_STRICT",),
    )
    tool_arguments: ToolArguments = _sessions(
        "note",
        "What becomes of a call whose arguments do not fit the tool's schema: passed on with a note, or refused.",
    )
    max_tokens: MaxTokens = _sessions(
        "ignore",
        "What a client's max_tokens does: nothing, because Cursor has no such field, or cut the answer here by the "
        "gateway's own count.",
        advanced=True,
    )
    workspace: Path | None = _sessions(
        None, "Directory that local tools and cursor-agent work in.", _DIRECTORY, exists="directory"
    )
    workspaces: tuple[Path, ...] = _sessions(
        (), "More directories that a request may choose with x-caretway-workspace.", PATHS, exists="directory"
    )
    local_tools: LocalTools = _sessions(
        "read-only", "Tools to run on this machine when a request offers none; all adds shell and writing."
    )
    tool_loop_max_repeat: int = _sessions(
        2,
        "How often a call may repeat with the same result (5 times as often if it only looks or runs a command); "
        "0 is off.",
        integer(0),
        extra_env=("TOOL_LOOP_MAX_REPEAT",),
    )
    no_progress: NoProgressRule = _sessions(
        "warn", "When a model reads, lists and searches for many steps and finds nothing new: warn it or end the turn."
    )
    parked_timeout: float = _sessions(
        900.0, "How long a turn waits for tool results; at most a minute after a single forced call.", _TIME
    )
    max_parked: int = _sessions(200, "How many turns may wait for tool results at once.", integer(1), advanced=True)
    disconnect_grace: float = _sessions(2.0, "How long a turn continues after its client disconnects.", _GRACE)
    store_max_age: float = _sessions(7 * 86400.0, "Forget conversations that were not used for this long.", _TIME)
    ledger_max_age: float = _sessions(
        400 * 86400.0, "Delete records of usage older than this (`caretway usage`); 0 keeps no ledger.", _GRACE
    )
    prices: Mapping[str, object] | None = _sessions(
        None,
        "Your own prices, dollars for a million tokens: tables [prices.MODEL] with input, output, cache_read.",
        TREE,
    )

    mcp: Mapping[str, object] | None = _mcp(
        None, "MCP servers whose tools are offered to models: tables [mcp.servers.NAME].", TREE, secret=True
    )
    mcp_config: tuple[Path, ...] = _mcp(
        (), "Files that list MCP servers: .mcp.json, opencode.json, mcp.json or TOML.", FILES, exists="file"
    )
    mcp_import: tuple[str, ...] = _mcp(
        (), "Also use the MCP servers of opencode, claude or cursor; workspace means those of the project.", WORDS
    )
    mcp_offer: McpOffer = _mcp(
        "always", "When to offer MCP tools: always, only to requests with x-caretway-mcp: on, or never."
    )
    mcp_activity: McpActivity = _mcp(
        "hidden", "What clients see of MCP calls: nothing, a note beside the answer, or lines in the reasoning."
    )
    mcp_connect_timeout: float = _mcp(30.0, "Time limit for starting an MCP server and listing its tools.", _TIME)
    mcp_call_timeout: float = _mcp(300.0, "Time limit for one MCP call; each progress report restarts it.", _TIME)
    mcp_start_wait: float = _mcp(
        5.0, "How long the first requests wait for MCP servers that are still starting.", _GRACE, advanced=True
    )

    connect_timeout: float = _limit(8.0, "Time limit for opening a connection to Cursor.", _TIME)
    call_timeout: float = _limit(30.0, "Time limit for one call such as the model list.", _TIME, advanced=True)
    silence_timeout: float = _limit(
        30.0, "Abandon a run when nothing at all arrives for this long.", _TIME, advanced=True
    )
    progress_timeout: float = _limit(90.0, "Abandon a run when only heartbeats arrive for this long.", _TIME)
    cli_max_processes: int = _limit(4, "How many cursor-agent processes may run at once.", integer(1, 256))
    cli_queue: int = _limit(
        32, "How many requests may wait for a cursor-agent process; more are refused.", integer(0), advanced=True
    )
    max_body_bytes: int = _limit(32 * 2**20, "Largest request body to accept.", _BUFFER)
    stream_buffer_bytes: int = _limit(
        2**20, "Unread events to hold per response before applying backpressure to Cursor.", _BUFFER, advanced=True
    )
    max_accounts: int = _limit(
        32, "How many client accounts to hold at once in passthrough mode.", integer(1, 10_000), advanced=True
    )
    max_concurrent: int = _limit(512, "How many responses may run at once.", integer(1))
    max_concurrent_per_key: int = _limit(128, "How many responses may run at once for one gateway key.", integer(1))
    max_requests_per_minute: int = _limit(1200, "How many requests per minute one gateway key may make.", integer(1))
    budgets: tuple[str, ...] = _limit(
        (),
        "How much may be used, by everybody, by each key, in a conversation or in one run: runs=500/day, "
        "key.cents=500/month, conversation.tokens=5M, run.tokens=1M (docs/usage.md).",
        WORDS,
    )
    hook: str | None = _limit(
        None,
        "A command, or an http:// or https:// address, called when a budget is low or used up, when Cursor's "
        "usage is back, and when the sign-in is lost (docs/usage.md).",
        FILLED_TEXT,
        secret=True,
    )
    max_connections: int = _limit(2048, "How many client connections may be open at once.", integer(1), advanced=True)
    response_timeout: float = _limit(
        7200.0, "Time limit for one response, including the wait for its first event.", _TIME
    )

    cluster: str | None = _cluster(
        None,
        "Redis or Valkey that several gateways share: redis://host:6379/0, or rediss:// for TLS. A URL with a "
        "password belongs in the variable or the file (docs/cluster.md).",
        REDIS_URL,
        hidden=True,
    )
    cluster_name: str = _cluster(
        "default", "Prefix of all names in Redis, so that two clusters can share one Redis.", NAME, advanced=True
    )
    cluster_key: str | None = _cluster(
        None, "The secret that all gateways of a cluster share; `caretway key new` makes one.", FILLED_TEXT, secret=True
    )
    cluster_key_file: Path | None = _cluster(
        None, "File with the cluster's key in its only line.", _FILE, exists="file"
    )
    cluster_address: str | None = _cluster(
        None,
        "How the other gateways reach this one: https://10.0.0.7:32124.",
        URL,
        default_text="the address that it listens on",
    )
    cluster_drain: float = _cluster(
        30.0, "How long turns that wait for tool results stay reachable after a request to stop.", _GRACE
    )
    cluster_ca: Path | None = _cluster(
        None,
        "PEM file with the authority that signed the certificates of Redis and of the other gateways.",
        _FILE,
        default_text="those that the system trusts",
        exists="file",
    )
    cluster_budgets: WhenAway = _cluster(
        "refuse",
        "What becomes of runs that have a budget while Redis is away, or budgets.sqlite cannot be opened: refuse "
        "them, or allow them and count later.",
    )
    cluster_plaintext: bool = _cluster(
        False, "Use no TLS between gateways, because their network is encrypted by other means."
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
