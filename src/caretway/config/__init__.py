"""Settings: one table, four sources, and each value knows its source. The only room that reads os.environ.

Flags, variable names, TOML keys, `caretway config` and docs/settings.md all come from the fields of `Settings`.
"""

from .loading import load, load_from_process, process_environment, unknown_variables, wants_colour
from .places import data_directory, user_config_file
from .row import ConfigError, Setting
from .settings import CURSOR, GROUPS, SETTINGS, Settings

__all__ = [
    "CURSOR",
    "GROUPS",
    "SETTINGS",
    "ConfigError",
    "Setting",
    "Settings",
    "data_directory",
    "load",
    "load_from_process",
    "process_environment",
    "unknown_variables",
    "user_config_file",
    "wants_colour",
]
