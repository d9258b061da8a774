"""Decides what a log or a recording may contain: known secrets and texts that look like one (bearer tokens, keys, JWTs)
are hidden, prompts become a length and a salted hash, selected headers and fields are shown. Pure.

Secrets are never written, neither known ones nor texts that look like one. Content is written only on request;
otherwise a text becomes its length and a hash. The salt is new in each run, so equal texts can be recognised within one
recording, and the hash cannot be reversed by guessing.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

HIDDEN: Final = "[secret]"
SHORTEST_SECRET: Final = 6
"""Shorter secrets may be common words, and hiding common words would garble every line."""

_SHAPES: Final[dict[str, tuple[str, ...]]] = {
    r"(?<=[Bb]earer )[^\s\"',;]+": ("earer ",),  # any token after `Bearer`
    r"\b(?:cw-|sk-|key_|crsr_|ghp_)[A-Za-z0-9._~+/=-]{8,}": ("cw-", "sk-", "key_", "crsr_", "ghp_"),
    r"\b(?:user_[A-Za-z0-9]+%3A%3A|xox[a-z]-)[A-Za-z0-9._~+/=-]{8,}": ("%3A%3A", "xox"),
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*": ("eyJ",),  # JSON web tokens
    r"(?<=key': ')[^']{6,}(?=')": ("key': '",),
    r"(?<=key\": \")[^\"]{6,}(?=\")": ('key": "',),
    r"(?<=authorization', b')[^']+(?=')|(?<=authorization': ')[^']+(?=')": ("authorization'",),
}
"""The pattern of a secret -> substrings, one of which is in every text with such a secret. Most texts have none, and a
substring search is far cheaper than the pattern."""
_SHAPED: Final = re.compile("|".join(_SHAPES))
_SIGNS: Final = tuple(sign for signs in _SHAPES.values() for sign in signs)

_HEADERS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-beta",
        "anthropic-version",
        "cache-control",
        "connection",
        "connect-protocol-version",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "expect",
        "host",
        "retry-after",
        "te",
        "transfer-encoding",
        "user-agent",
        "x-caretway-backend",
        "x-caretway-ignored",
        "x-caretway-pictures",
        "x-caretway-recovered",
        "x-caretway-session",
        "x-caretway-session-reason",
        "x-caretway-tools",
        "x-request-id",
        "x-should-retry",
        "x-stainless-lang",
        "x-stainless-package-version",
        "x-stainless-retry-count",
        "x-stainless-runtime",
    }
)
"""Headers with visible values. For other headers only the length is shown."""

_PLAIN: Final = frozenset(
    {"type", "role", "object", "model", "finish_reason", "stop_reason", "status", "code", "effort", "tool_choice", "id"}
    | {"call_id", "tool_call_id", "tool_use_id", "item_id", "response_id", "previous_response_id", "error_code"}
)
"""Fields whose texts are shown if they look like terms of the API."""
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/\[\]-]{0,128}")
_OPAQUE: Final = frozenset({"arguments", "parameters", "input_schema", "schema", "metadata", "properties"})
"""Fields whose keys are content as well as their values."""


class Redactor:
    def __init__(self, secrets: Iterable[str] = (), *, content: bool = False, salt: bytes = b"") -> None:
        longest_first = sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True)
        self._secret_pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._secrets = tuple(longest_first)
        self._content = content
        self._salt = salt

    def text(self, text: str) -> str:
        """The line without secrets."""
        return _hide(_hide(text, self._secret_pattern, self._secrets), _SHAPED, _SIGNS)

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        return {
            name: self.text(value) if name.lower() in _HEADERS else f"[{len(value)} characters]"
            for name, value in headers
        }

    def value(self, value: object, field: str = "") -> object:
        """The JSON structure without secrets, and without content unless it was requested."""
        if isinstance(value, str):
            if self._content or (field in _PLAIN and _WORD.fullmatch(value)):
                return self.text(value)
            return self.digest(value)
        if isinstance(value, Mapping):
            if not self._content and (field in _OPAQUE or (field == "input" and "type" not in value)):
                return f"[object of {len(value)} {self._hash(repr(value))}]"
            return {self.text(str(name)): self.value(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner, field if isinstance(inner, str) else "") for inner in value]
        return value

    def digest(self, text: str) -> str:
        return f"[{len(text)} characters {self._hash(text)}]"

    def _hash(self, text: str) -> str:
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6, key=self._salt).hexdigest()


def _hide(text: str, secrets: re.Pattern[str], signs: Iterable[str]) -> str:
    """Replaces secrets. A text without any of the signs is returned unchanged."""
    for sign in signs:
        if sign in text:
            return secrets.sub(HIDDEN, text)
    return text
