"""Every dialect that is served, one line each. Not in the package itself: dialects import its Protocols from there."""

from typing import Final

from . import Dialect
from .openai_chat import OPENAI_CHAT

DIALECTS: Final[tuple[Dialect, ...]] = (OPENAI_CHAT,)
