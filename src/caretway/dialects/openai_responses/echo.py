"""What a Responses answer must repeat of its request: its fields, and the client's own names for tools that were
renamed. Opaque to all others; values only.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct, field

from ...core.request import TurnRequest

_KEY: Final = "openai_responses"


class Declared(Struct, frozen=True, gc=False):
    """A tool as its client knows it. Upstream it is a function, under a name of its own."""

    kind: Literal["function", "custom", "search"]
    name: str
    namespace: str | None = None


class RequestEcho(Struct, frozen=True):
    repeated: Mapping[str, object] = field(default_factory=dict)
    """Fields of the response object that repeat the request."""
    tools: Mapping[str, Declared] = field(default_factory=dict)
    """Offered name -> the tool, for those that are not plain functions under their own name."""
    show_reasoning: bool = False
    store: bool = False
    """It is kept when it is complete."""
    owner: str = ""
    """For whom: a key, or a connection."""
    passing: bool = False
    """The owner is a connection."""
    input: tuple[Mapping[str, Any], ...] = ()
    """The items of this request alone, for later lookups."""
    previous: str | None = None
    compacts: bool = False
    """The answer is one `compaction` item."""

    def declared(self, offered: str) -> Declared:
        return self.tools.get(offered) or Declared("function", offered)

    def put(self) -> Mapping[str, object]:
        return {_KEY: self}


_NOTHING: Final = RequestEcho()


def echo_of(request: TurnRequest) -> RequestEcho:
    echo = request.echo.get(_KEY)
    return echo if isinstance(echo, RequestEcho) else _NOTHING
