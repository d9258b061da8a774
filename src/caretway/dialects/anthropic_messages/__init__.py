"""Anthropic's Messages: one dialect, assembled from its decoder, its encoder, its table of errors and an errand."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ...core.errors import GatewayError
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.turn import ModelInfo
from .. import Dialect, Encoder, ResponseMeta
from .decode import decode
from .encode import MessagesEncoder, render
from .errors import encode_error
from .models import render_model, render_models
from .tokens import estimate_input

_COUNT_TOKENS: Final = "/v1/messages/count_tokens"


class AnthropicMessages:
    name: str = "anthropic_messages"
    routes: tuple[str, ...] = ("/v1/messages",)
    errands: tuple[str, ...] = ("/v1/messages/",)
    repeats: int = 1
    """Everything below, so that unsupported paths (batches) are refused in this API's error format."""

    def recalls(self, body: bytes) -> bool:
        return False

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        return MessagesEncoder(request, meta)

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        return render(reply, request, meta)

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return encode_error(error)

    def render_models(self, models: Sequence[ModelInfo], created: int) -> bytes:
        return render_models(models, created)

    def render_model(self, model: ModelInfo, created: int) -> bytes:
        return render_model(model, created)

    def errand(self, method: str, path: str, headers: Mapping[str, str], body: object) -> tuple[int, bytes] | None:
        """`count_tokens`: how large the request is, by the same decoder that would answer it."""
        if path != _COUNT_TOKENS or method != "POST":
            return None
        return 200, msgspec.json.encode({"input_tokens": estimate_input(decode(body, headers))})


ANTHROPIC_MESSAGES: Final[Dialect] = AnthropicMessages()
