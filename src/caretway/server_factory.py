"""Builds the web server from settings: access rules, limits, TLS (both files or none), how often connections are looked
at.

It knows the web room, and nothing about sessions, backends or Cursor's protocol.
"""

import time
from contextlib import AsyncExitStack
from typing import Final

from .config import ConfigError, Settings
from .core.passing import Elsewhere
from .keys.key_file import CLUSTER_COPY, KeyBook, KeyFile
from .known_secrets import gateway_keys, open_trace
from .web.access import Access, access_for
from .web.access_layer import AccessLayer
from .web.admission import Admission, CallerLimits, SharedAdmission
from .web.application import Application
from .web.body import Bodies, BodyLimits
from .web.descriptors import connections_that_fit
from .web.limits import ConnectionLimits
from .web.page_door import PageDoor
from .web.server import Server
from .web.shape import ShapeLimits
from .web.tls import TlsContext, tls_context

LONGEST_LOOK_S: Final = 1.0
"""How long to wait between two checks for overdue connections."""
SHUTDOWN_NOTICE_S: Final = 3.0
"""How long clients have to hear that their answer was ended."""


def key_book(settings: Settings) -> KeyBook:
    """The keys with a name. Raises when their file cannot be used."""
    return KeyBook(key_file(settings))


def key_file(settings: Settings) -> KeyFile:
    """Those of this gateway alone, or its copy of the cluster's."""
    return KeyFile(settings.data_dir, name=CLUSTER_COPY) if settings.cluster else KeyFile(settings.data_dir)


def access_rules(settings: Settings, keys: KeyBook, local_key: str = "") -> Access:
    """Raises when the gateway would be open to strangers, or half of what TLS needs is missing. `local_key` counts
    beside other keys only."""
    for given, missing in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, given) is not None and getattr(settings, missing) is None:
            raise ConfigError(missing, settings.origin(given), f"{given} is set and {missing} is not: TLS needs both")
    return access_for(
        settings.host,
        gateway_keys(settings),
        settings.allowed_hosts,
        settings.allowed_origins,
        named=keys.current() is not None,
        local_key=local_key,
    )


def _body_limits(settings: Settings) -> BodyLimits:
    return BodyLimits(
        size=settings.max_body_bytes,
        in_all=max(settings.max_buffered_bytes, settings.max_body_bytes),
        idle=settings.body_idle_timeout,
        total=settings.body_timeout,
    )


def shape_limits(settings: Settings) -> ShapeLimits:
    return ShapeLimits(
        depth=settings.max_json_depth,
        messages=settings.max_messages,
        values=settings.max_json_values,
        text=settings.max_text_bytes,
    )


def build_server(
    settings: Settings,
    access: Access,
    keys: KeyBook,
    application: Application,
    stack: AsyncExitStack,
    door: PageDoor | None = None,
    elsewhere: Elsewhere | None = None,
    shared: SharedAdmission | None = None,
) -> Server:
    """The application behind its access rules, on connections with limits."""
    layer = AccessLayer(
        application,
        access=access,
        keys=keys,
        admission=Admission(
            CallerLimits(settings.max_concurrent_per_key, settings.max_requests_per_minute), time.monotonic
        ),
        trace=open_trace(settings, "clients", stack),
        door=door,
        elsewhere=elsewhere,
        shared=shared,
    )
    limits = ConnectionLimits(
        connections=connections_that_fit(settings.max_connections),
        head_bytes=settings.max_header_bytes,
        headers=settings.max_headers,
        head_timeout=settings.header_timeout,
        drain_timeout=settings.body_idle_timeout,
        send_timeout=settings.send_timeout,
        look_every=look_every(settings),
    )
    return Server(layer, limits, Bodies(_body_limits(settings)), _tls(settings))


def look_every(settings: Settings) -> float:
    """Often enough for the shortest of the limits to mean something."""
    requests = (settings.header_timeout, settings.body_idle_timeout, settings.body_timeout, settings.send_timeout)
    answers = (settings.keep_alive, settings.first_event_patience, settings.response_timeout)
    return min(LONGEST_LOOK_S, min(*requests, *answers) / 8)


def _tls(settings: Settings) -> TlsContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return tls_context(str(settings.tls_cert), str(settings.tls_key))
