"""The gateway for a client: a running one, on any port and with any key, or an own one that ends with the client. A
running gateway is not used if it belongs to another user, needs TLS, requires clients' own accounts, or has another
backend than the flags ask for.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..config import Settings
from ..config.secrets import gateway_keys, secrets_in
from ..observe.redact import Redactor
from ..server.access import new_key
from .clients.values import NO_KEY, OfferedModel, Target, with_automatic_window
from .port_owner import strangers_port
from .process import CommandFailed, remark
from .running import LAUNCH_LOG, RunningGateway, announced_gateway, answering_gateways, ask, dialled, gateway_there
from .terminal import Style

_MAX_LOG: Final = 1_000_000
_HARMLESS: Final = frozenset({"config", "data_dir", "port", "host"})
"""Flags that do not prevent the use of a running gateway."""


@dataclass(frozen=True, slots=True)
class ClientGateway:
    url: str
    key: str
    keyed: bool
    models: tuple[OfferedModel, ...]
    running: bool
    """The gateway was running before and keeps running."""
    backend: str
    simulated: bool

    def target(self, model: str | None) -> Target:
        if not self.models and not model:
            raise CommandFailed("the gateway offers no model", "try: caretway doctor")
        return Target(self.url, self.key, self.models, model or self.models[0].id, self.keyed)


@asynccontextmanager
async def client_gateway(settings: Settings, given: Mapping[str, object]) -> AsyncIterator[ClientGateway]:
    """A running gateway, or one that ends with the block if there is none or the flags ask for another. `given`: the
    flags of this command line."""
    found = None if set(given) - _HARMLESS else await asyncio.to_thread(running_gateway, settings)
    if found is not None:
        yield found
        return
    _log_to(settings.data_dir / LAUNCH_LOG, settings)
    key = new_key()
    own = replace(
        settings,
        host="127.0.0.1",
        port=0,
        gateway_key=key,
        api_key_file=None,
        tls_cert=None,
        tls_key=None,
        auth_mode="own",
        shutdown_grace=0.0,
    )
    async with announced_gateway(own, launched=True) as gateway:
        yield await asyncio.to_thread(_looked_at, gateway.base_url, key, running=False)


def usual_url(settings: Settings) -> str:
    """The address of `caretway serve` with these settings. Raises if another user listens there."""
    url = _usual_url(settings)
    if strangers_port(url):
        port = settings.port + 1 if settings.port < 65535 else 0
        raise CommandFailed(f"{url} belongs to another user", f"choose a port of your own: CARETWAY_PORT={port}")
    return url


def _usual_url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return dialled(f"http://{host}:{settings.port}")


def requires_key(settings: Settings) -> bool:
    """Whether `caretway serve` with these settings would require a key."""
    from ..assembly import key_book  # imports the server

    return bool(gateway_keys(settings)) or key_book(settings).current() is not None


def usable_gateways(data_dir: Path, trusted: frozenset[int] | None = None) -> Iterator[RunningGateway]:
    """Running gateways that answer and that this user's programs can use, newest first. Blocking. `trusted`: see
    `strangers_port`."""
    for note in answering_gateways(data_dir):
        if note.url.startswith("http:") and not note.passthrough and not strangers_port(note.url, trusted):
            yield note


def running_gateway(settings: Settings, trusted: frozenset[int] | None = None) -> ClientGateway | None:
    """The running gateway that a client can use. Blocking. `trusted`: see `strangers_port`."""
    for note in usable_gateways(settings.data_dir, trusted):
        if not note.launched:
            return _looked_at(note.url, note.key, running=True)
    url = _usual_url(settings)
    if settings.auth_mode == "passthrough" or not gateway_there(url, settings.data_dir):
        return None
    if strangers_port(url, trusted):
        remark([f"the gateway at {url} is another user's, so it is not used"])
        return None
    keys = gateway_keys(settings)
    return _looked_at(url, keys[0] if keys else "", running=True)


def _looked_at(url: str, key: str, *, running: bool) -> ClientGateway:
    """Asks the gateway for its models and state. Blocking."""
    session = ask(url, "/caretway/v1/session").body  # needs no key, so it leaves no refusal in the gateway's log
    keyed = isinstance(session, dict) and bool(session.get("key_required"))
    sent = key if keyed else ""
    listed = ask(url, "/v1/models", sent, timeout=60)
    if listed.status == 401:
        raise CommandFailed(
            f"the gateway at {url} requires a key that is not known here", "set CARETWAY_API_KEY to its key"
        )
    if listed.status != 200:
        raise CommandFailed(f"the gateway at {url} did not list its models: {listed.error}")
    health = ask(url, "/health", sent, timeout=60).body
    backend = health.get("backend", {}) if isinstance(health, dict) else {}
    return ClientGateway(
        url,
        sent or NO_KEY,
        keyed,
        with_automatic_window(_model(row) for row in listed.body["data"]),
        running,
        str(backend.get("name", "")),
        backend.get("standing") == "simulated",
    )


def _model(row: Mapping[str, Any]) -> OfferedModel:
    return OfferedModel(
        row["id"],
        row.get("name", ""),
        row.get("context_window"),
        "image" in row.get("input_modalities", ()),
        bool(row.get("reasoning")),
    )


def _log_to(file: Path, settings: Settings) -> None:
    """Logs the client's own gateway to a file, because the client owns the terminal. A long file is truncated first."""
    from .log_lines import LineFormatter  # a running gateway needs no log here

    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = not file.exists() or file.stat().st_size > _MAX_LOG
        os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_CREAT | (os.O_TRUNC if fresh else 0), 0o600))
        handler: logging.Handler = logging.FileHandler(file, encoding="utf-8")
    except OSError:
        handler = logging.NullHandler()  # a full disk must not stop the client
    handler.setFormatter(LineFormatter(Redactor(secrets_in(settings)), Style()))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
