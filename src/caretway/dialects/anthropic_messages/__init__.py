"""Anthropic's Messages: one dialect, assembled from its decoder, encoder, table of errors and token count."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from ...core.errors import GatewayError
from ...core.estimate import estimate_input
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.turn import ModelInfo
from .. import Dialect, DialectRoute, Encoder, Lookup, Operation, ResponseMeta
from .compaction import COMPACTS, SummaryBlockEncoder, render_compaction
from .decode import decode
from .encode import MessagesEncoder, render
from .errors import encode_error
from .models import render_model, render_models


def _count_tokens(params: Mapping[str, str], headers: Mapping[str, str], body: object) -> bytes:
    """How large the request is, by the same decoder that would answer it."""
    return msgspec.json.encode({"input_tokens": estimate_input(decode(body, headers))})


class AnthropicMessages:
    name: str = "anthropic_messages"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/messages",
            {
                "POST": Operation(
                    "messages",
                    "Anthropic Messages",
                    "The message",
                    body="MessagesRequest",
                    error="AnthropicError",
                    turn=True,
                )
            },
        ),
        DialectRoute(
            "/messages/count_tokens",
            {
                "POST": Operation(
                    "countTokens",
                    "An estimate of a request's size",
                    "The number of tokens",
                    body="MessagesRequest",
                    error="AnthropicError",
                )
            },
        ),
    )
    lookups: Mapping[str, Lookup] = MappingProxyType({"countTokens": _count_tokens})
    mark: str = "anthropic-version"
    repeats: int = 1

    def recalls(self, body: bytes) -> bool:
        return False

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        return (SummaryBlockEncoder if COMPACTS in request.echo else MessagesEncoder)(request, meta)

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        return (render_compaction if COMPACTS in request.echo else render)(reply, request, meta)

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return encode_error(error)

    def render_models(self, models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
        return render_models(models, created, query)

    def render_model(self, model: ModelInfo, created: int) -> bytes:
        return render_model(model, created)


ANTHROPIC_MESSAGES: Final[Dialect] = AnthropicMessages()
