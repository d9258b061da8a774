"""Settings: one table, four sources, and each value knows its source. The only room that reads os.environ.

Flags, variable names, TOML keys, `caretway config` and docs/settings.md all come from the fields of `Settings`.
"""

from .hosts import Hosts, hosts
from .kinds import ADVANCED, ConfigError, Setting
from .loading import (
    editor_command,
    has_desktop,
    importable_sign_ins,
    load,
    load_from_process,
    own_variables,
    process_environment,
    settings_file,
    take_notify_socket,
    unknown_variables,
    wants_colour,
)
from .places import cursor_sign_in_files, data_directory, process_cursor_agent_files, process_home, user_config_file
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
    "cursor_sign_in_files",
    "data_directory",
    "editor_command",
    "has_desktop",
    "hosts",
    "importable_sign_ins",
    "load",
    "load_from_process",
    "own_variables",
    "process_cursor_agent_files",
    "process_environment",
    "process_home",
    "settings_file",
    "take_notify_socket",
    "unknown_variables",
    "user_config_file",
    "wants_colour",
]
