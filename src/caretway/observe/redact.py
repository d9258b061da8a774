"""What may be written down of wire traffic and of failures. Pure: values in, values out.

Two promises. Secrets never: those that were handed in, and whatever looks like one. Content only when asked for:
without that, a text becomes its length and a hash that is salted anew for each run, so that equal texts can be
recognised within one recording and guessed by nobody.
"""

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

HIDDEN: Final = "[secret]"
SHORTEST_SECRET: Final = 6
"""Shorter ones are words; hiding them would tear every line to pieces."""

_SHAPES: Final[dict[str, tuple[str, ...]]] = {
    r"(?<=[Bb]earer )[^\s\"',;]+": ("earer ",),  # whatever is sent as a token
    r"\b(?:cw-|sk-|key_|crsr_|ghp_)[A-Za-z0-9._~+/=-]{8,}": ("cw-", "sk-", "key_", "crsr_", "ghp_"),
    r"\b(?:user_[A-Za-z0-9]+%3A%3A|xox[a-z]-)[A-Za-z0-9._~+/=-]{8,}": ("%3A%3A", "xox"),
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*": ("eyJ",),  # JSON web tokens
    r"(?<=key': ')[^']{6,}(?=')": ("key': '",),
    r"(?<=key\": \")[^\"]{6,}(?=\")": ('key": "',),
    r"(?<=authorization', b')[^']+(?=')|(?<=authorization': ')[^']+(?=')": ("authorization'",),
}
"""What a secret looks like -> signs of it: one of these is in every text that holds such a secret. Most texts hold
none, and looking for them costs a small part of trying every shape at every character."""
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
        "x-caretway-session",
        "x-caretway-session-reason",
        "x-request-id",
        "x-should-retry",
        "x-stainless-lang",
        "x-stainless-package-version",
        "x-stainless-retry-count",
        "x-stainless-runtime",
    }
)
"""Headers whose values are shown. Of all others only the length."""

_PLAIN: Final = frozenset(
    {"type", "role", "object", "model", "finish_reason", "stop_reason", "status", "code", "effort", "tool_choice", "id"}
    | {"call_id", "tool_call_id", "tool_use_id", "item_id", "response_id", "previous_response_id", "error_code"}
)
"""Fields whose texts are the API's own words, when they look like words."""
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/\[\]-]{0,128}")
_OPAQUE: Final = frozenset({"arguments", "parameters", "input_schema", "schema", "metadata", "properties"})
"""Fields whose very keys are somebody's content."""


class Redactor:
    def __init__(self, secrets: Iterable[str] = (), *, content: bool = False, salt: bytes = b"") -> None:
        known = sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known)))
        self._secrets = tuple(known)
        self._content = content
        self._salt = salt

    def text(self, text: str) -> str:
        """A line that is shown otherwise as it is, without the secrets in it."""
        return _hide(_hide(text, self._known, self._secrets), _SHAPED, _SIGNS)

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        return {
            name: self.text(value) if name.lower() in _HEADERS else f"[{len(value)} characters]"
            for name, value in headers
        }

    def value(self, value: object, field: str = "") -> object:
        """Parsed JSON with the same shape, and no more content than was asked for."""
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
    """Without a sign there is nothing to hide."""
    for sign in signs:
        if sign in text:
            return secrets.sub(HIDDEN, text)
    return text


class RedactingFormatter(logging.Formatter):
    """The last stop of a log line, traceback included: whatever a library put into it, no secret leaves."""

    def __init__(self, fmt: str, redactor: Redactor) -> None:
        super().__init__(fmt)
        self._redactor = redactor
        self._second = -1
        self._spelt = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging names it
        """As by default; the lines of one second share its spelling."""
        second = int(record.created)
        if second != self._second:
            self._second, self._spelt = second, super().formatTime(record, self.default_time_format)
        return f"{self._spelt},{int(record.msecs):03d}"

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(super().format(record))
