"""Starts cursor-agent, and says why it cannot be started: the gateway is stopping, the program is
missing or not executable (and how to install it). Ends one that closed its output and stays."""

import asyncio
from collections.abc import Callable
from typing import Final

from ...core.errors import ErrorKind, GatewayError, gateway_stops
from ...processes import nursery
from ...processes.child import CannotStart, Child, ChildSink, Command, Pipe

MUTE_S: Final = 0.5
"""How long a program may run on after it closed its output: nothing more can be heard of it."""


class AgentNursery(nursery.Nursery):
    async def start(self, command: Command, sink: ChildSink, closed: Callable[[Pipe], None] | None = None) -> Child:
        """Raises GatewayError."""
        begun: list[Child] = []

        def end_mute() -> None:
            for child in begun:
                if child.alive:
                    child.terminate()

        def pipe_closed(pipe: Pipe) -> None:
            if pipe == "stdout":
                asyncio.get_running_loop().call_later(MUTE_S, end_mute)
            if closed is not None:
                closed(pipe)

        try:
            begun.append(await super().start(command, sink, pipe_closed))
            return begun[0]
        except nursery.NurseryClosed as closed:
            raise gateway_stops() from closed
        except CannotStart as failure:
            raise GatewayError(
                ErrorKind.UPSTREAM_DOWN,
                f"cursor-agent cannot be started ({failure.program}): {failure.reason}.",
                hint="Install it with `curl https://cursor.com/install -fsS | bash`, or set CURSOR_AGENT_BIN.",
                code="cli_not_found",
            ) from failure
