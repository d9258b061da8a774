"""The ways to reach Cursor that the backend contract is held against, each in front of a simulator of its own.

A new backend is one row in `WAYS`: how it is opened, and what it says it can do. Contract tests ask for abilities and
are run for the ways that have them; that a way has what its row says is a test of its own.
"""

import importlib.util
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from caretway.config import Settings
from caretway.core.turn import Abilities, Backend
from caretway.upstream import open_backend
from contract.cursor_cli.stand_in import StandIn
from contract.gateways import simulated

SDK_WHEELS: Final = {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64"), ("darwin", "arm64")}
"""Where the SDK can be installed and run: there its absence is a fault of the set-up, and its tests fail."""


@dataclass(frozen=True, slots=True)
class Subject:
    backend: Backend
    stats: Callable[[], Mapping[str, int]] | None
    """The counters of the simulator behind it, where there is one to look at."""


Open = Callable[..., AbstractAsyncContextManager[Subject]]


@dataclass(frozen=True, slots=True)
class Way:
    open: Open
    """Takes further settings."""
    abilities: Abilities
    bad_credentials: Mapping[str, Any] | None = None
    """Settings under which Cursor refuses the user; None where nobody is asked."""
    missing: str = ""
    """Why it cannot be tried on this platform."""


@asynccontextmanager
async def _opened(**settings: Any) -> AsyncIterator[Subject]:
    with TemporaryDirectory() as data_dir:
        async with simulated() as (simulator, port):
            known: dict[str, Any] = {"data_dir": Path(data_dir), "agent_url": f"http://127.0.0.1:{port}"}
            async with open_backend(Settings(**known | settings)) as backend:
                yield Subject(backend, simulator.stats.as_dict)


def _agent(transport: str) -> Open:
    def open_way(**settings: Any) -> AbstractAsyncContextManager[Subject]:
        known = {"backend": "agent", "agent_transport": transport, "access_token": "test-token"}
        return _opened(**known | settings)

    return open_way


def _legacy_chat(**settings: Any) -> AbstractAsyncContextManager[Subject]:
    return _opened(**{"backend": "legacy-chat", "access_token": "test-token"} | settings)


def _sdk(**settings: Any) -> AbstractAsyncContextManager[Subject]:
    return _opened(**{"backend": "sdk", "api_key": "test-key"} | settings)


@asynccontextmanager
async def _simulator(**settings: Any) -> AsyncIterator[Subject]:
    with TemporaryDirectory() as data_dir:
        known: dict[str, Any] = {"data_dir": Path(data_dir), "backend": "simulator"}
        async with open_backend(Settings(**known | settings)) as backend:
            yield Subject(backend, None)


def _cli(transport: str) -> Open:
    @asynccontextmanager
    async def open_way(*, signed_out: bool = False, **settings: Any) -> AsyncIterator[Subject]:
        with TemporaryDirectory() as root, ExitStack() as stack:
            stand_in = StandIn(Path(root)).install()
            stack.enter_context(patch.dict(os.environ, {"HOME": root}))
            if signed_out:
                stand_in.sign_out()
            known: dict[str, Any] = {"backend": "cli", "cli_transport": transport, "agent_bin": str(stand_in.program)}
            async with open_backend(Settings(**{"data_dir": Path(root, "data")} | known | settings)) as backend:
                yield Subject(backend, None)
            assert stand_in.left() == []

    return open_way


def _sdk_missing() -> str:
    here = (sys.platform, platform.machine().lower())
    if importlib.util.find_spec("cursor_sdk") is not None or here in SDK_WHEELS:
        return ""
    return f"cursor-sdk has no wheel for {here[0]} on {here[1]}"


_ALL: Final = Abilities(client_tools="native", parks=True, continues=True, images=True, reasoning=True, usage=True)

WAYS: Final[Mapping[str, Way]] = {
    "agent-h2": Way(_agent("h2"), _ALL, {"access_token": "bad-token"}),
    "agent-http1": Way(_agent("http1"), _ALL, {"access_token": "bad-token"}),
    "legacy-chat": Way(_legacy_chat, Abilities(client_tools="native"), {"access_token": "bad-token"}),
    "cli-print": Way(_cli("print"), replace(_ALL, parks=False), {"signed_out": True}),
    "cli-acp": Way(_cli("acp"), replace(_ALL, usage=False), {"signed_out": True}),
    "simulator": Way(_simulator, _ALL),
    "sdk": Way(_sdk, _ALL, {"api_key": "bad-key"}, _sdk_missing()),
}


def able(*abilities: str) -> list[str]:
    """The names of the ways that can do all of this."""

    def can(way: Way) -> bool:
        return all(getattr(way.abilities, ability) not in (False, "none") for ability in abilities)

    return [name for name, way in WAYS.items() if can(way)]
