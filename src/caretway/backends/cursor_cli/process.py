"""Starts cursor-agent, and says why it cannot be started: no POSIX system, the gateway is stopping, the program is
missing or not executable (and how to install it)."""

from ...core.errors import ErrorKind, GatewayError, gateway_stops
from ...processes import nursery
from ...processes.child import CannotStart, Child, ChildSink, Command
from ...processes.group import POSIX


class AgentNursery(nursery.Nursery):
    async def start(self, command: Command, sink: ChildSink) -> Child:
        """Raises GatewayError."""
        if not POSIX:
            raise GatewayError(
                ErrorKind.UNSUPPORTED,
                "The cli backend needs a POSIX system.",
                hint="Use --backend agent or --backend sdk, or run Caretway inside WSL.",
            )
        try:
            return await super().start(command, sink)
        except nursery.NurseryClosed as closed:
            raise gateway_stops() from closed
        except CannotStart as failure:
            raise GatewayError(
                ErrorKind.UPSTREAM_DOWN,
                f"cursor-agent cannot be started ({failure.program}): {failure.reason}.",
                hint="Install it with `curl https://cursor.com/install -fsS | bash`, or set CURSOR_AGENT_BIN.",
                code="cli_not_found",
            ) from failure
