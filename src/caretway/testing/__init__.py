"""For tests of agents without a model: scripts, a scripted gateway, a pytest plugin; and programs that stand in for
Cursor's own. The gateway never imports this room.

docs/testing.md shows how to use it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caretway_sim.prepared import Script

    from .scripted import ScriptedGateway, ScriptedSimulator

__all__ = ["Script", "ScriptedGateway", "ScriptedSimulator"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: the stand-in for cursor-agent is a program of its own and needs no gateway."""
    if name == "Script":
        from caretway_sim.prepared import Script

        return Script
    if name in ("ScriptedGateway", "ScriptedSimulator"):
        from . import scripted

        return getattr(scripted, name)
    raise AttributeError(f"module 'caretway.testing' has no attribute {name!r}")
