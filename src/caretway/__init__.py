"""Caretway: Cursor models in the tools you already use.

import caretway

with caretway.Gateway.simulated() as gateway:
    print(gateway.base_url)
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from .config import Settings
    from .gateway import Gateway

__all__ = ["Gateway", "Settings", "__version__"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: `caretway --help` need not wait for a server's imports."""
    if name == "Gateway":
        from .gateway import Gateway

        return Gateway
    if name == "Settings":
        from .config import Settings

        return Settings
    raise AttributeError(f"module 'caretway' has no attribute {name!r}")
