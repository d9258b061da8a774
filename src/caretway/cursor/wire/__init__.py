"""Cursor's bytes <-> typed messages, both directions, pure. Shared by the backends and by the simulator."""
