"""The table of settings: the fields of `Settings`, with all that flags, variables, TOML keys and docs need to know.

Refuses to know where values come from (loading.py) and what a setting does (whoever uses it).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, get_args

from .kinds import (
    FILES,
    FILLED_TEXT,
    MILLISECONDS,
    PAIRS,
    PATHS,
    SWITCH,
    TEXT,
    TREE,
    URL,
    WORDS,
    choice,
    duration,
    integer,
    path,
    size,
)
from .places import process_data_directory
from .row import ConfigError, Setting, declared, nearest, rows

SERVER: Final = "server"
CURSOR: Final = "Cursor"
SESSIONS: Final = "sessions and tools"
MCP: Final = "MCP servers"
LIMITS: Final = "limits"
GROUPS: Final = (SERVER, CURSOR, SESSIONS, MCP, LIMITS)

BackendName = Literal["auto", "sdk", "cli", "agent", "legacy-chat", "simulator"]
TransportName = Literal["auto", "h2", "http1"]
SessionName = Literal["auto", "fresh", "required"]
ThinkingName = Literal["visible", "hide", "inline"]
PromptStyle = Literal["tags", "transcript"]
SystemDelivery = Literal["rule", "root"]
HistoryCarrier = Literal["root", "typed"]
SdkSystemDelivery = Literal["message", "rules"]
CliTransport = Literal["auto", "acp", "print"]
CliMode = Literal["ask", "plan", "agent"]
CliToolEvents = Literal["hidden", "reasoning", "tool_calls"]
LocalTools = Literal["read-only", "all", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]
AuthMode = Literal["own", "passthrough"]
TokenStore = Literal["file", "keyring"]
ImageScope = Literal["off", "public", "any"]
McpOffer = Literal["always", "ask", "never"]
McpActivity = Literal["hidden", "note", "reasoning"]

_server, _cursor = partial(declared, SERVER), partial(declared, CURSOR)
_sessions, _limit = partial(declared, SESSIONS), partial(declared, LIMITS)
_mcp = partial(declared, MCP)
_TIME: Final = duration()
_GRACE: Final = duration(zero=True)
_FILE: Final = path("a file")
_DIRECTORY: Final = path("a directory")
_BUFFER: Final = size(1024)


CLI_ALIASES: Final[Mapping[str, str]] = dict.fromkeys(
    ("gpt-4", "gpt-4o", "gpt-3.5-turbo", "claude-sonnet-4-5", "claude-opus-4-5", "claude-3-5-sonnet"), "auto"
)
"""Names that clients have built in. Where Cursor has a model of that name, that model is meant."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every value the gateway can be told. Making one by hand checks it as strictly as loading does."""

    host: str = field(default="127.0.0.1", metadata=_server(FILLED_TEXT, "Address to listen on.", extra_env=("HOST",)))
    port: int = field(
        default=32124,
        metadata=_server(integer(0, 65535), "TCP port to listen on; 0 takes any free one.", extra_env=("PORT",)),
    )
    gateway_key: str | None = field(
        default=None,
        repr=False,
        metadata=_server(
            FILLED_TEXT,
            "The gateway's own key: clients must send it. Not your Cursor key; `caretway key new` makes one.",
            extra_env=("CARETWAY_API_KEY",),
            secret=True,
        ),
    )
    api_key_file: Path | None = field(
        default=None,
        metadata=_server(
            _FILE, "File with the keys that clients may send, one on each line (`caretway key new`).", exists="file"
        ),
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata=_server(
            WORDS, "Host names that clients may address, besides localhost and IP addresses; * allows every name."
        ),
    )
    allowed_origins: tuple[str, ...] = field(
        default=(),
        metadata=_server(
            WORDS, "Web pages that may use the gateway, as in https://app.example; * allows every page there is."
        ),
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=_server(_FILE, "PEM file with the certificate (chain) to serve HTTPS with.", exists="file"),
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
            "Where logins, conversations and caches are kept.",
            default_text="caretway in the user's data directory",
        ),
    )
    log_level: LogLevel = field(
        default="info", metadata=_server(choice(get_args(LogLevel)), "Least important log lines to write.")
    )
    trace: Path | None = field(
        default=None,
        metadata=_server(_DIRECTORY, "Record the wire traffic of this run there, redacted, for a bug report."),
    )
    trace_content: bool = field(
        default=False, metadata=_server(SWITCH, "Record prompts and answers too; keys and tokens are still left out.")
    )
    trace_max_bytes: int = field(default=64 * 2**20, metadata=_server(_BUFFER, "Size at which a recording stops."))
    keep_alive: float = field(
        default=10.0, metadata=_server(_TIME, "Send a sign of life to a streaming client after this much silence.")
    )
    first_event_patience: float = field(
        default=10.0, metadata=_server(_TIME, "How long a stream's headers wait for the first event, or its error.")
    )
    fetch_images: ImageScope = field(
        default="off",
        metadata=_server(choice(get_args(ImageScope)), "Fetch images that a request names by URL, from where."),
    )
    fetch_images_timeout: float = field(
        default=10.0, metadata=_server(_TIME, "Limit for fetching one image, all in all.")
    )
    fetch_images_bytes: int = field(
        default=20 * 2**20, metadata=_server(_BUFFER, "Largest image that is fetched for a request.")
    )
    shutdown_grace: float = field(
        default=5.0, metadata=_server(_GRACE, "How long running responses may go on after a request to stop.")
    )

    backend: BackendName = field(
        default="auto",
        metadata=_cursor(
            choice(get_args(BackendName)), "Way to reach Cursor; auto takes the best one there are credentials for."
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
            "A Cursor access token for the agent backend, used as it is instead of an API key.",
            secret=True,
        ),
    )
    auth_mode: AuthMode = field(
        default="own",
        metadata=_cursor(
            choice(get_args(AuthMode)),
            "Whose subscription is used: your own, or (passthrough) that of each client, which sends its Cursor key.",
        ),
    )
    token_store: TokenStore = field(
        default="file",
        metadata=_cursor(
            choice(get_args(TokenStore)),
            "Where `caretway login` keeps the sign-in: a file in data_dir, or the system's keyring (extra keyring).",
        ),
    )
    login_url: str = field(
        default="https://cursor.com",
        metadata=_cursor(URL, "Web site that `caretway login` opens; with another agent_url, that one unless given."),
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
            "Limit for asking cursor-agent who is signed in, in milliseconds.",
            extra_env=("CURSOR_ACP_AUTH_CHECK_TIMEOUT",),
        ),
    )
    cli_transport: CliTransport = field(
        default="auto",
        metadata=_cursor(
            choice(get_args(CliTransport)),
            "How cursor-agent is run: warm (acp), or one process per request (print); auto takes acp where it can.",
        ),
    )
    cli_mode: CliMode = field(
        default="ask",
        metadata=_cursor(
            choice(get_args(CliMode)), "What cursor-agent may do by itself: read (ask), plan, or everything (agent)."
        ),
    )
    cli_force: bool = field(
        default=False,
        metadata=_cursor(SWITCH, "Let cursor-agent run tools without asking; only in the mode agent."),
    )
    cli_tool_events: CliToolEvents = field(
        default="hidden",
        metadata=_cursor(
            choice(get_args(CliToolEvents)),
            "How the tools that cursor-agent ran itself are shown; tool_calls is for clients that only look on.",
        ),
    )
    cli_aliases: Mapping[str, str] = field(
        default_factory=lambda: dict(CLI_ALIASES),
        metadata=_cursor(
            PAIRS,
            "Further models to list for cursor-agent, and what they stand for: NAME=ID.",
            default_text="common OpenAI and Anthropic names, as auto",
        ),
    )
    agent_url: str = field(
        default="https://api2.cursor.sh",
        metadata=_cursor(URL, "Base address of the Agent API, its sign-in and its model list."),
    )
    agent_transport: TransportName = field(
        default="auto",
        metadata=_cursor(choice(get_args(TransportName)), "HTTP version for the Agent API; auto tries HTTP/2 first."),
    )
    agent_ca: Path | None = field(
        default=None,
        metadata=_cursor(_FILE, "PEM file with the authority to trust instead of the system's.", exists="file"),
    )
    agent_client_type: str = field(
        default="sdk", metadata=_cursor(FILLED_TEXT, "Client type to state to the Agent API.")
    )
    agent_client_version: str = field(
        default="",
        metadata=_cursor(TEXT, "Client version to state to the Agent API.", default_text="caretway-VERSION"),
    )
    agent_ghost_mode: bool = field(
        default=True, metadata=_cursor(SWITCH, "Ask Cursor to handle the requests in its privacy mode.")
    )
    agent_timezone: str = field(
        default="", metadata=_cursor(TEXT, "IANA time zone to state to the Agent API.", default_text="not sent")
    )
    agent_checksum: bool = field(default=False, metadata=_cursor(SWITCH, "Send the checksum header of older clients."))
    agent_retries: int = field(
        default=2,
        metadata=_cursor(integer(0, 2), "How many runs to open again for one request without progress in between."),
    )
    system_delivery: SystemDelivery = field(
        default="rule",
        metadata=_cursor(
            choice(get_args(SystemDelivery)), "Where the system prompt travels: as a rule, or in the root prompt."
        ),
    )
    history_carrier: HistoryCarrier = field(
        default="root",
        metadata=_cursor(
            choice(get_args(HistoryCarrier)), "How earlier messages travel: in the root prompt, or as typed turns."
        ),
    )
    warm: bool = field(
        default=False,
        metadata=_cursor(
            SWITCH, "Start the backend's processes with the gateway, and keep them when nobody uses them."
        ),
    )
    sdk_system_delivery: SdkSystemDelivery = field(
        default="message",
        metadata=_cursor(
            choice(get_args(SdkSystemDelivery)),
            "Where the system prompt travels on the sdk backend: in the first message, or as a rule file.",
        ),
    )
    sdk_max_agents: int = field(
        default=64, metadata=_cursor(integer(1), "How many conversations the sdk backend keeps so that they can go on.")
    )
    sdk_memory_limit: int = field(
        default=600 * 2**20,
        metadata=_cursor(size(64 * 2**20), "Replace the SDK's bridge process when it has grown past this."),
    )
    sdk_idle_timeout: float = field(
        default=900.0, metadata=_cursor(_TIME, "Stop the SDK's bridge process when nobody used it for this long.")
    )
    sdk_start_timeout: float = field(
        default=60.0, metadata=_cursor(_TIME, "Limit for the start of the SDK's bridge process.")
    )
    models: tuple[str, ...] = field(
        default=(),
        metadata=_cursor(WORDS, "Models to list besides those that Cursor offers.", extra_env=("MODELS",)),
    )
    strict_models: bool = field(
        default=False, metadata=_cursor(SWITCH, "Refuse model ids that are not in the list instead of passing them on.")
    )
    model_aliases: Mapping[str, str] = field(
        default_factory=dict, metadata=_cursor(PAIRS, "Further names for models: NAME=ID.")
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
            "What clients get of the model's thinking: in a field of its own, nothing, or within the text.",
        ),
    )
    prompt_style: PromptStyle = field(
        default="tags",
        metadata=_sessions(
            choice(get_args(PromptStyle)),
            "How earlier tool calls are told to a backend that takes text only: in tags, or as a transcript.",
        ),
    )
    tool_strict: bool = field(
        default=False,
        metadata=_sessions(
            SWITCH,
            "Treat offered tools as required: an answer without a call is tried again once, then it is an error.",
            extra_env=("KILO_TOOL_STRICT",),
        ),
    )
    workspace: Path | None = field(
        default=None,
        metadata=_sessions(_DIRECTORY, "Directory that local tools and cursor-agent work in.", exists="directory"),
    )
    workspaces: tuple[Path, ...] = field(
        default=(),
        metadata=_sessions(
            PATHS, "Further directories that a request may choose with x-caretway-workspace.", exists="directory"
        ),
    )
    local_tools: LocalTools = field(
        default="read-only",
        metadata=_sessions(
            choice(get_args(LocalTools)), "Tools run here when a request brings none; all adds shell and writing."
        ),
    )
    local_shell_timeout: float = field(default=120.0, metadata=_sessions(_TIME, "Limit for one local shell command."))
    local_output_bytes: int = field(
        default=200_000, metadata=_sessions(size(1), "How much of a local tool's output is kept.")
    )
    tool_loop_max_repeat: int = field(
        default=2,
        metadata=_sessions(
            integer(0),
            "How often a call may repeat with the same result before the loop guard steps in; 0 switches it off.",
            extra_env=("TOOL_LOOP_MAX_REPEAT",),
        ),
    )
    sibling_quiet: float = field(
        default=0.15, metadata=_sessions(_GRACE, "How long to wait for further parallel tool calls.")
    )
    parked_timeout: float = field(
        default=900.0,
        metadata=_sessions(_TIME, "How long a turn waits for tool results; a minute at most after one forced call."),
    )
    max_parked: int = field(
        default=200, metadata=_sessions(integer(1), "How many turns may wait for tool results at once.")
    )
    disconnect_grace: float = field(
        default=2.0, metadata=_sessions(_GRACE, "How long a turn outlives a client that hung up.")
    )
    store_max_age: float = field(
        default=7 * 86400.0, metadata=_sessions(_TIME, "Conversations unused for longer are forgotten.")
    )
    store_max_bytes: int = field(
        default=256 * 2**20, metadata=_sessions(size(2**20), "Size that the conversation store is kept below.")
    )

    mcp: Mapping[str, object] | None = field(
        default=None,
        repr=False,
        metadata=_mcp(TREE, "MCP servers whose tools are offered to models: tables [mcp.servers.NAME].", secret=True),
    )
    mcp_config: tuple[Path, ...] = field(
        default=(),
        metadata=_mcp(
            FILES, "Files with further MCP servers: .mcp.json, opencode.json, mcp.json or TOML.", exists="file"
        ),
    )
    mcp_import: tuple[str, ...] = field(
        default=(),
        metadata=_mcp(WORDS, "Programs whose own MCP servers are used too: opencode, claude, cursor."),
    )
    mcp_offer: McpOffer = field(
        default="always",
        metadata=_mcp(
            choice(get_args(McpOffer)),
            "When MCP tools are offered: always, when a request asks with x-caretway-mcp: on, or never.",
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
        default=30.0, metadata=_mcp(_TIME, "Limit for starting an MCP server and listing its tools.")
    )
    mcp_call_timeout: float = field(
        default=300.0, metadata=_mcp(_TIME, "Limit for one MCP call; every sign of progress starts it anew.")
    )
    mcp_start_wait: float = field(
        default=5.0, metadata=_mcp(_GRACE, "How long the first requests wait for MCP servers that are still starting.")
    )
    mcp_retry_pause: float = field(
        default=1.0, metadata=_mcp(_TIME, "First pause before a lost MCP server is tried again; doubles up to 1m.")
    )
    mcp_result_bytes: int = field(
        default=200_000, metadata=_mcp(size(1), "How much text of one MCP result the model is given.")
    )
    mcp_max_tools: int = field(default=1000, metadata=_mcp(integer(1), "How many tools of one MCP server are offered."))

    connect_timeout: float = field(default=8.0, metadata=_limit(_TIME, "Limit for opening a connection to Cursor."))
    call_timeout: float = field(default=30.0, metadata=_limit(_TIME, "Limit for one call such as the model list."))
    silence_timeout: float = field(
        default=30.0, metadata=_limit(_TIME, "Give a run up when nothing at all arrives for this long.")
    )
    progress_timeout: float = field(
        default=90.0, metadata=_limit(_TIME, "Give a run up when only signs of life arrive for this long.")
    )
    tool_progress_timeout: float = field(
        default=600.0, metadata=_limit(_TIME, "The same limit while a tool call is open.")
    )
    cli_max_processes: int = field(
        default=4, metadata=_limit(integer(1, 256), "How many cursor-agent processes may exist at once.")
    )
    cli_queue: int = field(
        default=32, metadata=_limit(integer(0), "How many requests may wait for one of them; more are refused.")
    )
    cli_exit_grace: float = field(
        default=2.0, metadata=_limit(_TIME, "How long a cursor-agent process may outlive its answer, or a cancel.")
    )
    cli_idle_timeout: float = field(
        default=300.0, metadata=_limit(_TIME, "How long a warm cursor-agent process waits for its next turn.")
    )
    cli_max_line_bytes: int = field(
        default=16 * 2**20, metadata=_limit(_BUFFER, "Longest line that is accepted from cursor-agent.")
    )
    gather: float = field(
        default=0.012,
        metadata=_limit(
            _GRACE,
            "While several runs speak at a time, wait this long and read what they say together; 0: never.",
        ),
    )
    client_heartbeat: float = field(
        default=5.0, metadata=_limit(_TIME, "Interval of signs of life to Cursor during a run.")
    )
    exec_heartbeat: float = field(
        default=3.0, metadata=_limit(_TIME, "Interval of signs of life to Cursor while a tool runs.")
    )
    max_body_bytes: int = field(default=32 * 2**20, metadata=_limit(_BUFFER, "Largest request body that is accepted."))
    max_frame_bytes: int = field(
        default=16 * 2**20, metadata=_limit(_BUFFER, "Largest single message that is accepted from Cursor.")
    )
    max_answer_bytes: int = field(
        default=8 * 2**20, metadata=_limit(_BUFFER, "Longest answer that is accepted from a model, calls included.")
    )
    stream_buffer_bytes: int = field(
        default=2**20, metadata=_limit(_BUFFER, "Unread events per response before Cursor is made to wait.")
    )
    max_accounts: int = field(
        default=32,
        metadata=_limit(integer(1, 10_000), "How many clients' accounts are held at once in passthrough mode."),
    )
    max_concurrent: int = field(default=512, metadata=_limit(integer(1), "How many responses may be made at once."))
    max_concurrent_per_key: int = field(
        default=128, metadata=_limit(integer(1), "How many of them for one of the gateway's keys, when there are any.")
    )
    max_requests_per_minute: int = field(
        default=1200, metadata=_limit(integer(1), "How many requests a minute one of the gateway's keys may make.")
    )
    max_connections: int = field(
        default=2048, metadata=_limit(integer(1), "How many connections from clients may be open at once.")
    )
    max_header_bytes: int = field(
        default=64 * 2**10, metadata=_limit(_BUFFER, "Largest head of a request: its first line and all headers.")
    )
    max_headers: int = field(default=128, metadata=_limit(integer(8), "How many headers a request may have."))
    max_messages: int = field(
        default=20_000, metadata=_limit(integer(1), "How many messages or input items a request may have.")
    )
    max_json_values: int = field(
        default=100_000, metadata=_limit(integer(1_000), "How many values the JSON of a request may hold.")
    )
    max_text_bytes: int = field(
        default=8 * 2**20, metadata=_limit(_BUFFER, "Largest request body, its images not counted.")
    )
    max_json_depth: int = field(
        default=64, metadata=_limit(integer(8, 256), "How deeply the JSON of a request may be nested.")
    )
    max_buffered_bytes: int = field(
        default=256 * 2**20, metadata=_limit(_BUFFER, "Request bodies in the making, all clients together.")
    )
    header_timeout: float = field(
        default=20.0, metadata=_limit(_TIME, "Limit for the head of a request to arrive completely.")
    )
    body_idle_timeout: float = field(
        default=30.0, metadata=_limit(_TIME, "Longest pause within the body of a request.")
    )
    body_timeout: float = field(
        default=300.0, metadata=_limit(_TIME, "Limit for the body of a request to arrive completely.")
    )
    send_timeout: float = field(
        default=120.0, metadata=_limit(_TIME, "Give a client up that takes nothing of its answer for this long.")
    )
    response_timeout: float = field(
        default=7200.0, metadata=_limit(_TIME, "Limit for one response from its first event to its last.")
    )

    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Where values came from; read it with `origin`."""

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            value = getattr(self, setting.name)
            if value is not None or setting.default is not None:
                object.__setattr__(self, setting.name, setting.read(value, self.origin(setting.name)))

    def origin(self, name: str) -> str:
        """`default`, `file PATH`, `environment NAME`, `flag --NAME`, or `code` for a value given by the program."""
        setting = setting_named(name, "code")
        if (known := self.origins.get(name)) is not None:
            return known
        return "default" if getattr(self, name) == setting.default else "code"


SETTINGS: Final = rows(fields(Settings))
BY_NAME: Final[Mapping[str, Setting]] = MappingProxyType({setting.name: setting for setting in SETTINGS})


def setting_named(name: str, origin: str) -> Setting:
    if (setting := BY_NAME.get(name)) is None:
        raise ConfigError(name, origin, f'there is no setting "{name}"{nearest(name.lower(), BY_NAME)}')
    return setting
