"""The list of all dialects; the first is the default. Not in `__init__`, because dialects import its Protocols."""

from . import Dialect
from .anthropic_messages import AnthropicMessages
from .openai_chat import OpenAIChat
from .openai_completions import OpenAICompletions
from .openai_responses import ResponseStore, openai_compaction, openai_responses
from .openai_responses.store import ResponseArchive


def dialects(shelf: ResponseArchive | None = None) -> tuple[Dialect, ...]:
    """All dialects; the first is the default. `shelf`: the archive of stored responses that outlives the process."""
    store = ResponseStore(shelf)
    return (OpenAIChat(), AnthropicMessages(), OpenAICompletions(), openai_compaction(store), openai_responses(store))
