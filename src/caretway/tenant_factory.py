"""Puts together everything that belongs to one account: backend, MCP bridge (never for clients' own accounts),
sessions, models, dialects. `app` opens one; in passthrough one more for each client's account.
"""

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import reduce
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from . import server_factory
from .backend_factory import account_source, build_backend
from .budgets.charges import Budgets, run_limit
from .config import Settings, hosts
from .core.records import Observer
from .core.request import SessionMode, TurnRequest
from .core.turn import Backend, StageFactory
from .dialects.openai_responses.store import ResponseArchive
from .dialects.registry import dialects
from .keys.key_file import KeyBook
from .loop_guard.history import loop_guard
from .models.catalogue import ModelCatalogue
from .page.content import KeptContent
from .sessions.conversation_store import StoredConversations
from .sessions.manager import SessionLimits, Sessions
from .sessions.response_file import ResponseFile, ResponseShelf
from .sessions.tickets import REPLICA
from .sign_in_factory import holder, passes
from .stages.output_format import output_format, with_instructions
from .stages.stop_sequences import stop_sequences
from .stages.token_cut import honour_max_tokens, token_cut
from .text_protocol.think_tags import think_tags
from .text_protocol.thinking import thinking
from .text_protocol.tool_strict import demand_tools
from .transport_factory import dialler
from .web.account import AccountWatch
from .web.answer import Pace
from .web.health import Health
from .web.images import ImageFetcher
from .web.respond import Content, Responder
from .web.tenant import Tenant

if TYPE_CHECKING:
    from .cluster_factory import Cluster
    from .hooks import HookWatch
    from .mcp_bridge.bridge import McpBridge
    from .simulator import Simulator


class Commons(Struct, frozen=True):
    """What the tenants of a gateway have in common."""

    settings: Settings
    keys: KeyBook
    observer: Observer
    store: StoredConversations
    responses: ResponseFile
    budgets: Budgets
    hook_watch: "HookWatch | None"
    mcp: "McpBridge | None"
    content: KeptContent
    traced_content: Content | None
    simulator: "Simulator | None"
    cluster: "Cluster | None"

    @property
    def passes(self) -> bool:
        """Every client brings an account of its own."""
        return passes(self.settings)

    def replica(self) -> str:
        return REPLICA if self.cluster is None else self.cluster.hops.id


class OpenTenant(Struct, frozen=True):
    backend: Backend
    tenant: Tenant
    catalogue: ModelCatalogue


def _preparation(settings: Settings) -> Callable[[TurnRequest], TurnRequest]:
    """What settings do to every request before it is planned."""
    steps = [with_instructions]
    if settings.tool_strict:
        steps.insert(0, demand_tools)
    if settings.max_tokens == "cut":
        steps.append(honour_max_tokens)
    if len(steps) == 1:
        return steps[0]
    return lambda request: reduce(lambda so_far, step: step(so_far), steps, request)


def _cuts(settings: Settings) -> tuple[StageFactory, ...]:
    return (token_cut,) if settings.max_tokens == "cut" else ()


def _images(settings: Settings) -> ImageFetcher | None:
    if settings.fetch_images == "off":
        return None
    scope, timeout, size = settings.fetch_images, settings.fetch_images_timeout, settings.fetch_images_bytes
    return ImageFetcher(scope, timeout, size, dialler(settings))


def open_tenant(
    settings: Settings, commons: Commons, stack: AsyncExitStack, beside: Backend | None = None
) -> OpenTenant:
    """`settings` name its credentials; `beside`: another one's backend. The stack ends it."""
    cluster = commons.cluster
    shared = None if cluster is None else cluster.shared
    share = None if shared is None or commons.passes else shared.sign_in
    backend = build_backend(settings, stack, counted=True, beside=beside, simulator=commons.simulator, share=share)
    stack.push_async_callback(backend.aclose)
    account = account_source(backend)
    if account is not None and not commons.passes:
        commons.budgets.learn_cycle(account)
        if commons.hook_watch is not None:
            commons.hook_watch.ask(account)
    guard = loop_guard(settings.tool_loop_max_repeat, settings.no_progress)
    if commons.mcp is not None:
        from .mcp_bridge.backend import BridgedBackend, Terms

        terms = Terms(settings.mcp_offer, settings.mcp_activity)
        backend = BridgedBackend(backend, commons.mcp, guard, terms)
    scope = f"{backend.name} {hosts(settings).api} {holder(settings).identity}"
    sessions = Sessions(
        backend,
        stages=(
            run_limit,
            think_tags,
            stop_sequences,
            *_cuts(settings),
            output_format,
            thinking(settings.thinking),
        ),
        limits=SessionLimits(
            mode=SessionMode(settings.session),
            parked_timeout=settings.parked_timeout,
            max_parked=settings.max_parked,
            disconnect_grace=settings.disconnect_grace,
            max_answer_bytes=settings.max_answer_bytes,
            arguments=settings.tool_arguments,
            scope=scope,
        ),
        store=commons.store,
        guard=guard,
        run_ended=commons.observer.run_ended,
        charges=commons.budgets,
        replica=commons.replica,
    )
    stack.push_async_callback(sessions.aclose)
    catalogue = ModelCatalogue(
        backend,
        extra=settings.models,
        aliases=settings.model_aliases,
        strict=settings.strict_models,
        only=settings.models_only,
        usual=settings.model_parameters,
        clock=time.monotonic,
    )
    shelf: ResponseArchive = ResponseShelf(commons.responses, sha256(scope.encode()).hexdigest())
    if shared is not None:
        shelf = shared.responses.shelf(shelf, sha256(scope.encode()).hexdigest())
    pace = Pace(settings.keep_alive, settings.first_event_patience, total=settings.response_timeout)
    tenant = Tenant(
        dialects=dialects(shelf),
        responder=Responder(
            sessions,
            catalogue,
            commons.observer,
            prepare=_preparation(settings),
            backend=backend.name,
            pace=pace,
            images=_images(settings),
            shape=server_factory.shape_limits(settings),
            content=commons.traced_content,
            find_key=commons.keys.named,
            hear=None if commons.passes else commons.content.hear,
            elsewhere=None if cluster is None else cluster.hops,
            unwritten=None if shared is None else shared.outbox.written,
        ),
        sessions=sessions,
        models=catalogue,
        health=Health(backend, check_timeout=settings.auth_check_timeout / 1000, tools=commons.mcp),
        account=AccountWatch(account),
    )
    return OpenTenant(backend, tenant, catalogue)
