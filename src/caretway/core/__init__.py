"""Shared values and Protocols. No I/O, and no imports from other packages."""
