"""Cursor through its own package, `cursor-sdk` (the extra `caretway[sdk]`): the official route."""
