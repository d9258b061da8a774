"""OpenAI's old Completions (`/v1/completions`): one plain prompt in, plain text out, over the errors and models of the
chat dialect.

Editors and scripts still call it. The prompt is one user message; there are no tools, no pictures and no history.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ...core.fold import Reply
from ...core.request import TurnRequest
from .. import Dialect, DialectRoute, Encoder, Lookup, Operation, ResponseMeta
from ..openai_chat import OpenAIChat
from .decode import decode
from .encode import CompletionsEncoder, render


class OpenAICompletions(OpenAIChat):
    name: str = "openai_completions"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/completions",
            {"POST": Operation("complete", "OpenAI Completions", "The text", body="CompletionRequest", turn=True)},
        ),
    )
    lookups: Mapping[str, Lookup] = MappingProxyType({})

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        return CompletionsEncoder(request, meta)

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        return render(reply, request, meta)


OPENAI_COMPLETIONS: Final[Dialect] = OpenAICompletions()
