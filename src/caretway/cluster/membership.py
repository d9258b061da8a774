"""One gateway's membership of its cluster, opened from settings: the link to Redis, the directory, hops and shared
state. Also the cluster's data for commands that run without a gateway.

Imported only if the setting `cluster` is set.
"""

import ssl
import time
from contextlib import AsyncExitStack
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from .. import __version__
from ..accounts.tokens import AccountStore
from ..config import ConfigError, Settings
from ..config.secrets import cluster_key
from ..installation import install_command
from ..observe.metrics import CounterFamily, Family, gauge_lines
from ..usage.key_file import CLUSTER_COPY, KeyFile

try:
    from .conversations import LocalStore, SharedConversations, SharedResponses
    from .directory import Directory, Me
    from .hop import Claims, Hops, is_sheltered
    from .keys import ClusterKeys, KeyCopy, SharedSignIn
    from .link import LinkOptions, RedisLink
    from .outbox import ClusterOutbox, Hear, News
    from .seal import ANY_SCHEMA, Seal
    from .spent import ClusterTotals, RedisSpent, SharedLimits
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
"""How many gateways the dashboard lists; the others are only counted. Every open dashboard gets the list at each
change."""
TICKET_SLACK_S: Final = 3600.0
"""Seconds that a ticket may live beyond the longest response and the longest parking after it."""


class Cluster(Struct, frozen=True):
    """The additional objects of a gateway in a cluster."""

    link: RedisLink
    seal: Seal
    directory: Directory
    hops: Hops
    outbox: ClusterOutbox
    news: News
    spent: RedisSpent
    limits: SharedLimits
    responses: SharedResponses
    totals: ClusterTotals

    def conversations(self, local: LocalStore, max_age_s: float, hear: Hear) -> SharedConversations:
        return SharedConversations(local, self.link, self.seal, self.outbox, self.news, max_age_s=max_age_s, hear=hear)

    def sign_in(self, local: AccountStore, url: str) -> SharedSignIn:
        return SharedSignIn(local, self.link, self.seal, url)

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
            *gauge_lines(REDIS_UP, {(): int(not self.link.away)}),
            *failures.lines(),
            *hops.lines(),
        ]

    def snapshot(self) -> dict[str, Any]:
        """For the dashboard: the known gateways, oldest first."""
        own = self.directory.own
        alive = self.directory.alive()
        return {
            "redis": not self.link.away,
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


async def join_cluster(settings: Settings, base_url: str, stack: AsyncExitStack) -> Cluster:
    """Join the cluster. `base_url`: where this gateway listens. The stack closes the shared state, then leaves the
    directory, then closes the link. Raises GatewayError if it is unknown whether clients need a key."""
    key = cluster_key(settings)
    address = own_address(settings, base_url)
    link = open_link(settings, stack)
    ticket_life = settings.parked_timeout + settings.response_timeout + TICKET_SLACK_S
    any_schema = Seal(key, schema=ANY_SCHEMA)
    directory = Directory(
        link, any_schema, Me(address, __version__, ticket_life), clock=time.monotonic, wall_clock=time.time
    )
    await directory.join()
    stack.push_async_callback(directory.leave)
    hops = Hops(
        directory,
        Claims(link, any_schema, ticket_life),
        key,
        tls=partial(_tls, settings.cluster_ca),
        plaintext=settings.cluster_plaintext,
        keeps_keys=settings.auth_mode == "passthrough",
    )
    stack.push_async_callback(hops.aclose)
    seal = Seal(key)
    outbox = ClusterOutbox(link)
    stack.push_async_callback(outbox.aclose)
    news = News(link, seal, outbox)
    stack.push_async_callback(news.aclose)
    copy = KeyFile(settings.data_dir, name=CLUSTER_COPY)
    await KeyCopy(ClusterKeys(link, seal, news, copy), copy, KeyFile(settings.data_dir), news).start()
    concurrent, per_minute = settings.max_concurrent_per_key, settings.max_requests_per_minute
    limits = SharedLimits(link, seal, outbox, concurrent=concurrent, per_minute=per_minute)
    stack.push_async_callback(limits.aclose)
    return Cluster(
        link=link,
        seal=seal,
        directory=directory,
        hops=hops,
        outbox=outbox,
        news=news,
        spent=RedisSpent(link, seal, outbox, settings.cluster_budgets),
        limits=limits,
        responses=SharedResponses(link, seal, outbox, news, max_age_s=settings.store_max_age),
        totals=ClusterTotals(link, seal, outbox, time.time),
    )


def open_link(settings: Settings, stack: AsyncExitStack) -> RedisLink:
    """A link to Redis, which the stack closes."""
    assert settings.cluster is not None
    link = RedisLink(LinkOptions(settings.cluster, settings.cluster_name, settings.cluster_ca), time.monotonic)
    stack.push_async_callback(link.aclose)
    return link


def open_keys(settings: Settings, stack: AsyncExitStack) -> tuple[ClusterKeys, RedisSpent]:
    """The cluster's keys and their spending, for a command, with a link that the stack closes. Raises ConfigError."""
    link = open_link(settings, stack)
    seal = Seal(cluster_key(settings))
    outbox = ClusterOutbox(link)
    stack.push_async_callback(outbox.aclose)
    copy = KeyFile(settings.data_dir, name=CLUSTER_COPY)
    keys = ClusterKeys(link, seal, News(link, seal, outbox), copy)
    return keys, RedisSpent(link, seal, outbox, settings.cluster_budgets)


def own_address(settings: Settings, base_url: str) -> str:
    """The address of this gateway for the others. Raises ConfigError if they could not reach it, or only without
    encryption."""
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


def _tls(ca: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca) if ca is not None else None)
