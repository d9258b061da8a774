"""The Protocol of a model list, as the web side uses it: list, find, fit a request to a model. No behaviour."""

from collections.abc import Sequence
from typing import Protocol

from ..core.request import TurnRequest
from ..core.turn import ModelInfo


class ModelSource(Protocol):
    async def models(self) -> Sequence[ModelInfo]: ...

    async def find(self, name: str) -> ModelInfo | None: ...

    async def fit(self, request: TurnRequest) -> TurnRequest:
        """The request for a model that is there; raises GatewayError when there is none like it."""
        ...
