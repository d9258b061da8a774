"""An MCP server that wants a sign-in, written with the SDK's server side: authorization server and tools on one
loopback port, users who always agree, tokens with recognisable values whose life the test decides."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

SECRET: Final = "marzipan"
"""In every code and every token."""


class Accounts:
    """The authorization server: `OAuthAuthorizationServerProvider`."""

    def __init__(self) -> None:
        self.life: int | None = 3600
        self.renewable = True
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.renewals = 0
        self.resources: list[str | None] = []
        self._number = count(1)

    def revoke_all(self) -> None:
        self.access.clear()
        self.refresh.clear()

    def end_all(self) -> None:
        """Access tokens end now; they can be renewed."""
        self.access.clear()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = f"{SECRET}-code-{next(self._number)}"
        assert client.client_id
        self.resources.append(params.resource)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(authorization_code.client_id, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.renewals += 1
        return self._tokens(refresh_token.client_id, refresh_token.resource)

    def _tokens(self, client_id: str, resource: str | None) -> OAuthToken:
        number = next(self._number)
        access, refresh = f"{SECRET}-access-{number}", f"{SECRET}-refresh-{number}"
        ends = int(time.time()) + self.life if self.life is not None else None
        self.access[access] = AccessToken(
            token=access, client_id=client_id, scopes=[], expires_at=ends, resource=resource
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=[], resource=resource)
        return OAuthToken(access_token=access, expires_in=self.life, refresh_token=refresh if self.renewable else None)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def verify_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    async def exchange_identity_assertion(self, client: OAuthClientInformationFull, params: Any) -> OAuthToken:
        raise TokenError("unsupported_grant_type")


class OAuthServer:
    def __init__(self, accounts: Accounts, port: int, path: str) -> None:
        self.accounts = accounts
        self.port = port
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/{path}"
        self.waiting = 0
        self.over = asyncio.Event()


def _mcp(server: OAuthServer) -> MCPServer[Any]:
    mcp: MCPServer[Any] = MCPServer(
        "notes",
        auth_server_provider=server.accounts,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(server.origin),
            resource_server_url=AnyHttpUrl(server.url),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=True,
        ),
    )

    @mcp.tool()
    async def read(text: str) -> str:
        return f"note: {text}"

    @mcp.tool()
    async def wait(seconds: float) -> str:
        server.waiting += 1
        async with asyncio.timeout(seconds):
            await server.over.wait()
        return "waited"

    return mcp


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    """An ASGI application, or a function that makes one for its port, on an ephemeral port of this process."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = int(listening.getsockname()[1])
        made = app(port)
        config = uvicorn.Config(made, log_level="critical", ws="none", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        running.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(running.serve(sockets=[listening]))
        try:
            while not running.started:
                await asyncio.sleep(0.01)
            yield port
        finally:
            running.should_exit = True
            await task


@asynccontextmanager
async def oauth_server(transport: str = "http") -> AsyncIterator[OAuthServer]:
    made: list[OAuthServer] = []

    def app(port: int) -> Any:
        made.append(OAuthServer(Accounts(), port, "mcp" if transport == "http" else "sse"))
        mcp = _mcp(made[0])
        return mcp.streamable_http_app() if transport == "http" else mcp.sse_app()

    async with serving(app):
        yield made[0]
