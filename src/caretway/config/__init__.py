"""Settings: one table, four sources, and each value knows its source. The only room that reads os.environ.

Flags, variable names, TOML keys, `caretway config` and docs/settings.md all come from the fields of `Settings`.
"""

from .hosts import Hosts, hosts
from .kinds import ADVANCED, ConfigError, Setting
from .loading import (
    editor_command,
    has_desktop,
    load,
    load_from_process,
    own_variables,
    process_environment,
    settings_file,
    take_notify_socket,
    unknown_variables,
    wants_colour,
)
from .places import cursor_agent_files, cursor_sign_in_files, data_directory, home_directory, user_config_file
from .settings import CURSOR, GROUPS, MCP, SETTINGS, Settings

__all__ = [
    "ADVANCED",
    "CURSOR",
    "GROUPS",
    "MCP",
    "SETTINGS",
    "ConfigError",
    "Hosts",
    "Setting",
    "Settings",
    "cursor_agent_files",
    "cursor_sign_in_files",
    "data_directory",
    "editor_command",
    "has_desktop",
    "home_directory",
    "hosts",
    "load",
    "load_from_process",
    "own_variables",
    "process_environment",
    "settings_file",
    "take_notify_socket",
    "unknown_variables",
    "user_config_file",
    "wants_colour",
]
