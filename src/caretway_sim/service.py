"""The simulator's routes: runs, appends, legacy chat, lists of models, sign-in, `/_sim/` pages. Refuses bad tokens,
unknown client versions, `Run` over HTTP/1.1 (464), wrong content types and large bodies.

It decides for each request; sockets and the inside of a run are in other modules.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from caretway.cursor.wire import paths
from caretway.cursor.wire.embedding import AppendOutOfRange, AppendSyntax, read_append
from caretway.cursor.wire.envelope import ConnectError, EnvelopeError, gunzip
from caretway.cursor.wire.messages import ai, pb

from . import accounts, catalogue, faults
from .accounts import Accounts
from .catalogue import is_shipped
from .exchange import Deaf, Inlet, Request, SimExchange, answer
from .inlets import (
    MAX_BODY_BYTES,
    BodyInlet,
    BrokenBody,
    ChannelBusy,
    Channels,
    Reply,
    RunInlet,
    as_error,
    as_grant,
    as_json,
    as_message,
    as_tokens,
    available_models,
    empty,
    end_stream,
    name_agent,
    read_object,
    read_query,
    read_request_id,
    read_text,
    unknown,
)
from .legacy import BadChat, LegacyRun, read_chat
from .run import SimRun
from .shared import Shared

STATS: Final = "/_sim/stats"
STEPS: Final = "/_sim/steps"
RESET: Final = "/_sim/reset"
REVOKE: Final = "/_sim/revoke"
SIGN_IN: Final = "/loginDeepControl"
PUBLIC_MODELS: Final = "/v1/models"
PUBLIC_ME: Final = "/v1/me"
_AGENT_USAGE: Final = re.compile(r"/v1/agents/([\w-]+)/usage")
RENEWAL: Final = "/auth/token"
OAUTH: Final = "/oauth/token"
TEAM_HOST: Final = "/agentn"
"""Prefix of the team host: paths below it belong, as far as clients see, to another host."""

_ANALYTICS: Final = "/aiserver.v1.AnalyticsService/"

log = logging.getLogger(__name__)

Page = Callable[[Request, bytes], Reply]


class Service:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._manners = shared.manners
        self._accounts = Accounts(shared)
        self._channels = Channels(shared)
        self.runs: set[SimRun | LegacyRun] = set()
        self._calls: dict[str, Page] = {
            paths.BIDI_APPEND: self._append,
            paths.USABLE_MODELS: self._usable_models,
            paths.USABLE_MODELS_OLD: self._usable_models,
            paths.DEFAULT_MODEL: lambda request, _: as_message(
                request, pb.GetDefaultModelForCliResponse(model=catalogue.details(catalogue.DEFAULT))
            ),
            paths.NAME_AGENT: name_agent,
            paths.SERVER_CONFIG: self._server_config,
            paths.PRIVACY_MODE: lambda request, _: as_message(request, ai.GetUserPrivacyModeResponse(privacy_mode=1)),
            paths.TEAM_SETTINGS: empty,
            paths.TEAM_REPOS: empty,
        }
        for path, call in accounts.CALLS.items():
            self._calls[path] = partial(self._dashboard, call)
        if self._manners.cursor_catalogue and not self._manners.hides_bases:
            self._calls[paths.AVAILABLE_MODELS] = available_models
        self._pages: dict[tuple[str, str], Page] = {
            ("POST", paths.EXCHANGE_KEY): self._renewal(
                lambda request, _: as_tokens(self._accounts.exchange(request.bearer))
            ),
            ("POST", paths.REFRESH): self._renewal(
                lambda request, _: as_tokens(self._accounts.renew(request.bearer, "refresh"))
            ),
            ("POST", RENEWAL): self._renewal(
                lambda _, body: as_tokens(self._accounts.renew(read_text(body, "refreshToken"), "token"))
            ),
            ("POST", OAUTH): self._renewal(
                lambda _, body: as_grant(self._accounts.renew(read_text(body, "refresh_token"), "oauth"))
            ),
            ("POST", paths.POLL): self._poll,
            ("GET", paths.POLL): self._poll,
            ("GET", SIGN_IN): self._sign_in,
            ("GET", PUBLIC_MODELS): lambda request, _: self._for_key(
                request, catalogue.public(cursor_catalogue=self._manners.cursor_catalogue)
            ),
            ("GET", PUBLIC_ME): self._me,
            ("GET", STATS): lambda *_: as_json(200, self._shared.stats.as_dict()),
            ("GET", STEPS): lambda *_: as_json(200, {"runs": self._shared.steps.as_list()}),
            ("POST", RESET): self._reset,
            ("POST", REVOKE): self._revoke,
        }
        if self._manners.hides_bases:
            del self._pages["GET", PUBLIC_MODELS]

    def accept(self, request: Request, exchange: SimExchange) -> Inlet:
        if request.path.startswith(TEAM_HOST):
            request = replace(request, path=request.path.removeprefix(TEAM_HOST), on_team_host=True)
        if request.path == paths.RUN:
            return self._accept_run(request, exchange)
        if request.path == paths.RUN_SSE:
            return BodyInlet(exchange, partial(self._open_channel, request, exchange))
        if request.path == paths.STREAM_CHAT:
            return BodyInlet(exchange, partial(self._open_chat, request, exchange))
        return BodyInlet(exchange, partial(self._answer, request, exchange))

    # ------------------------------------------------------------------ streams

    def _accept_run(self, request: Request, exchange: SimExchange) -> Inlet:
        if request.http != "2" or self._manners.run_is_464:
            if self._manners.run_is_464 or self._manners.run_on_http1_is_464:
                answer(exchange, 464, "text/plain", b"")
                return Deaf()
            return BodyInlet(exchange, partial(self._answer, request, exchange))
        if request.content_type != paths.STREAM_TYPE:
            answer(exchange, 415, "text/plain", b"expected application/connect+proto\n")
            return Deaf()
        if not self._admits(request, exchange):
            return Deaf()
        owner = self._accounts.person(request.bearer).name
        run = SimRun(self._shared, exchange, request.header("x-request-id"), owner, abroad=self._abroad(request))
        self._follow(run)
        return RunInlet(run)

    def _admits(self, request: Request, exchange: SimExchange) -> bool:
        """Begin the response of a stream. False: the stream ended at once."""
        exchange.start(200, [("content-type", paths.STREAM_TYPE)])
        if not self._accounts.accepts(request.bearer):
            end_stream(exchange, faults.NOT_SIGNED_IN)
            return False
        if self._refuses_version(request):
            end_stream(exchange, faults.VERSION_REFUSALS[self._manners.version_refusal])
            return False
        if self._manners.pinned_team and not request.on_team_host:
            self._shared.stats.misdirected += 1
            if self._manners.pinned_team == "ends":
                exchange.finish()
            else:
                end_stream(exchange, faults.SCRIPTED["team_region"])
            return False
        return True

    def _abroad(self, request: Request) -> bool:
        return bool(self._manners.abroad) and not self._shared.comes_from_home(request.peer)

    def _refuses_version(self, request: Request) -> bool:
        return self._manners.known_versions_only and not is_shipped(request.header("x-cursor-client-version"))

    def _open_channel(self, request: Request, exchange: SimExchange, body: bytes) -> SimRun | None:
        try:
            request_id = read_request_id(body)
        except BrokenBody as wrong:
            exchange.start(200, [("content-type", paths.STREAM_TYPE)])
            end_stream(exchange, faults.bad_request(str(wrong)))
            return None
        if not self._admits(request, exchange):
            return None
        try:
            owner = self._accounts.person(request.bearer).name
            run = self._channels.open(request_id, exchange, owner, abroad=self._abroad(request))
        except ChannelBusy as busy:
            end_stream(exchange, faults.bad_request(str(busy)))
            return None
        self._follow(run)
        return run

    def _open_chat(self, request: Request, exchange: SimExchange, body: bytes) -> LegacyRun | None:
        if not self._admits(request, exchange):
            return None
        try:
            asked = read_chat(body)
        except BadChat as wrong:
            end_stream(exchange, faults.bad_request(str(wrong)))
            return None
        chat = LegacyRun(self._shared, exchange, asked)
        self._follow(chat)
        return chat

    def _follow(self, run: SimRun | LegacyRun) -> None:
        self.runs.add(run)
        run.task.add_done_callback(lambda _: self.runs.discard(run))

    # ------------------------------------------------------------------ calls

    def _answer(self, request: Request, exchange: SimExchange, body: bytes) -> None:
        if request.path == paths.PERIOD_USAGE and self._manners.period_usage == "silent":
            self._shared.stats.usage_asked += 1
            return
        try:
            if request.header("content-encoding") == "gzip" and body:
                body = gunzip(body, MAX_BODY_BYTES)
            reply = self._reply(request, body)
        except (BrokenBody, EnvelopeError) as wrong:
            reply = as_error(faults.bad_request(str(wrong)))
        except Exception:  # the edge of a call: a bug of the simulator must not end the other streams
            log.exception("the simulated call %s failed", request.path)
            reply = as_error(faults.SCRIPTED["internal"])
        answer(exchange, *reply)

    def _reply(self, request: Request, body: bytes) -> Reply:
        page = self._pages.get((request.method, request.path))
        if page is not None:
            return page(request, body)
        if request.method == "GET" and (agent := _AGENT_USAGE.fullmatch(request.path)):
            return self._for_key(request, accounts.agent_usage(self._shared, agent[1]))
        if request.path.startswith(_ANALYTICS):
            return empty(request, body)
        call = self._calls.get(request.path)
        if call is None or request.method != "POST":
            return unknown(request)
        if not self._accounts.accepts(request.bearer):
            return as_error(faults.NOT_SIGNED_IN)
        if self._manners.judges_calls and self._refuses_version(request):
            return as_error(faults.VERSION_REFUSALS[self._manners.version_refusal])
        return call(request, body)

    def _append(self, request: Request, body: bytes) -> Reply:
        try:
            request_id, seqno, message = read_append(body)
            self._channels.append(request_id, seqno, message)
        except (AppendSyntax, AppendOutOfRange) as wrong:
            return as_error(faults.bad_request(str(wrong)))
        return as_message(request, ai.BidiAppendResponse())

    def _server_config(self, request: Request, _: bytes) -> Reply:
        self._shared.stats.server_configs += 1
        config = ai.GetServerConfigResponse()
        if self._shared.prefer == "h2":
            config.http2_config = ai.GetServerConfigResponse.HTTP2_CONFIG_FORCE_BIDI_ENABLED
        if self._manners.pinned_team:
            config.agent_url_config.agentn_url = request.base + TEAM_HOST
        return as_message(request, config)

    def _poll(self, request: Request, body: bytes) -> Reply:
        asked = read_query(request) if request.method == "GET" else read_object(body)
        uuid, verifier = str(asked.get("uuid", "")), str(asked.get("verifier", ""))
        if not uuid:
            return as_json(400, {"error": "uuid is missing"})
        tokens = self._accounts.poll(uuid, verifier)
        if tokens is not None and (status := self._manners.sign_in_ends):
            return status, "text/plain", b"Simulated: this sign-in is over\n"
        return (404, "text/plain", b"Not found") if tokens is None else as_json(200, tokens)

    def _renewal(self, page: Page) -> Page:
        status = self._manners.renewal_down
        return (lambda *_: (status, "text/plain", b"Simulated: not now\n")) if status else page

    def _dashboard(self, call: accounts.AccountCall, request: Request, body: bytes) -> Reply:
        if request.path == paths.PERIOD_USAGE:
            self._shared.stats.usage_asked += 1
            if self._manners.period_usage == "refused":
                return as_error(faults.SCRIPTED["denied"])
        if request.content_type != paths.JSON_TYPE:
            return 415, "text/plain", b"expected application/json\n"
        answer = call(self._shared, self._accounts.person(request.bearer), read_object(body))
        return as_error(answer) if isinstance(answer, ConnectError) else as_json(200, answer)

    def _sign_in(self, request: Request, _: bytes) -> Reply:
        """The page of a sign-in link. Opening it signs in."""
        asked = read_query(request)
        if not asked.get("uuid") or not asked.get("challenge"):
            return 400, "text/plain", b"This link is not complete.\n"
        self._accounts.visit(asked["uuid"], asked["challenge"])
        return 200, "text/plain", b"You are signed in to the simulated Cursor. You can close this page.\n"

    def _revoke(self, _: Request, body: bytes) -> Reply:
        self._accounts.revoke(str(read_object(body).get("type", "")))
        return as_json(200, {})

    def _me(self, request: Request, _: bytes) -> Reply:
        created = "2026-01-01T00:00:00.000Z"
        me = {"apiKeyName": "simulated key", "userId": 1, "userEmail": "user@simulator.invalid", "createdAt": created}
        return self._for_key(request, me)

    def _for_key(self, request: Request, value: Any) -> Reply:
        if not self._accounts.accepts(request.bearer):
            return as_json(401, {"error": {"code": "unauthenticated", "message": "the key is not accepted"}})
        return as_json(200, value)

    def _usable_models(self, request: Request, _: bytes) -> Reply:
        if self._manners.strict_list_type and request.content_type == paths.STREAM_TYPE:
            return 415, "text/plain", b"expected application/proto\n"
        listed = catalogue.usable(cursor_catalogue=self._manners.cursor_catalogue)
        if own := self._accounts.model_of(request.bearer):
            listed.models.append(catalogue.details(catalogue.Model(own, own, "Simulated: this account's own")))
        return as_message(request, listed)

    def _reset(self, *_: object) -> Reply:
        self._shared.steps.reset()
        self._shared.stats.reset()  # the prompt cache stays warm: the cost of a turn is measured from here on
        return as_json(200, self._shared.stats.as_dict())
