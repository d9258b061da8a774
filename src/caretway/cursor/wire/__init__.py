"""Converts between Cursor's bytes and typed messages. Pure. Shared by the backends and the simulator."""
