"""Which offered tool a call means."""

import pytest

from caretway.backends.agent_api.wire_calls import client_name
from caretway.wire.messages import pb

OFFERED = frozenset({"look", "mcp_caretway_odd", "a-b"})


@pytest.mark.parametrize(
    ("tool_name", "name", "meant"),
    [
        ("look", "", "look"),
        ("", "look", "look"),
        ("mcp_caretway_look", "", "look"),
        ("", "caretway-look", "look"),
        ("mcp__caretway__look", "", "look"),
        ("mcp_user-caretway_look", "", "look"),
        ("caretway.look", "", "look"),
        ("caretway_a-b", "", "a-b"),
        ("mcp_caretway_odd", "", "mcp_caretway_odd"),
        ("mcp_caretway_gone", "look", "look"),
        ("mcp_caretway_gone", "", "mcp_caretway_gone"),
        ("mcp_other_look", "", "mcp_other_look"),
        ("caretwaylook", "", "caretwaylook"),
        ("", "", ""),
    ],
)
def test_names(tool_name: str, name: str, meant: str) -> None:
    assert client_name(pb.McpArgs(tool_name=tool_name, name=name), OFFERED) == meant
