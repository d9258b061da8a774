"""The numbers for one connection: size and count of headers, time for a head, idle keep-alive, time for a client to
take bytes, how often the server looks. Values only.
"""

from msgspec import Struct


class ConnectionLimits(Struct, frozen=True):
    """Times in seconds."""

    connections: int = 2048
    head_bytes: int = 64 * 2**10
    headers: int = 128
    head_timeout: float = 20.0
    drain_timeout: float = 30.0
    send_timeout: float = 120.0
    keep_alive: float = 75.0
    """How long an unused connection is kept: longer than the pools of common clients do."""
    look_every: float = 1.0
    """How often the server looks for what is late: everything here may last this much longer."""
