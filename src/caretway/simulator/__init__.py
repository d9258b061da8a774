"""A simulated Cursor: the other side of the wire, for trying the gateway without an account, for tests and for demos.

Everything it says is made up and says so. It knows `wire` and nothing else of ours.
"""

from .server import Simulator
from .stats import Stats

__all__ = ["Simulator", "Stats"]
