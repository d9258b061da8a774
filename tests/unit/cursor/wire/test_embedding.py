"""Messages put together from ready bytes are those that the real encoder writes."""

import pytest

from caretway.cursor.wire.embedding import embed, tag
from caretway.cursor.wire.messages import pb


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 300_000])
def test_a_text_inside_messages(size: int) -> None:
    text = "w" * size
    real = pb.RequestContextSuccess(request_context=pb.RequestContext(cloud_rule=text)).SerializeToString()
    context = embed(tag(pb.RequestContext, "cloud_rule"), text.encode())
    assert embed(tag(pb.RequestContextSuccess, "request_context"), context) == real


def test_fields_in_the_order_of_their_numbers() -> None:
    real = pb.AgentRunRequest(conversation_id="c", run_id="r", mcp_tools=pb.McpTools())
    parts = (("mcp_tools", b""), ("conversation_id", b"c"), ("run_id", b"r"))
    assert b"".join(embed(tag(pb.AgentRunRequest, name), data) for name, data in parts) == real.SerializeToString()
