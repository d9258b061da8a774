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
    FILLED_TEXT,
    MILLISECONDS,
    PAIRS,
    PATHS,
    SWITCH,
    TEXT,
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
LIMITS: Final = "limits"
GROUPS: Final = (SERVER, CURSOR, SESSIONS, LIMITS)

BackendName = Literal["auto", "sdk", "cli", "agent", "simulator"]
TransportName = Literal["auto", "h2", "http1"]
SessionName = Literal["auto", "fresh", "required"]
ThinkingName = Literal["visible", "hide", "inline"]
SystemDelivery = Literal["rule", "root"]
HistoryCarrier = Literal["root", "typed"]
LocalTools = Literal["read-only", "all", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]

_server, _cursor = partial(declared, SERVER), partial(declared, CURSOR)
_sessions, _limit = partial(declared, SESSIONS), partial(declared, LIMITS)
_TIME: Final = duration()
_GRACE: Final = duration(zero=True)
_FILE: Final = path("a file")
_DIRECTORY: Final = path("a directory")
_BUFFER: Final = size(1024)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every value the gateway can be told. Making one by hand checks it as strictly as loading does."""

    host: str = field(default="127.0.0.1", metadata=_server(FILLED_TEXT, "Address to listen on.", extra_env=("HOST",)))
    port: int = field(
        default=32124,
        metadata=_server(integer(0, 65535), "TCP port to listen on; 0 takes any free one.", extra_env=("PORT",)),
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
    keep_alive: float = field(
        default=10.0, metadata=_server(_TIME, "Send a sign of life to a streaming client after this much silence.")
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
        default=3, metadata=_cursor(integer(0, 20), "How often to take up a run again after its connection broke.")
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
    parked_timeout: float = field(default=900.0, metadata=_sessions(_TIME, "How long a turn waits for tool results."))
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

    connect_timeout: float = field(default=10.0, metadata=_limit(_TIME, "Limit for opening a connection to Cursor."))
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
    client_heartbeat: float = field(
        default=5.0, metadata=_limit(_TIME, "Interval of signs of life to Cursor during a run.")
    )
    exec_heartbeat: float = field(
        default=3.0, metadata=_limit(_TIME, "Interval of signs of life to Cursor while a tool runs.")
    )
    max_body_bytes: int = field(default=32 * 2**20, metadata=_limit(_BUFFER, "Largest request body that is accepted."))
    max_frame_bytes: int = field(
        default=64 * 2**20, metadata=_limit(_BUFFER, "Largest single message that is accepted from Cursor.")
    )
    stream_buffer_bytes: int = field(
        default=2**20, metadata=_limit(_BUFFER, "Unread events per response before Cursor is made to wait.")
    )
    max_concurrent: int = field(default=512, metadata=_limit(integer(1), "How many responses may be made at once."))

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
