"""A simulated Cursor: the other side of the wire, for trying the gateway without an account, for tests and for demos.

All its output is made up and says so. It shares the wire format with the gateway and little else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import Simulator
    from .shared import Stats

__all__ = ["Simulator", "Stats"]


def __getattr__(name: str) -> Any:
    """Load on first use: the stand-in for cursor-agent is a separate program and needs no server."""
    if name == "Simulator":
        from .server import Simulator

        return Simulator
    if name == "Stats":
        from .shared import Stats

        return Stats
    raise AttributeError(f"module 'caretway_sim' has no attribute {name!r}")
