"""OpenAI's Chat Completions: one dialect, assembled from its decoder, its encoder and its table of errors."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ...core.errors import GatewayError
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.turn import ModelInfo
from .. import Dialect, DialectRoute, Encoder, Lookup, Operation, ResponseMeta
from .decode import decode
from .encode import ChatEncoder, render
from .errors import encode_error
from .models import render_model, render_models


class OpenAIChat:
    name: str = "openai_chat"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/chat/completions",
            {"POST": Operation("chat", "OpenAI Chat Completions", "The completion", body="ChatRequest", turn=True)},
        ),
    )
    lookups: Mapping[str, Lookup] = MappingProxyType({})
    mark: str = ""
    repeats: int = 1

    def recalls(self, body: bytes) -> bool:
        return False

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        return ChatEncoder(request, meta)

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        return render(reply, request, meta)

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return encode_error(error)

    def render_models(self, models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
        return render_models(models, created)

    def render_model(self, model: ModelInfo, created: int) -> bytes:
        return render_model(model, created)


OPENAI_CHAT: Final[Dialect] = OpenAIChat()
