"""A cursor-agent that cannot be started, told in words for people."""

from pathlib import Path

import pytest

from caretway.backends.cli.process import AgentChildGroup
from caretway.core.errors import ErrorKind, GatewayError
from caretway.processes.child import Command, Exit


class Listener:
    def data(self, data: bytes) -> None:
        raise AssertionError("nothing was started")

    def ended(self, exit_: Exit) -> None:
        raise AssertionError("nothing was started")


@pytest.mark.parametrize("there", [False, True])
async def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, there: bool) -> None:
    children = AgentChildGroup()
    program = tmp_path / "cursor-agent"
    if there:
        program.write_text("not executable")
    with pytest.raises(GatewayError, match="cursor-agent cannot be started") as told:
        await children.start(Command((str(program),), str(tmp_path), {}), Listener())
    assert (told.value.kind, told.value.code) == (ErrorKind.UPSTREAM_DOWN, "cli_not_found")
    assert str(program) in told.value.message and "CURSOR_AGENT_BIN" in told.value.hint
    assert children.live == 0


async def test_a_missing_workspace_is_named(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match=f"No such file or directory: {tmp_path / 'gone'}"):
        await AgentChildGroup().start(Command(("/bin/true",), str(tmp_path / "gone"), {}), Listener())


async def test_a_gateway_that_stops_starts_nothing(tmp_path: Path) -> None:
    children = AgentChildGroup()
    await children.aclose()
    with pytest.raises(GatewayError) as told:
        await children.start(Command(("/bin/true",), str(tmp_path), {}), Listener())
    assert told.value.kind is ErrorKind.CANCELLED
