"""Limits of the text protocol, in characters: one call, calls in a response, the list of tools, corrections in a
turn."""

from msgspec import Struct


class TextLimits(Struct, frozen=True):
    max_call_chars: int = 8 * 1024 * 1024
    """One call with its arguments; a longer one is shown as text."""
    max_calls: int = 64
    """Calls in one response; the turn ends after the last one."""
    max_tools_chars: int = 2 * 1024 * 1024
    """The list of tools in the instructions."""
    corrections: int = 1
    """How often in one turn the model may correct a wrong call."""


DEFAULT_TEXT_LIMITS = TextLimits()
MAX_NAME_CHARS = 128
"""The longest name of a declared tool."""
MAX_THOUGHTS = 1000
"""How often one answer may think in tags; more of them are text. Each is an event, however short it is."""
