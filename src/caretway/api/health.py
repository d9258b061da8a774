"""`/health` and `/healthz`: is Cursor reachable, is the account accepted (asked once a minute, after a failure every
5 s), what a probe without a key may learn; the list of the gateway's own tools.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from .. import __version__
from ..core.turn import Backend, BackendStatus

_AUTH: Final = {True: "authenticated", False: "not_authenticated", None: "unknown"}


class ToolSource(Protocol):
    """The gateway's own tools, in words for /health and /v1/tools."""

    def health(self) -> Mapping[str, object]: ...

    def listing(self) -> Mapping[str, object]: ...


class NoTools:
    def health(self) -> Mapping[str, object]:
        return {"enabled": False, "servers": 0, "tools": 0}

    def listing(self) -> Mapping[str, object]:
        return {"object": "list", "data": [], "mcp": {"servers": 0, "tools": 0}}


class Health:
    """The account's state is asked for at most once a minute, and never keeps `/health` waiting for long."""

    def __init__(
        self, backend: Backend, *, check_timeout: float, fresh_for: float = 60.0, tools: ToolSource | None = None
    ) -> None:
        self._backend = backend
        self._tools = tools if tools is not None else NoTools()
        self._check_timeout = check_timeout
        self._fresh_for = fresh_for
        self._lock = asyncio.Lock()
        self._status: BackendStatus | None = None
        self._until = 0.0

    async def status(self) -> BackendStatus:
        async with self._lock:
            if self._status is None or time.monotonic() >= self._until:
                try:
                    async with asyncio.timeout(self._check_timeout):
                        self._status = await self._backend.status()
                except TimeoutError:
                    self._status = BackendStatus(None, "Cursor did not answer in time.", reachable=False)
                self._until = time.monotonic() + (self._fresh_for if self._status.signed_in else 5.0)
            return self._status

    async def alive(self) -> bytes:
        """For probes without a key: nothing private."""
        status = await self.status()
        ready = status.reachable and (status.signed_in or self._backend.standing == "simulated")
        return b'{"status":"ready"}' if ready else b'{"status":"alive"}'

    async def render(self, *, parked: int, live: int) -> tuple[int, bytes]:
        """(HTTP status, JSON)"""
        status = await self.status()
        body = msgspec.json.encode(
            {
                "status": "ok" if status.reachable else "error",
                "version": __version__,
                "auth": self._auth(status),
                "detail": status.detail,
                "backend": {"name": self._backend.name, "standing": self._backend.standing},
                "sessions": {"live": live, "parked": parked},
                "mcp": self._tools.health(),
            }
        )
        return 200 if status.reachable else 503, body

    def _auth(self, status: BackendStatus) -> str:
        if self._backend.standing == "simulated":
            return "simulated"
        return _AUTH[status.signed_in]

    def render_tools(self) -> bytes:
        return msgspec.json.encode(self._tools.listing())
