"""The caller of a request: the name of its gateway key, and a short client name from its user agent (bounded, safe in a
log line). Pure. The sender chooses the client name, so it is only a hint.
"""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

MAX_AGENT_CHARS: Final = 200
"""Characters of a user agent that are read."""
MAX_CLIENT_CHARS: Final = 32
_PRODUCT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:/([A-Za-z]+)(?=[ /]|$))?")
"""The first product; some SDKs have their language in place of the version."""
_NAMES: Final = {
    "claude-cli": "claude-code",
    "codex_cli_rs": "codex",
    "codex_exec": "codex",
    "codex_vscode": "codex",
    "codex-tui": "codex",
    "ai": "ai-sdk",
    "ai-sdk-openai": "ai-sdk",
    "ai-sdk-anthropic": "ai-sdk",
    "asyncopenai-python": "openai-python",
    "asyncanthropic-python": "anthropic-python",
}
"""Product names in user agents -> their usual names."""


class Caller(Struct, frozen=True, gc=False):
    key: str = ""
    """The name of the gateway key, never the key itself; empty if no key is needed."""
    client: str = ""
    """`opencode`, `claude-code`, `openai-python` ...; empty if unknown."""


NOBODY: Final = Caller()


def client_name(agent: str) -> str:
    """`OpenAI/Python 1.2` is `openai-python`, `opencode/1.0 (linux)` is `opencode`."""
    found = _PRODUCT.match(agent.strip()[:MAX_AGENT_CHARS])
    if found is None:
        return ""
    product, language = found.groups()
    name = f"{product}-{language}" if language else product
    name = name.lower()
    return _NAMES.get(name, name)[:MAX_CLIENT_CHARS]


@lru_cache(maxsize=256)
def _caller(key: str, agent: str) -> Caller:
    return Caller(key, client_name(agent))


def caller_of(key: str, agent: str) -> Caller:
    """The caller, from a bounded cache: a few callers make nearly all requests."""
    return _caller(key, agent[:MAX_AGENT_CHARS])
