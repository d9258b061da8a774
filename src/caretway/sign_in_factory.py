"""With whose credentials the settings go to Cursor: those of the settings before a stored sign-in, nothing of the
owner's in passthrough.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from .auth.account import Account
from .auth.renewal import Call
from .auth.store import SignIns, SignInShelf, open_sign_ins
from .auth.token_lifetime import issued_at
from .auth.tokens import NoToken, RenewedToken, Shelf, exchanged_key, token_of_settings
from .config import Settings, hosts
from .config.data_dir import close_data_dir
from .cursor_transport.identity import TokenSource
from .cursor_transport.ports import Transport
from .transport_factory import open_api
from .web.access import SEND_KEY

NO_KEY_SENT: Final = ("Here every client brings its own Cursor API key.", SEND_KEY)
ShareSignIn = Callable[[Shelf, str], Shelf]
"""(where this gateway keeps its sign-in, the address it is for) -> where several gateways do."""


def passes(settings: Settings) -> bool:
    return settings.auth_mode == "passthrough"


def without_credentials(settings: Settings) -> Settings:
    """Settings for clients' own accounts: they must neither use nor read anything of the owner's."""
    local_tools = "off" if settings.origin("local_tools") == "default" else settings.local_tools
    return replace(settings, api_key=None, access_token=None, local_tools=local_tools)


def holder(settings: Settings) -> Account:
    """The account that the settings select, as far as known without asking Cursor."""
    if settings.access_token:
        return Account(settings.access_token, received_at=issued_at(settings.access_token))
    if settings.api_key or passes(settings):
        return Account(api_key=settings.api_key or "")
    return sign_ins(settings).find(hosts(settings).api) or Account()


def sign_ins(settings: Settings) -> SignIns:
    close_data_dir(settings.data_dir, settings.origin("data_dir"))
    return open_sign_ins(settings.data_dir, settings.token_store)


def token_source(settings: Settings, transport: Transport, share: ShareSignIn | None = None) -> TokenSource:
    """Credentials in the settings win over the stored sign-in. The sign-in is read whenever a token is needed, so
    `caretway login` helps a gateway that is already running."""
    if settings.access_token:
        return token_of_settings(settings.access_token, settings.origin("access_token"))
    if passes(settings):
        if not settings.api_key:
            return NoToken(*NO_KEY_SENT)
        return exchanged_key(settings.api_key, unary_call(transport), time.time, hint=SEND_KEY)
    if settings.api_key:
        return exchanged_key(settings.api_key, unary_call(transport), time.time)
    url = hosts(settings).api
    shelf: Shelf = SignInShelf(sign_ins(settings), url)
    return RenewedToken(shelf if share is None else share(shelf, url), unary_call(transport), time.time)


def unary_call(transport: Transport) -> Call:
    async def call(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        response = await transport.call(method, path, headers, body)
        return response.status, response.body

    return call


@asynccontextmanager
async def open_call(settings: Settings) -> AsyncIterator[Call]:
    """HTTP calls for the sign-in, without a backend."""
    transport = open_api(settings)
    try:
        yield unary_call(transport)
    finally:
        await transport.aclose()
