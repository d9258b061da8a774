"""Chooses the host for runs: the API's own host, until Cursor names another host for the account.
Teams can be pinned to their own host. Any other host refuses their runs because of a region, or ends the stream before
its first message. Then Cursor is asked once for the account's host (`GetServerConfig`). That host is tried, and kept
for the account after a run was answered there. A host from the settings is never changed.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError

from ...core.errors import GatewayError
from ..wire.envelope import End
from ..wire.messages import ai
from .dial import read_origin
from .ports import NewRun, RunHandler, RunStream, Transport, UnaryResponse

log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 600.0
"""How long not to ask again after an answer that did not help."""

Ask = Callable[[], Awaitable[UnaryResponse]]
"""Calls `GetServerConfig` for the account."""


def named_host(api_url: str, body: bytes) -> str:
    """The base URL for runs in an answer of `GetServerConfig`; empty if there is none that may get the token: it needs
    the same domain and at least the same security as the API."""
    try:
        named = ai.GetServerConfigResponse.FromString(body).agent_url_config.agentn_url.strip().rstrip("/")
        host, api = read_origin(named), read_origin(api_url)
    except (DecodeError, GatewayError):
        return ""
    safe = host.scheme in ("https", api.scheme)
    return named if safe and _domain(host.host) == _domain(api.host) else ""


def _domain(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return ".".join(host.rstrip(".").rsplit(".", 2)[-2:])
    return host


class RunHosts:
    """A Transport: runs go to the account's host, and everything else to the API."""

    def __init__(
        self,
        api: Transport,
        api_url: str,
        open_at: Callable[[str], Transport],
        clock: Callable[[], float],
        fixed: str = "",
    ) -> None:
        """`fixed`: the host for runs from the settings."""
        self._api, self._api_url, self._open_at, self._clock = api, api_url, open_at, clock
        self._fixed = bool(fixed)
        self._runs = open_at(fixed) if fixed else api
        self.current = fixed or api_url
        """The base URL for the next run."""
        self._account = ""
        self._heard: set[str] = {fixed} if fixed else set()
        """Hosts that have answered a run of the account."""
        self._asked_at: float | None = None
        self._moving = asyncio.Lock()
        self._others: dict[str, Transport] = {fixed: self._runs} if fixed else {}
        self._go(self._runs, self.current)
        self.open_stream, self.call = api.open_stream, api.call

    def belongs_to(self, account: str) -> None:
        """Set the account; a new account starts at the API's host."""
        if account != self._account:
            self._account = account
            if not self._fixed:
                self._heard.clear()
                self._asked_at = None
                self._return()

    async def move(self, tried: str, ask: Ask, *, sure: bool) -> bool:
        """A run was not served at `tried`. Returns whether the next run uses another host. `sure`: Cursor named the
        host as the cause; otherwise a host that has served the account is kept."""
        if self._fixed:
            return False
        async with self._moving:  # concurrent callers share the answer
            if tried != self.current:
                return True
            if tried != self._api_url:
                if tried in self._heard:
                    self._heard.discard(tried)  # the next failure returns to the API's host
                    self._go(self._runs, tried)
                else:
                    self._return()
                return False
            now = self._clock()
            if (tried in self._heard and not sure) or (
                self._asked_at is not None and now - self._asked_at < ASK_AGAIN_S
            ):
                return False
            response = await ask()
            self._asked_at = now
            named = named_host(self._api_url, response.body) if response.status == 200 else ""
            if not named or urlsplit(named) == urlsplit(self._api_url):
                return False
            if named not in self._others:
                self._others[named] = self._open_at(named)
            self._go(self._others[named], named)
            log.info("%s does not serve this account's runs; Cursor names %s, which is tried", tried, named)
            return True

    def _return(self) -> None:
        """Return to the API's host. Connections to the other host stay, because runs may still be open."""
        self._go(self._api, self._api_url)

    def _go(self, transport: Transport, url: str) -> None:
        self._runs, self.current = transport, url
        # After a host has proven itself, runs have no overhead.
        self.open_run_now: Callable[[NewRun, RunHandler], RunStream | None] = (
            transport.open_run_now if url in self._heard else _never_now
        )

    def heard(self, at: str) -> None:
        """A run was answered at this host: keep the host for the account."""
        if at == self.current and at not in self._heard:
            self._heard.add(at)
            self._go(self._runs, at)

    # ---- Transport

    @property
    def name(self) -> str:
        return self._api.name

    async def open_run(self, run: NewRun, handler: RunHandler) -> RunStream:
        listener = handler if self.current in self._heard else _Listener(self, self.current, handler)
        return await self._runs.open_run(run, listener)

    async def aclose(self) -> None:
        for transport in (*self._others.values(), self._api):
            await transport.aclose()


def _never_now(run: NewRun, handler: RunHandler) -> RunStream | None:
    """No immediate runs before a host has proven itself: they need a `_Listener`."""
    return None


class _Listener:
    """Reports the first message of a run to `RunHosts` and forwards everything to the handler."""

    __slots__ = ("_at", "_handler", "_hosts", "on_closed")

    def __init__(self, hosts: RunHosts, at: str, handler: RunHandler) -> None:
        self._hosts, self._at, self._handler = hosts, at, handler
        self.on_closed = handler.on_closed

    def on_messages(self, messages: list[bytes]) -> None:
        if type(messages[0]) is not End:
            self._hosts.heard(self._at)
        self._handler.on_messages(messages)
