"""Every dialect that is served, one line each. Not in the package itself: dialects import its Protocols from there."""

from . import Dialect
from .anthropic_messages import ANTHROPIC_MESSAGES
from .openai_chat import OPENAI_CHAT
from .openai_responses import ResponseStore, openai_responses


def dialects() -> tuple[Dialect, ...]:
    """The first one also answers where no dialect is asked for."""
    return (OPENAI_CHAT, ANTHROPIC_MESSAGES, openai_responses(ResponseStore()))
