"""Assumptions about Cursor that fail silently if wrong: an instruction is ignored, a history is not seen.
`agent_quirks` overrides each; `caretway prove` finds the values for an account and prints the line to set.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from msgspec import Struct, structs

from .kinds import FILLED_TEXT, PAIRS, SWITCH, ValueKind, choice, duration

SystemDelivery = Literal["rule", "message"]
HistoryCarrier = Literal["root", "typed"]
ReplayAction = Literal["message", "resume"]
ReplayToolNames = Literal["plain", "prefixed"]
SdkSystemDelivery = Literal["custom", "message"]
CliTools = Literal["auto", "text"]
ModelShapeName = Literal["auto", "base", "details", "both", "requested"]


class Quirks(Struct, frozen=True):
    system: SystemDelivery = "rule"
    sdk_system: SdkSystemDelivery = "custom"
    history: HistoryCarrier = "root"
    replay: ReplayAction = "message"
    names: ReplayToolNames = "plain"
    model: ModelShapeName = "auto"
    limits: bool = True
    sibling_quiet: float = 0.2
    sibling_cap: float = 1.5
    gather: float = 0.016
    client_type: str = "sdk"
    time_zone: str = ""
    checksum: bool = False
    cli_tools: CliTools = "auto"


class Quirk(Struct, frozen=True):
    kind: ValueKind
    help: str


_SECONDS: Final = duration(zero=True)
QUIRKS: Final[Mapping[str, Quirk]] = {
    "system": Quirk(choice(get_args(SystemDelivery)), "The system prompt is a rule, or a first message of the user."),
    "sdk_system": Quirk(
        choice(get_args(SdkSystemDelivery)),
        "On the sdk backend the system prompt replaces Cursor's own if the account may do so, or is in the first "
        "message.",
    ),
    "history": Quirk(choice(get_args(HistoryCarrier)), "Earlier messages are in the root prompt, or are typed turns."),
    "replay": Quirk(
        choice(get_args(ReplayAction)),
        "A replayed history that ends with tool results continues by a message, or by a resume action.",
    ),
    "names": Quirk(
        choice(get_args(ReplayToolNames)),
        "Tools in a replayed history have the client's names, or names with the prefix that the model sees.",
    ),
    "model": Quirk(
        choice(get_args(ModelShapeName)),
        "How a run names its model: base id and parameters, or the flat id in one or both fields; auto tries each.",
    ),
    "limits": Quirk(
        SWITCH, "Refuse tools and messages beyond what Cursor accepts, and join the oldest messages of a long history."
    ),
    "sibling_quiet": Quirk(_SECONDS, "A silence that ends a step of tool calls when Cursor does not report how many."),
    "sibling_cap": Quirk(_SECONDS, "The longest wait for another parallel tool call while Cursor is not silent."),
    "gather": Quirk(
        _SECONDS,
        "With several runs, how long reading pauses after small reads, to handle them together; 0 never pauses.",
    ),
    "client_type": Quirk(FILLED_TEXT, "The client type to send to Cursor."),
    "time_zone": Quirk(FILLED_TEXT, "The IANA time zone to send to Cursor; none by default."),
    "checksum": Quirk(SWITCH, "Send the checksum header of older clients."),
    "cli_tools": Quirk(choice(get_args(CliTools)), "cursor-agent gets a client's tools as its own, or always as text."),
}


def _read(given: object) -> Quirks:
    if isinstance(given, Quirks):
        return given
    pairs: Any = given if isinstance(given, Mapping) else PAIRS.read(given)
    values: dict[str, Any] = {}
    for word, value in pairs.items():
        name = str(word).replace("-", "_")
        if name not in QUIRKS:
            raise ValueError
        values[name] = QUIRKS[name].kind.read(value)
    return Quirks(**values)


def shown_values(quirks: Quirks) -> dict[str, str]:
    """The quirks that differ from their defaults, as text that `_read` accepts."""
    usual = structs.asdict(Quirks())
    given = structs.asdict(quirks)
    return {name: QUIRKS[name].kind.show(value) for name, value in given.items() if value != usual[name]}


def _show(quirks: Quirks) -> str:
    return ",".join(f"{name}={value}" for name, value in shown_values(quirks).items())


AGENT_QUIRKS: Final = ValueKind(
    f"pairs as in system=message,history=typed; the names are {', '.join(QUIRKS)}", "A=B", _read, _show, several=True
)
