"""Caretway: Cursor models in the tools you already use."""

__version__ = "0.1.0"
