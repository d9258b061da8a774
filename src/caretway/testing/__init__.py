"""For tests of agents without a model: scripts, a scripted gateway, a pytest plugin, and stand-ins for Cursor's own
programs. The gateway never imports this package.

docs/testing.md shows how to use it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caretway_sim.prepared import Script

    from .scripted import ScriptedGateway, ScriptedSimulator

__all__ = ["Script", "ScriptedGateway", "ScriptedSimulator"]


def __getattr__(name: str) -> Any:
    """Load on first use: the stand-in for cursor-agent is a separate program and needs no gateway."""
    if name == "Script":
        from caretway_sim.prepared import Script

        return Script
    if name in ("ScriptedGateway", "ScriptedSimulator"):
        from . import scripted

        return getattr(scripted, name)
    raise AttributeError(f"module 'caretway.testing' has no attribute {name!r}")
