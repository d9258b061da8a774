"""Reads definitions of MCP servers from the settings and from files of OpenCode, Claude Code and Cursor. The first
definition of a name wins. A mistake in the settings is an error; a mistake in another file drops only that server.

Input: tables (parsed TOML or JSON), the environment, directories. Output: definitions, and misfits for servers that
cannot be used. `${NAME:-default}` is expanded.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ..core.errors import GatewayError, bad_request
from .definitions import SETTINGS, Misfit, OAuthClient, Process, Remote, ServerDefinition
from .stdio import INHERITED

log = logging.getLogger(__name__)

IMPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "opencode": (
        "{directory}/opencode.json",
        "{directory}/opencode.jsonc",
        "{home}/.config/opencode/opencode.json",
        "{home}/.config/opencode/opencode.jsonc",
    ),
    "claude": ("{directory}/.mcp.json", "{home}/.claude.json"),
    "cursor": ("{directory}/.cursor/mcp.json", "{home}/.cursor/mcp.json"),
    "workspace": (
        "{directory}/opencode.json",
        "{directory}/opencode.jsonc",
        "{directory}/.mcp.json",
        "{directory}/.cursor/mcp.json",
    ),
}
"""Program -> files with its servers; `workspace` stands for all files inside a project. Files closer to the project
come first; the first server of a name is used."""

_KINDS: Final[Mapping[str, Literal["auto", "http", "sse"]]] = {
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "remote": "auto",
    "auto": "auto",
}
_LOCAL_KINDS: Final = ("stdio", "local")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The environment and directories that a definition may refer to."""

    environ: Mapping[str, str] = field(repr=False)
    home: Path
    directory: Path
    """The workspace, or the gateway's working directory."""


class FoundServers(msgspec.Struct, frozen=True):
    definitions: tuple[ServerDefinition, ...] = ()
    misfits: tuple[Misfit, ...] = ()


class _Unusable(Exception):
    """Why one definition cannot be used."""


def find(
    own: Mapping[str, object], files: Iterable[Path], imports: Iterable[str], context: SourceContext
) -> FoundServers:
    """Servers from the settings, the named files and other programs, in this order; the first of a name is used. A
    mistake in the settings raises GatewayError; a mistake in another program's file is a misfit."""
    read = [_read(_own_servers(own), SETTINGS, context, strict=True)]
    read += [_from_file(path, context) for path in files]
    for program in imports:
        if program not in IMPORTS:
            raise bad_request(f"mcp_import: there is no `{program}`; use {', '.join(IMPORTS)}.", param="mcp_import")
        for template in IMPORTS[program]:
            path = Path(template.format(directory=context.directory, home=context.home))
            if path.is_file():
                read.append(_imported(path, context))
    return _merged(read)


def _merged(read: Iterable[FoundServers]) -> FoundServers:
    kept: dict[str, ServerDefinition | Misfit] = {}
    for servers in read:
        both: list[ServerDefinition | Misfit] = [*servers.definitions, *servers.misfits]
        for one in both:
            if (first := kept.setdefault(one.name, one)) is not one:
                log.info("MCP server %s of %s is ignored: the one of %s is used", one.name, one.origin, first.origin)
    values = kept.values()
    return FoundServers(
        tuple(one for one in values if isinstance(one, ServerDefinition)),
        tuple(one for one in values if isinstance(one, Misfit)),
    )


def _imported(path: Path, context: SourceContext) -> FoundServers:
    try:
        return _from_file(path, context)
    except GatewayError as unreadable:
        return FoundServers(misfits=(Misfit(path.name, str(path), unreadable.message),))


def _from_file(path: Path, context: SourceContext) -> FoundServers:
    table = read_file(path)
    return _read(servers_in(table, context.directory), str(path), context, strict=False)


def read_file(path: Path) -> Mapping[str, object]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as failure:
        raise bad_request(f"The MCP configuration {path} cannot be read: {failure}", param="mcp_config") from failure
    try:
        if path.suffix == ".toml":
            import tomllib  # needed only for TOML

            table: object = tomllib.loads(text)
        else:
            table = json.loads(plain_json(text))
    except (ValueError, RecursionError) as broken:
        raise bad_request(f"The MCP configuration {path} cannot be read: {broken}", param="mcp_config") from broken
    if not isinstance(table, dict):
        raise bad_request(f"The MCP configuration {path} is not a table of servers.", param="mcp_config")
    return table


