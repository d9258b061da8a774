"""Where runs are sent: to the API's own host, until Cursor names another one for the account.

Teams can be pinned to a host of their own. Any other host answers their runs with words about a region, or with a
stream that ends before its first message. Then Cursor is asked once for the account's host (`GetServerConfig`). It is
tried, and kept for the account when a run was heard there. A host that the settings name is never left.
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
"""How long an answer that did not help is believed."""

Ask = Callable[[], Awaitable[UnaryResponse]]
"""Calls `GetServerConfig` in the account's name."""


def named_host(api_url: str, body: bytes) -> str:
    """The base URL for runs in an answer of `GetServerConfig`; empty when there is none that may have our token: it has
    to be as safe as the API's own, and of the same domain."""
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
        """`fixed`: the host for runs that the settings name."""
        self._api, self._api_url, self._open_at, self._clock = api, api_url, open_at, clock
        self._fixed = bool(fixed)
        self._runs = open_at(fixed) if fixed else api
        self.current = fixed or api_url
        """Where the next run goes."""
        self._account = ""
        self._heard: set[str] = {fixed} if fixed else set()
        """Hosts that are known to serve the account: a run was heard there."""
        self._asked_at: float | None = None
        self._moving = asyncio.Lock()
        self._others: dict[str, Transport] = {fixed: self._runs} if fixed else {}
        self._go(self._runs, self.current)
        self.open_stream, self.call = api.open_stream, api.call

    def belongs_to(self, account: str) -> None:
        """Another account may have another host."""
        if account != self._account:
            self._account = account
            if not self._fixed:
                self._heard.clear()
                self._asked_at = None
                self._return()

    async def move(self, tried: str, ask: Ask, *, sure: bool) -> bool:
        """A run was not served at `tried`. Whether the next one goes elsewhere. `sure`: Cursor said that it is the
        host's fault; otherwise a host that has served the account before is not left."""
        if self._fixed:
            return False
        async with self._moving:  # who waits here meanwhile shares the answer
            if tried != self.current:
                return True
            if tried != self._api_url:
                if tried in self._heard:
                    self._heard.discard(tried)  # the next failure in a row leads back
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
        """Runs may still be open at the other host, so its connections stay."""
        self._go(self._api, self._api_url)

    def _go(self, transport: Transport, url: str) -> None:
        self._runs, self.current = transport, url
        # A run costs nothing more for the choice of its host, once that is known to be right.
        self.open_run_now: Callable[[NewRun, RunHandler], RunStream | None] = (
            transport.open_run_now if url in self._heard else _never_now
        )

    def heard(self, at: str) -> None:
        """A run was answered there."""
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
    """While a host has to prove itself, its runs are listened to."""
    return None


class _Listener:
    """Tells that something was heard of a run, and stands aside."""

    __slots__ = ("_at", "_handler", "_hosts", "on_closed")

    def __init__(self, hosts: RunHosts, at: str, handler: RunHandler) -> None:
        self._hosts, self._at, self._handler = hosts, at, handler
        self.on_closed = handler.on_closed

    def on_messages(self, messages: list[bytes]) -> None:
        if type(messages[0]) is not End:
            self._hosts.heard(self._at)
        self._handler.on_messages(messages)
