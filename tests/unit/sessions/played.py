"""What stands around a played turn in a session: its request, its live turn, and the owner of its responses."""

from dataclasses import dataclass, field

from caretway.core.fold import Reply
from caretway.core.request import Message, Role, Text, ToolChoice, ToolSpec, TurnRequest
from caretway.sessions.lifecycle import Happening
from caretway.sessions.live import LiveTurn, Tickets
from caretway.sessions.response import Response
from turns import PlayedTurn

TOOLS = (ToolSpec("read"), ToolSpec("write"))


def ask(*said: Message, choice: ToolChoice | None = None, **more: object) -> TurnRequest:
    messages = said or (Message(Role.USER, (Text("hi"),)),)
    return TurnRequest("model", messages, TOOLS, choice or ToolChoice(), **more)  # type: ignore[arg-type]  # by name


@dataclass
class Owner:
    """What a response tells its session engine."""

    settled: list[Happening] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    let_go_of: int = 0

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None:
        self.settled.append(happening)
        self.replies.append(reply)
        live.turn.close()

    def issue(self, live: LiveTurn, ticket: str) -> None:
        live.issued.append(ticket)
        self.issued.append(ticket)

    def let_go(self, response: Response) -> None:
        self.let_go_of += 1


def live(turn: PlayedTurn, request: TurnRequest | None = None) -> LiveTurn:
    return LiveTurn(turn, Tickets("0123456789abcdef", "call_"), request or ask())