_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])', re.DOTALL)
"""Strings match first, so that comment marks inside a string stay."""


def plain_json(text: str) -> str:
    """Replaces comments and trailing commas, as in configuration files, by spaces."""
    return _PIECES.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)


# ---- the servers in a table


def _own_servers(own: Mapping[str, object]) -> Mapping[str, object]:
    if stray := sorted(own.keys() - {"servers"}):
        raise bad_request(
            f"[mcp] has no key `{stray[0]}`.", hint="Servers are tables of their own: [mcp.servers.NAME].", param="mcp"
        )
    servers = own.get("servers", {})
    if not isinstance(servers, Mapping):
        raise bad_request("[mcp.servers] is not a table.", hint="Write [mcp.servers.NAME].", param="mcp")
    return servers


def servers_in(table: Mapping[str, object], directory: Path) -> dict[str, object]:
    """The servers of a table: `mcpServers` (Claude Code, Cursor and most others), `mcp` (OpenCode), `mcp.servers`
    (Caretway), `servers` (VS Code), and the project's servers in Claude Code's own file."""
    mcp = _table(table.get("mcp"))
    projects = _table(table.get("projects"))
    groups = (
        _table(_table(projects.get(str(directory))).get("mcpServers")),
        _table(table.get("mcpServers")),
        _table(mcp["servers"]) if isinstance(mcp.get("servers"), Mapping) else mcp,
        _table(table.get("servers")),
    )
    servers: dict[str, object] = {}
    for group in groups:
        for name, entry in group.items():
            if isinstance(entry, Mapping):
                servers.setdefault(name, entry)
    return servers


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


# ---- one definition

_OAUTH_TEXTS: Final = (("client_id", "clientId"), ("client_secret", "clientSecret"))
_OWN_KEYS: Final = frozenset(
    {
        *("command", "args", "env", "cwd", "url", "headers", "transport", "oauth", "enabled"),
        *("allow", "deny", "read_only", "call_timeout", "connect_timeout"),
    }
)


def _read(servers: Mapping[str, object], origin: str, context: SourceContext, *, strict: bool) -> FoundServers:
    definitions: list[ServerDefinition] = []
    misfits: list[Misfit] = []
    for name, entry in servers.items():
        try:
            if strict and isinstance(entry, Mapping) and (stray := sorted(entry.keys() - _OWN_KEYS)):
                raise _Unusable(f"there is no key `{stray[0]}`; there are {', '.join(sorted(_OWN_KEYS))}")
            definition = _definition(name, _table(entry), origin, context)
        except _Missing as missing:
            misfits.append(Misfit(name, origin, str(missing)))
        except _Unusable as problem:
            if strict:
                raise bad_request(f"[mcp.servers.{name}]: {problem}.", param="mcp") from None
            misfits.append(Misfit(name, origin, str(problem)))
        else:
            if definition is not None:
                definitions.append(definition)
    return FoundServers(tuple(definitions), tuple(misfits))


def _definition(name: str, entry: Mapping[str, object], origin: str, context: SourceContext) -> ServerDefinition | None:
    """One server's definition; None if the server is disabled."""
    if entry.get("enabled") is False or entry.get("disabled") is True:
        return None
    expanding = _Expanding(context)
    kind = str(entry.get("type") or entry.get("transport") or "").lower()
    url = entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl")
    reached: Process | Remote
    if entry.get("command") and kind not in _KINDS:
        reached = _process(entry, expanding, context)
    elif isinstance(url, str):
        if kind in _LOCAL_KINDS or (kind and kind not in _KINDS):
            raise _Unusable(f"`{kind}` cannot be used with a url; use http or sse")
        address = expanding.text(url)
        if not re.match(r"https?://[^/]", address):
            raise _Unusable("its address does not begin with http:// or https://")
        oauth = _oauth(entry.get("oauth"), expanding)
        reached = Remote(address, expanding.pairs(entry, "headers"), _KINDS.get(kind, "auto"), oauth)
    else:
        raise _Unusable("it has neither a command nor a url")
    return ServerDefinition(
        name=name,
        reached=reached,
        origin=origin,
        allow=_patterns(entry, "allow"),
        deny=_patterns(entry, "deny"),
        read_only=entry.get("read_only") is True,
        call_timeout=_seconds(entry, "call_timeout"),
        connect_timeout=_seconds(entry, "connect_timeout"),
        expanded=frozenset(expanding.used),
    )


