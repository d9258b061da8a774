"""A hostile server in Cursor's place, on the sdk backend as it is served: whatever it asks the SDK's own tools for,
nothing of it happens on this machine. `caged/` tries the same without the bridge's own refusals."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from caretway.config import Settings
from caretway.core.fold import fold
from caretway.core.request import Text, ToolResult, ToolSpec
from caretway.core.turn import Backend
from caretway.upstream import open_backend
from contract.caged.cage import witness
from contract.caged.demands import everything, repository
from contract.gateways import simulated
from contract.subjects import WAYS
from contract.test_backend import ask, response

pytestmark = [
    pytest.mark.all,  # each starts a process that takes a second of CPU or more
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never"),
]

SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"command": {"type": "string"}}}
CLIENTS: Final[dict[str, tuple[ToolSpec, ...]]] = {
    "without tools": (),
    "with a shell": (ToolSpec("bash", "Runs a command.", SCHEMA), ToolSpec("look", "Looks.", SCHEMA)),
}
MAX_CALLS: Final = 4


class Served:
    """Asks the backend as the gateway does. The client refuses to run whatever it is asked to."""

    def __init__(self, backend: Backend, tools: tuple[ToolSpec, ...]) -> None:
        self._backend = backend
        self._tools = tools
        self.called: list[str] = []

    async def ask(self, prompt: str) -> str:
        turn = await self._backend.start(ask(prompt, tools=self._tools))
        try:
            reply = fold(await response(turn))
            for _ in range(MAX_CALLS):
                if not reply.calls:
                    break
                self.called += [call.name for call in reply.calls]
                await turn.submit([ToolResult(call.id, (Text("no"),), is_error=True) for call in reply.calls])
                reply = fold(await response(turn))
            assert reply.error is None, (prompt, reply.error)
            return reply.text
        finally:
            await turn.aclose()


@pytest.mark.parametrize("client", CLIENTS)
async def test_nothing_happens_that_a_server_asks_for(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, programs = repository(tmp_path)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    async with simulated() as (_, port), witness() as seen:
        address = f"http://127.0.0.1:{port}"
        settings = Settings(backend="sdk", api_key="key", agent_url=address, data_dir=tmp_path / "data")
        async with open_backend(settings) as backend:
            served = Served(backend, CLIENTS[client])
            happened = await everything(served, seen, tmp_path)
        await asyncio.sleep(1)  # what runs in the background takes a moment
        assert [name for name, did in happened.items() if did()] == []
        assert seen.heard == []
    assert set(served.called) <= {tool.name for tool in CLIENTS[client]}
