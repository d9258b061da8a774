"""A backend around a backend that asks before it opens a run: every run is counted here, also those that the text
protocol and the MCP bridge open for themselves. Knows no budget.
"""

from collections.abc import Sequence

from ...core.request import TurnRequest
from ...core.turn import Abilities, Backend, BackendStatus, ModelInfo, Snapshot, Turn


class CountedBackend:
    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name = inner.name
        self.standing = inner.standing

        self.abilities: Abilities = inner.abilities

    async def models(self) -> Sequence[ModelInfo]:
        return await self.inner.models()

    async def status(self) -> BackendStatus:
        return await self.inner.status()

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        charge = request.charge
        if charge is None:
            return await self.inner.start(request, snapshot)
        await charge.open_run(request)
        try:
            return await self.inner.start(request, snapshot)
        except BaseException:  # also when the client hangs up meanwhile: no run was opened
            charge.run_failed()
            raise

    async def aclose(self) -> None:
        await self.inner.aclose()