def _process(entry: Mapping[str, object], expanding: "_Expanding", context: SourceContext) -> Process:
    command = entry["command"]
    words = [command] if isinstance(command, str) else command
    args = entry.get("args") or []
    if not isinstance(words, list) or not isinstance(args, list):
        raise _Unusable("`command` must be text or a list, and `args` a list")
    line = [expanding.text(str(word)) for word in (*words, *args)]
    if not line[0].strip():
        raise _Unusable("its command is empty")
    env = expanding.pairs(entry, "env") | expanding.pairs(entry, "environment")
    cwd = entry.get("cwd")
    where = str(context.directory / expanding.path(cwd)) if isinstance(cwd, str) and cwd else None
    program = expanding.path(line[0])
    return Process(program, tuple(line[1:]), env, where)


def _oauth(given: object, expanding: "_Expanding") -> OAuthClient | None:
    """The OAuth client from a server's `oauth` table, in the spelling of Caretway, OpenCode or Claude Code; None for
    `false`, which forbids sign-in."""
    if given is False:
        return None
    table = _table(given)
    if given not in (None, True) and given is not table:
        raise _Unusable("`oauth` must be a table, or false")
    port = table.get("callback_port", table.get("callbackPort", 0))
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
        raise _Unusable("`callback_port` must be the number of a port")
    texts = [table.get(name) or table.get(other) or "" for name, other in _OAUTH_TEXTS]
    if not all(isinstance(text, str) for text in texts):
        raise _Unusable("`client_id` and `client_secret` must be text")
    client_id, secret = (expanding.text(str(text)) for text in texts)
    if secret and not client_id:
        raise _Unusable("there is a `client_secret` without a `client_id`")
    return OAuthClient(client_id, secret, port)


def _patterns(entry: Mapping[str, object], key: str) -> tuple[str, ...]:
    given = entry.get(key, [])
    if not isinstance(given, list | tuple) or not all(isinstance(word, str) for word in given):
        raise _Unusable(f"`{key}` must be a list of tool names or patterns")
    return tuple(given)


def _seconds(entry: Mapping[str, object], key: str) -> float | None:
    given = entry.get(key)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e6:
        raise _Unusable(f"`{key}` must be a number of seconds")
    return float(given)


# ---- references to the environment

_REFERENCE: Final = re.compile(
    r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\{env:(?P<opencode>[A-Za-z_][A-Za-z0-9_]*)\}"
)


class _Missing(Exception):
    """A variable that is not set. The file is not wrong, because the variable may be set later."""


class _Expanding(msgspec.Struct, frozen=True):
    """Expands `${NAME}`, `${NAME:-default}`, `${env:NAME}` and OpenCode's `{env:NAME}` in values, never in keys."""

    context: SourceContext
    used: set[str] = msgspec.field(default_factory=set)
    """The expanded values that may be secrets."""

    def text(self, value: str) -> str:
        return _REFERENCE.sub(self._one, value)

    def path(self, value: str) -> str:
        value = self.text(value)
        return str(self.context.home / value[2:]) if value.startswith("~/") else value

    def pairs(self, entry: Mapping[str, object], key: str) -> dict[str, str]:
        given = entry.get(key) or {}
        if not isinstance(given, Mapping):
            raise _Unusable(f"`{key}` is not a table")
        return {str(name): self.text(_word(value)) for name, value in given.items() if value is not None}

    def _one(self, match: re.Match[str]) -> str:
        name = match["name"] or match["opencode"]
        places: dict[str, Any] = {
            "workspaceFolder": self.context.directory,
            "userHome": self.context.home,
        }
        if name in places:
            return str(places[name])
        if value := self.context.environ.get(name):
            if name not in INHERITED:
                self.used.add(value)
            return value
        if match["default"] is not None:
            return match["default"]
        raise _Missing(f"the environment variable {name} is not set")


def _word(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)
