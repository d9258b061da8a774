"""Opens the cluster from settings: its key, how the others reach this gateway (TLS or loopback, unless the owner says
otherwise), the link to Redis, the directory, what is shared. Imported only where the setting `cluster` is there.
"""

import ssl
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from . import __version__
from .config import ConfigError, Settings
from .installation import install_command
from .known_secrets import cluster_key
from .observe.families import CounterFamily, Family, gauge_lines

try:
    from .cluster.claims import Claims
    from .cluster.directory import Directory, Me
    from .cluster.hop import Hops, is_sheltered
    from .cluster.link import RedisLink
    from .cluster.seal import ANY_SCHEMA, Seal
    from .shared_factory import SharedState, open_shared
    from .shared_factory import open_link as open_link  # for whoever only asks: it says what to install
except ImportError as missing:
    _problem = f"cluster: {missing}. Type: {install_command('cluster')}"
    raise ConfigError("cluster", "default", _problem) from None

REPLICA: Final = Family("caretway_replica_info", "This gateway of the cluster.", ("replica", "version", "draining"))
REPLICAS: Final = Family("caretway_replicas", "Gateways of the cluster that are alive, as far as is known here.")
REDIS_UP: Final = Family("caretway_redis_up", "Whether Redis answered when it was last asked.")
REDIS_FAILURES: Final = Family("caretway_redis_failures_total", "How often Redis did not answer, or refused.")
HOPS: Final = Family(
    "caretway_hops_total",
    "Requests passed on (out), taken from another gateway (in), claimed or answered here for one that is gone.",
    ("way", "outcome"),
)
SHOWN: Final = 40
"""Gateways on the page; the others are counted. Every page that is open gets them when something changes."""
TICKET_SLACK_S: Final = 3600.0
"""A ticket outlives the longest parking by the response that runs before it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a gateway of a cluster has beside a single one."""

    link: RedisLink
    directory: Directory
    hops: Hops
    shared: SharedState

    def metrics(self) -> list[str]:
        """Lines for `/metrics`."""
        own = self.directory.own
        hops = CounterFamily(HOPS)
        for labels, count in self.hops.counts.items():
            hops.add(labels, count)
        failures = CounterFamily(REDIS_FAILURES)
        failures.add((), self.link.failures)
        return [
            *gauge_lines(REPLICA, {(own.id, own.version, "yes" if own.draining else "no"): 1}),
            *gauge_lines(REPLICAS, {(): len(self.directory.alive())}),
            *gauge_lines(REDIS_UP, {(): int(self.link.state.there)}),
            *failures.lines(),
            *hops.lines(),
        ]

    def told(self) -> dict[str, Any]:
        """For the page: the oldest first, as far as is known here."""
        own = self.directory.own
        alive = self.directory.alive()
        return {
            "redis": self.link.state.there,
            "replicas": [
                {
                    "id": one.id,
                    "address": one.address,
                    "version": one.version,
                    "since": one.started,
                    "parked": self.directory.parked() if one.id == own.id else one.parked,
                    "state": one.state(own.schema),
                    "here": one.id == own.id,
                }
                for one in alive[:SHOWN]
            ],
            "left_off": max(0, len(alive) - SHOWN),
        }


async def open_cluster(settings: Settings, base_url: str, stack: AsyncExitStack) -> Cluster:
    """`base_url`: where this gateway listens. The stack ends it: out of the directory, then the link."""
    key = cluster_key(settings)
    address = own_address(settings, base_url)
    link = open_link(settings, stack)
    ticket_life = settings.parked_timeout + settings.response_timeout + TICKET_SLACK_S
    me = Me(address, __version__, ticket_life)
    seal = Seal(key, schema=ANY_SCHEMA)
    directory = Directory(link, seal, me, clock=time.monotonic, wall_clock=time.time)
    await directory.join()
    stack.push_async_callback(directory.leave)
    hops = Hops(
        directory,
        Claims(link, seal, ticket_life),
        key,
        tls=partial(_tls, settings.cluster_ca),
        plaintext=settings.cluster_plaintext,
        keeps_keys=settings.auth_mode == "passthrough",
    )
    stack.push_async_callback(hops.aclose)
    return Cluster(link, directory, hops, await open_shared(settings, link, key, stack))


def _tls(ca: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca) if ca is not None else None)


def own_address(settings: Settings, base_url: str) -> str:
    """Raises ConfigError where the others could not reach it, or only in the clear."""
    address = settings.cluster_address or base_url
    parts = urlsplit(address)
    host = parts.hostname or ""
    if settings.cluster_address is None and _is_any(host):
        problem = (
            f"cluster_address is not set, and {host} is no address that other gateways can reach. Say it: "
            f"--cluster-address {parts.scheme}://NAME:{parts.port}"
        )
        raise ConfigError("cluster_address", settings.origin("host"), problem)
    if not is_sheltered(address) and not settings.cluster_plaintext:
        problem = (
            f"cluster_address: {address} is not encrypted, and requests hold prompts. Give it a certificate "
            "(--tls-cert, --tls-key), or say --cluster-plaintext on where the network encrypts"
        )
        raise ConfigError("cluster_address", settings.origin("cluster_address"), problem)
    return address


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
