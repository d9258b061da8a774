"""Converts between Cursor's bytes and typed messages, in both directions. Pure. Shared by the backends and by the
simulator."""
