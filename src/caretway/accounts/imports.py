"""Reads the sign-in of another program from its file (cursor-agent, the official SDK, REFRESH and API key in one
string): another address or an expired key is refused. Pure: the caller reads files.

| form | whose |
|---|---|
| `{"accessToken", "refreshToken", "apiKey"?}` | the cursor-agent program's auth.json |
| `{"version", "backendUrl", "apiKey", "apiKeyExpiresAtMs"?, "email"?}` | the official SDK's auth.json |
| `REFRESH\\|APIKEY`, either may be empty | gateways that keep both in one string |
"""

import re
from typing import Any, Final

import msgspec

from ..core.errors import ErrorKind, GatewayError
from .account import Account
from .token_lifetime import claims

MAX_BYTES: Final = 64 * 1024
KEY_PREFIX: Final = "crsr_"
_ONE_STRING: Final = re.compile(r"([\x21-\x7b\x7d\x7e]*)\|([\x21-\x7b\x7d\x7e]*)")


def read_import(text: str, *, url: str, now: float) -> Account:
    """The account in this text, for the address `url`. Raises GatewayError when there is none."""
    text = text.strip()
    if one_string := _ONE_STRING.fullmatch(text):
        refresh, key = one_string.groups()
        return _checked(Account(refresh_token=refresh, api_key=key))
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _nothing()
    _check_address(value.get("backendUrl"), url)
    _check_end(value.get("apiKeyExpiresAtMs"), now)
    access = _word(value, "accessToken")
    issued = claims(access).get("iat")
    received = float(issued) if isinstance(issued, int | float) and 0 < issued < now else now
    refresh, key = _word(value, "refreshToken"), _word(value, "apiKey")
    if refresh.startswith(KEY_PREFIX):  # some keep an API key in this place; what it is exchanged for is no better
        refresh, key = "", key or refresh
    return _checked(Account(access, refresh, key, received, _word(value, "email")))


def _word(value: dict[str, Any], name: str) -> str:
    word = value.get(name)
    return word.strip() if isinstance(word, str) else ""


def _checked(account: Account) -> Account:
    if not (account.access_token or account.renewable):
        raise _nothing()
    return account


def _nothing() -> GatewayError:
    return GatewayError(
        ErrorKind.BAD_REQUEST,
        "There is no sign-in in this file.",
        hint="Expected cursor-agent's or the official SDK's auth.json, or one line REFRESH|APIKEY.",
    )


def _check_address(named: object, url: str) -> None:
    if isinstance(named, str) and named.rstrip("/") != url.rstrip("/"):
        raise GatewayError(
            ErrorKind.BAD_REQUEST,
            f"This sign-in belongs to {named}, not to {url}.",
            hint="Name that address with --agent-url if it is what you want.",
        )


def _check_end(ends_at_ms: object, now: float) -> None:
    if isinstance(ends_at_ms, int | float) and ends_at_ms / 1000 <= now:
        raise GatewayError(ErrorKind.SIGNED_OUT, "The API key in this file has expired.", hint="Run `caretway login`.")
