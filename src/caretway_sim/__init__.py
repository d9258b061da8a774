"""A simulated Cursor: the other side of the wire, for trying the gateway without an account, for tests and for demos.

Everything it says is made up and says so. It knows `wire` and nothing else of the gateway.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import Simulator
    from .shared import Stats

__all__ = ["Simulator", "Stats"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: the stand-in for cursor-agent is a program of its own and needs no server."""
    if name == "Simulator":
        from .server import Simulator

        return Simulator
    if name == "Stats":
        from .shared import Stats

        return Stats
    raise AttributeError(f"module 'caretway_sim' has no attribute {name!r}")
