"""How a model is asked to summarise a conversation, for every dialect whose clients may ask for that: the words, and a
turn without tools or an output format. An empty summary is an error. Pure.
"""

from typing import Final

from msgspec.structs import replace

from ..core.errors import GatewayError, bad_request
from ..core.request import Message, Role, Text, ToolChoice, TurnRequest

ASK: Final = (
    "Do not go on with the task. Write a summary of this conversation for somebody who will continue it without seeing "
    "it: the goal, what was decided and why, what was done and found out (files, commands, results), what is left to "
    "do, and what the user said about how to work. Be complete and brief. Answer with the summary alone."
)

HEADING: Final = "Summary of the conversation so far, written before it was shortened:"
"""In front of a summary that a client brings back."""


def asking(request: TurnRequest, instructions: str = "") -> TurnRequest:
    """The same conversation, with the request for its summary as the newest message. A limit that is meant for an
    answer would cut it."""
    asked = Message(Role.USER, (Text(instructions.strip() or ASK),))
    return replace(
        request,
        messages=(*request.messages, asked),
        tools=(),
        tool_choice=ToolChoice(),
        output_format=None,
        stop=(),
        max_output=None,
    )


def no_summary() -> GatewayError:
    return bad_request("The model wrote no summary.", hint="Ask again, or compact in the client.")
