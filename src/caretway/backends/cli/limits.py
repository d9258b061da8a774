"""All limits of the cli backend: processes, queue, line and buffer sizes, silence timeouts, idle time of warm
processes, how long status and models stay fresh, when what failed is tried again. Values only."""

from dataclasses import dataclass
from typing import Final

AGAIN_S: Final = 300.0
"""When ACP and native tools are tried again that have failed: the program may have been killed, or late."""


@dataclass(frozen=True, slots=True)
class CliLimits:
    processes: int = 4
    """Working at once; warm ones that wait count too."""
    queue: int = 32
    retry_after: float = 5.0
    line_bytes: int = 16 * 2**20
    buffer_bytes: int = 2**20
    """Unread events before the program is made to wait."""
    exit_grace: float = 2.0
    """Between the last line of a turn and the end of its process, and for a cancelled prompt to end."""
    progress: float = 90.0
    """Silence after which a turn is given up."""
    tool_progress: float = 600.0
    """The same while the program runs a tool of its own."""
    call: float = 30.0
    """For one answer other than a prompt's: a handshake, the model list."""
    idle: float = 300.0
    """How long a warm process waits for its next turn."""
    auth_check: float = 5.0
    auth_fresh: float = 60.0
    models_fresh: float = 600.0
    parked: int = 32
    """Processes that wait for the results of a client's tools, beside those that work. The one that waits longest is
    let go for a new one; its history is told anew when its results come."""
    max_sessions: int = 64
    """Sessions that one warm process holds before it is let go: they cannot be closed one by one."""
