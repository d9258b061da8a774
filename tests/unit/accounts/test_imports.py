"""What other programs keep, read as it is; what is none of it is refused in words."""

import json

import pytest

from caretway.accounts.account import Account
from caretway.accounts.imports import read_import
from caretway.core.errors import GatewayError
from unit.accounts.desk import jwt

URL = "https://api2.cursor.sh"
NOW = 10_000.0
TOKEN = jwt(iat=9000, exp=12600)

GOOD = {
    "cursor-agent": (json.dumps({"accessToken": TOKEN, "refreshToken": "r"}), Account(TOKEN, "r", "", 9000.0)),
    "cursor-agent with a key": (
        json.dumps({"accessToken": "a", "refreshToken": "r", "apiKey": "k"}),
        Account("a", "r", "k", NOW),
    ),
    "the SDK": (
        json.dumps({"version": 1, "backendUrl": URL + "/", "apiKey": "k", "email": "a@b.example"}),
        Account("", "", "k", NOW, "a@b.example"),
    ),
    "a key where the refresh token belongs": (
        json.dumps({"accessToken": TOKEN, "refreshToken": "crsr_1"}),
        Account(TOKEN, "", "crsr_1", 9000.0),
    ),
    "one string": ("refresh|key\n", Account(refresh_token="refresh", api_key="key")),
    "one string, no key": ("refresh|", Account(refresh_token="refresh")),
    "one string, no refresh token": ("|key", Account(api_key="key")),
}


@pytest.mark.parametrize("name", GOOD)
def test_read(name: str) -> None:
    text, account = GOOD[name]
    assert read_import(text, url=URL, now=NOW) == account


BAD = {
    "empty": ("", "no sign-in"),
    "a bar": ("|", "no sign-in"),
    "prose": ("this is | no sign-in", "no sign-in"),
    "a list": ("[1]", "no sign-in"),
    "nested": ("[" * 5000, "no sign-in"),
    "nothing in it": ('{"accessToken": "", "refreshToken": 3}', "no sign-in"),
    "of another address": ('{"backendUrl": "https://other.example", "apiKey": "k"}', "other.example"),
    "expired": ('{"apiKey": "k", "apiKeyExpiresAtMs": 9999000}', "expired"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    text, said = BAD[name]
    with pytest.raises(GatewayError, match=said):
        read_import(text, url=URL, now=NOW)
