"""Builds what the gateways of a cluster share, over its link: conversations, responses, budgets, rate limits, named
keys, totals, the lock of a sign-in. Imported only where the setting `cluster` is there.
"""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from .cluster.calls import Calls, ClusterLink
from .cluster.conversations import LocalStore, SharedConversations
from .cluster.keys import ClusterKeys, KeyCopy
from .cluster.limits import SharedLimits
from .cluster.link import LinkOptions, RedisLink
from .cluster.news import Hear, News
from .cluster.outbox import ClusterOutbox
from .cluster.responses import SharedResponses
from .cluster.seal import Seal
from .cluster.sign_in import LocalSignIn, SharedSignIn
from .cluster.spent import RedisSpent
from .cluster.totals import ClusterTotals
from .config import Settings
from .keys.key_file import CLUSTER_COPY, KeyFile
from .known_secrets import cluster_key


@dataclass(frozen=True, slots=True)
class SharedState:
    """What a gateway uses of it."""

    settings: Settings
    calls: Calls
    seal: Seal
    outbox: ClusterOutbox
    news: News
    spent: RedisSpent
    limits: SharedLimits
    responses: SharedResponses
    totals: ClusterTotals

    def conversations(self, local: LocalStore, hear: Hear) -> SharedConversations:
        age = self.settings.store_max_age
        return SharedConversations(local, self.calls, self.seal, self.outbox, self.news, max_age_s=age, hear=hear)

    def sign_in(self, local: LocalSignIn, url: str) -> SharedSignIn:
        return SharedSignIn(local, self.calls, self.seal, url)


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """What a command uses of it, without a gateway."""

    calls: Calls
    seal: Seal
    keys: ClusterKeys
    spent: RedisSpent


def open_link(settings: Settings, stack: AsyncExitStack) -> RedisLink:
    """The stack ends it."""
    assert settings.cluster is not None
    link = RedisLink(LinkOptions(settings.cluster, settings.cluster_name, settings.cluster_ca), time.monotonic)
    stack.push_async_callback(link.aclose)
    return link


def open_shared_keys(settings: Settings, stack: AsyncExitStack) -> SharedKeys:
    """With a link of its own, which the stack ends. Raises ConfigError."""
    link = open_link(settings, stack)
    calls, seal = Calls(link), Seal(cluster_key(settings))
    outbox = ClusterOutbox(calls)
    stack.push_async_callback(outbox.aclose)
    copy = KeyFile(settings.data_dir, name=CLUSTER_COPY)
    keys = ClusterKeys(calls, seal, News(link, calls, seal, outbox), copy)
    return SharedKeys(calls, seal, keys, RedisSpent(calls, seal, outbox, settings.cluster_budgets))


async def open_shared(settings: Settings, link: ClusterLink, key: str, stack: AsyncExitStack) -> SharedState:
    """The stack ends it before the link. Raises GatewayError when nobody knows whether clients need a key."""
    calls, seal = Calls(link), Seal(key)
    outbox = ClusterOutbox(calls)
    stack.push_async_callback(outbox.aclose)
    news = News(link, calls, seal, outbox)
    stack.push_async_callback(news.aclose)
    copy = KeyFile(settings.data_dir, name=CLUSTER_COPY)
    await KeyCopy(ClusterKeys(calls, seal, news, copy), copy, KeyFile(settings.data_dir), news).start()
    limits = SharedLimits(
        calls,
        seal,
        outbox,
        concurrent=settings.max_concurrent_per_key,
        per_minute=settings.max_requests_per_minute,
    )
    stack.push_async_callback(limits.aclose)
    return SharedState(
        settings,
        calls,
        seal,
        outbox,
        news,
        RedisSpent(calls, seal, outbox, settings.cluster_budgets),
        limits,
        SharedResponses(calls, seal, outbox, news, max_age_s=settings.store_max_age),
        ClusterTotals(calls, seal, outbox, time.time),
    )
