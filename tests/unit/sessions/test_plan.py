"""plan(): stories of what a client sends, and what becomes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
from msgspec import structs

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import (
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    SessionMode,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    TurnRequest,
)
from caretway.core.turn import Abilities, Snapshot
from caretway.sessions.plan import (
    MOST_IN_ALL,
    MOST_OF_ONE,
    Continue,
    Fresh,
    Parked,
    Plan,
    Repeat,
    Replay,
    Resume,
    asked_for,
    grown,
    known_before,
    plan,
)
from caretway.sessions.transcript import Chain, fingerprint, tools_key


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def says(*parts: str | ToolCall | Reasoning) -> Message:
    return Message(Role.ASSISTANT, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def r_call(ticket: str = "t1", arguments: str = '{"path":"a","lines":3}', name: str = "read") -> ToolCall:
    return ToolCall(ticket, name, arguments)


R_HELLO: Final = user("hello")
BEGUN: Final = says("Well,")
CALLS: Final = (r_call("t1"), r_call("t2"))
R_ANSWER: Final = says("Looking.", *CALLS)

ACCOUNTS: Final[dict[str, tuple[list[Message], int | None]]] = {
    "results alone": ([], 0),
    "as it was": ([R_HELLO, R_ANSWER], 1),
    "with its reasoning": ([R_HELLO, says(Reasoning("hm"), "Looking.", *CALLS)], 1),
    "respelled": ([user("hello\n"), says("Looking. ", r_call(arguments='{"lines": 3, "path": "a"}'), CALLS[1])], 1),
    "other words": ([R_HELLO, says("(calling tools)", *CALLS)], 1),
    "no words": ([R_HELLO, says(*CALLS)], 1),
    "in pieces": ([R_HELLO, says("Looking."), says(CALLS[0]), says(CALLS[1])], 1),
    "in pieces, after a respelled question": ([user(" hello"), says("Hm."), says(*CALLS)], 1),
    "an empty message first": ([R_HELLO, says(), says(*CALLS)], 1),
    "an empty message in the history": ([user(""), R_HELLO, says(*CALLS)], 2),
    "a value added": ([R_HELLO, says(r_call(arguments='{"path":"a","lines":3,"all":true}'), CALLS[1])], 1),
    "a value left out": ([R_HELLO, says(r_call(arguments='{"path":"a"}'), CALLS[1])], 1),
    "arguments that are no object": ([R_HELLO, says(r_call(arguments="[1]"), CALLS[1])], 1),
    "arguments that are no JSON": ([R_HELLO, says(r_call(arguments="{{"), CALLS[1])], 1),
    "another name": ([R_HELLO, says(r_call(name="invalid"), CALLS[1])], 1),
    "a value edited": ([R_HELLO, says(r_call(arguments='{"path":"b"}'), CALLS[1])], None),
    "a number edited": ([R_HELLO, says(r_call(arguments='{"path":"a","lines":4}'), CALLS[1])], None),
    "a number spelled as JavaScript does": (
        [R_HELLO, says(r_call(arguments='{"path":"a","lines":3.0}'), CALLS[1])],
        1,
    ),
    "a call left out": ([R_HELLO, says(CALLS[0])], None),
    "a call more": ([R_HELLO, says(*CALLS, r_call("t3"))], None),
    "a call twice": ([R_HELLO, says(CALLS[0], *CALLS)], None),
    "another ticket": ([R_HELLO, says(CALLS[0], r_call("t3"))], None),
    "another question": ([user("hullo"), R_ANSWER], None),
    "a question more": ([R_HELLO, user("and?"), says(*CALLS)], None),
    "the history alone": ([R_HELLO], None),
    "no history": ([R_ANSWER], None),
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_account(name: str) -> None:
    told, expected = ACCOUNTS[name]
    assert known_before(tuple(told), (R_HELLO,), R_ANSWER, Chain(b"").add((R_HELLO,)).said) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([R_HELLO, BEGUN, R_ANSWER], 2),
        ([R_HELLO, BEGUN, says("…", *CALLS)], 2),
        ([user("hello "), BEGUN, says("…", *CALLS)], 2),
        ([R_HELLO, says("Well, then", *CALLS)], None),
    ],
    ids=["as it was", "other words", "respelled", "joined"],
)
def test_an_answer_that_the_client_began(told: list[Message], expected: int | None) -> None:
    history = (R_HELLO, BEGUN)
    assert known_before(tuple(told), history, R_ANSWER, Chain(b"").add(history).said) == expected


L_READ: Final = ToolSpec("read", "Reads.", {"type": "object", "properties": {"a": {}, "b": {}}})
L_WRITE: Final = ToolSpec("write", "Writes.")
RESPELLED: Final = ToolSpec("read", " Reads.\n", {"properties": {"b": {}, "a": {}}, "type": "object"})
NEW: Final = ("mcp__vault__reveal", "write")
L_HELLO: Final = Message(Role.USER, (Text("hello"),))


def called(name: str, arguments: str) -> Message:
    return Message(Role.ASSISTANT, (ToolCall("t", name, arguments),))


def came_back(text: str) -> Message:
    return Message(Role.TOOL, (ToolResult("t", (Text(text),)),))


GROWN: Final = {
    "the same": ((L_READ, L_WRITE), (L_READ, L_WRITE), ()),
    "in another order": ((L_READ, L_WRITE), (L_WRITE, L_READ), ()),
    "respelled": ((L_READ,), (RESPELLED,), ()),
    "one more": ((L_READ,), (L_READ, L_WRITE), ("write",)),
    "the first ones": ((), (L_READ, L_WRITE), ("read", "write")),
    "one less": ((L_READ, L_WRITE), (L_READ,), None),
    "another description": ((L_READ,), (ToolSpec("read", "Reads much.", L_READ.schema),), None),
    "another schema": ((L_READ,), (ToolSpec("read", "Reads.", {"type": "object"}), L_WRITE), None),
    "one for another": ((L_READ,), (L_WRITE,), None),
    "the same of another namespace": ((ToolSpec("read", namespace="a"),), (ToolSpec("read", namespace="b"),), None),
}


@pytest.mark.parametrize("name", GROWN)
def test_what_is_new(name: str) -> None:
    offered, now, expected = GROWN[name]
    assert grown(offered, now) == expected


ASKED: Final = {
    "named by our call": (called("find", '{"query":"select:mcp__vault__reveal"}'), "found", "mcp__vault__reveal"),
    "named by what came back": (called("find", "{}"), "Tool: mcp__vault__reveal\n", "mcp__vault__reveal"),
    "named in a list": (called("find", '{"names":"a,write,b"}'), "", "write"),
    "part of a longer name": (called("find", "{}"), "mcp__vault__reveal_all write_file re-write writes", None),
    "its server named by our call": (called("connect", '{"server":"vault"}'), "ok", "mcp__vault__reveal"),
    "its server in what came back": (called("bash", "{}"), "a vault", None),
    "not named": (called("bash", '{"command":"ls"}'), "a b c", None),
    "loaded by a tool that does not say what": (called("enable_toolset", '{"set":"files"}'), "ok", NEW[0]),
    "a search with another name of the tool": (called("ToolSearch", '{"query":"vault"}'), "write", "write"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_was_asked_for(name: str) -> None:
    answer, text, expected = ASKED[name]
    assert asked_for(NEW, answer, [came_back(text)], [L_HELLO]) == expected


def test_the_user_may_ask_too() -> None:
    said, ran = Message(Role.USER, (Text("now call write, please"),)), called("bash", "{}")
    assert asked_for(NEW, ran, [came_back("ok"), said], [L_HELLO]) == "write"
    assert asked_for(NEW, ran, [came_back("ok")], [said, ran]) == "write"
    assert asked_for(NEW, ran, [came_back("ok")], [said, ran, L_HELLO]) is None, "that was an earlier turn"


def test_a_long_result_is_not_read_to_its_end_and_hides_no_other() -> None:
    long = came_back("x " * MOST_OF_ONE + " write")
    assert asked_for(NEW, called("bash", "{}"), [long], []) is None
    assert asked_for(NEW, called("bash", "{}"), [long, came_back("write")], []) == "write"
    many = [came_back("x " * (MOST_OF_ONE // 2))] * (MOST_IN_ALL // MOST_OF_ONE)
    assert asked_for(NEW, called("bash", "{}"), [*many, came_back("write")], []) is None


READ: Final = ToolSpec("read", "Reads a file.")
WRITE: Final = ToolSpec("write", "Writes a file.")
ABLE: Final = Abilities(client_tools="native", parks=True, continues=True)
PNG: Final = Image(b"png", "image/png")


def message(role: Role, *parts: Part | str) -> Message:
    return Message(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def done(ticket: str, text: str = "done") -> Message:
    return Message(Role.TOOL, (ToolResult(ticket, (Text(text),)),))


SYSTEM: Final = message(Role.SYSTEM, "be good")
HELLO: Final = message(Role.USER, "hello")
ANSWER: Final = message(Role.ASSISTANT, "hi there")
MORE: Final = message(Role.USER, "and now?")
ASKS: Final = message(Role.ASSISTANT, ToolCall("t1", "read", "{}"), ToolCall("t2", "read", "{}"))
OPENING: Final = (SYSTEM, HELLO, ASKS)
CHAT: Final = (SYSTEM, HELLO, ANSWER)

KNOWN: Final = Snapshot("agent", b"state")
GOES_ON: Final = Continue(KNOWN, Chain(b""))
UNKNOWN: Final = Replay("no known conversation begins like this")


def turn(
    *tickets: str, sid: str = "s", model: str = "m", waiting: bool = True, history: Sequence[Message] = OPENING
) -> Parked:
    before = Chain(b"").add(history[:-1]).said
    return Parked(sid, frozenset(tickets), model, (READ,), tuple(history[:-1]), history[-1], before, waiting)


def parked(*tickets: str, sid: str = "s") -> dict[str, Parked]:
    return dict.fromkeys(tickets, turn(*tickets, sid=sid))


WAITING: Final = parked("t1", "t2")
PAST: Final = dict.fromkeys(("t1", "t2"), turn(waiting=False))


@dataclass(frozen=True)
class Story:
    name: str
    messages: Sequence[Message]
    expected: Plan
    mode: SessionMode = SessionMode.AUTO
    abilities: Abilities = ABLE
    parked: dict[str, Parked] = field(default_factory=dict)
    known: Sequence[Message] = CHAT
    """The one transcript that the store knows."""
    tools: tuple[ToolSpec, ...] = (READ,)
    model: str = "m"


RESUMED: Final = "tool results for a parked turn"
LATER: Final = "tool results for a parked turn; new tools wait"


def resume(*results: Message, extra: Sequence[str] = (), reason: str = RESUMED) -> Resume:
    found = tuple(part for one in results for part in one.parts if isinstance(part, ToolResult))
    return Resume("s", found, tuple(map(Text, extra)), 0, reason)


ONE, TWO = done("t1"), done("t2")
SEEN: Final = message(Role.TOOL, ToolResult("t1", (PNG,)))
FAILED: Final = message(Role.TOOL, ToolResult("t1", (Text("no such file"),), is_error=True))
THIRD: Final = message(Role.ASSISTANT, ToolCall("t3", "read", "{}"))
BOTH: Final = (*OPENING, ONE, TWO)
NEXT_STEP: Final = dict.fromkeys(("t1", "t2", "t3"), turn("t3", history=(*BOTH, THIRD)))

GIVEN: Final = tuple(part for one in (ONE, TWO) for part in one.parts if isinstance(part, ToolResult))
TAKEN: Final = structs.replace(turn("t3", history=(*BOTH, MORE, THIRD)), given=GIVEN)
"""It was resumed with both results and a word beside them, and waits for the next."""
REPLAYED: Final = structs.replace(TAKEN, own=False)
"""The same, of a run to which the history was replayed."""
MAKES_ROOM: Final = Replay("these results were given before, beside other words", "s")


def repeated(taken: Parked) -> dict[str, Parked]:
    return dict.fromkeys(("t1", "t2"), taken)


CHANGED: Final = Replay("the history changed")
ONLY_ONE: Final = message(Role.ASSISTANT, ToolCall("t1", "read", "{}"))
TWO_FILES: Final = (ToolCall("t1", "read", '{"path":"a"}'), ToolCall("t2", "read", '{"path":"b"}'))
ASKS_FILES: Final = message(Role.ASSISTANT, "Let me look.", *TWO_FILES)
FILES: Final = dict.fromkeys(("t1", "t2"), turn("t1", "t2", history=(SYSTEM, HELLO, ASKS_FILES)))


def retold(*answer: Message) -> list[Message]:
    """The results, after the client's own account of our answer."""
    return [SYSTEM, HELLO, *answer, ONE, TWO]


def call(ticket: str, arguments: str, name: str = "read") -> ToolCall:
    return ToolCall(ticket, name, arguments)


LOAD: Final = message(Role.ASSISTANT, ToolCall("t1", "ToolSearch", '{"query":"select:write"}'))
LOADING: Final = {"t1": turn("t1", history=(SYSTEM, HELLO, LOAD))}
LOADED: Final = Replay("a tool was loaded: write", "s")
CHANGED_TOOLS: Final = Replay("the tools changed")
SEARCH: Final = ToolSpec("search", "Searches.")

STORIES: Final = [
    # ---- nothing to go back to
    Story("the first message", [SYSTEM, HELLO], Fresh("first message")),
    Story("the first message, fresh demanded", [HELLO], Fresh("fresh was asked for"), mode=SessionMode.FRESH),
    Story("the first message, a session demanded", [HELLO], Fresh("first message"), mode=SessionMode.REQUIRED),
    # ---- tickets
    Story("all results", BOTH, resume(ONE, TWO), parked=WAITING),
    Story("results in another order", [*OPENING, TWO, ONE], resume(TWO, ONE), parked=WAITING),
    Story(
        "results in one message",
        [*OPENING, message(Role.USER, *ONE.parts, *TWO.parts)],
        resume(ONE, TWO),
        parked=WAITING,
    ),
    Story("the same result twice", [*BOTH, ONE], resume(ONE, TWO), parked=WAITING),
    Story(
        "two results for one call", [*BOTH, done("t1", "no")], Replay("several results for one ticket"), parked=WAITING
    ),
    Story("user text after the results", [*BOTH, MORE], resume(ONE, TWO, extra=["and now?"]), parked=WAITING),
    Story(
        "user text before the results", [*OPENING, MORE, ONE, TWO], resume(ONE, TWO, extra=["and now?"]), parked=WAITING
    ),
    Story("blank user text beside the results", [*BOTH, message(Role.USER, " \n")], resume(ONE, TWO), parked=WAITING),
    Story("the system prompt again", [*BOTH, SYSTEM], resume(ONE, TWO), parked=WAITING),
    Story(
        "a new system message beside the results",
        [*BOTH, message(Role.SYSTEM, "hurry")],
        resume(ONE, TWO, extra=["<system_message>\nhurry\n</system_message>"]),
        parked=WAITING,
    ),
    Story(
        "an image beside the results",
        [*BOTH, message(Role.USER, PNG)],
        Replay("an image beside tool results"),
        parked=WAITING,
    ),
    Story("an image in a result", [*OPENING, SEEN, TWO], resume(SEEN, TWO), parked=WAITING),
    Story("a result that is an error", [*OPENING, FAILED, TWO], resume(FAILED, TWO), parked=WAITING),
    Story("fresh demanded", BOTH, Replay("fresh was asked for"), mode=SessionMode.FRESH, parked=WAITING),
    Story("a session demanded", BOTH, resume(ONE, TWO), mode=SessionMode.REQUIRED, parked=WAITING),
    Story("unknown tickets", BOTH, Replay("unknown or expired ticket")),
    Story("one unknown ticket", [*BOTH, done("t9")], Replay("unknown or expired ticket"), parked=WAITING),
    Story(
        "tickets of two turns",
        BOTH,
        Replay("tickets of several turns"),
        parked=parked("t1") | parked("t2", sid="other"),
    ),
    Story("results that were given before", BOTH, Replay("these results were given before"), parked=PAST),
    Story("old results while the next step waits", BOTH, Replay("these results were given before"), parked=NEXT_STEP),
    Story(
        "old and new results together", [*BOTH, done("t3")], Replay("these results were given before"), parked=NEXT_STEP
    ),
    Story("the same request once more", [*BOTH, MORE], Repeat("s"), parked=repeated(TAKEN)),
    Story(
        "the same request once more with other tools",
        [*BOTH, MORE],
        Replay("the tools changed", "s"),
        parked=repeated(TAKEN),
        tools=(WRITE,),
    ),
    Story("the same results beside other words", [*BOTH, HELLO], MAKES_ROOM, parked=repeated(TAKEN)),
    Story("the same results without the words beside them", BOTH, MAKES_ROOM, parked=repeated(TAKEN)),
    Story("a replayed request once more", [*BOTH, MORE], Repeat("s"), parked=repeated(REPLAYED)),
    Story("a replayed request beside other words", [*BOTH, HELLO], MAKES_ROOM, parked=repeated(REPLAYED)),
    Story(
        "a replayed request with another result",
        [*OPENING, ONE, done("t2", "no"), MORE],
        Replay("unknown or expired ticket"),
        parked=repeated(REPLAYED),
    ),
    Story(
        "the same ids in another conversation",
        [SYSTEM, MORE, ASKS, ONE, TWO],
        Replay("unknown or expired ticket"),
        parked=repeated(REPLAYED),
    ),
    Story("only the last step's results count", [*BOTH, THIRD, done("t3")], resume(done("t3")), parked=NEXT_STEP),
    Story("an edited question first", [SYSTEM, MORE, ASKS, ONE, TWO], CHANGED, parked=WAITING),
    Story("other instructions", [message(Role.SYSTEM, "x"), HELLO, ASKS, ONE, TWO], CHANGED, parked=WAITING),
    Story("a call that was taken back", [SYSTEM, HELLO, ONLY_ONE, ONE], CHANGED, parked=WAITING),
    # ---- our newest answer, as clients retell it: its tickets are the proof
    Story(
        "words beside our calls",
        retold(message(Role.ASSISTANT, "(no text)", *ASKS.parts)),
        resume(ONE, TWO),
        parked=WAITING,
    ),
    Story(
        "words dropped beside our calls", retold(message(Role.ASSISTANT, *TWO_FILES)), resume(ONE, TWO), parked=FILES
    ),
    Story(
        "other words beside our calls", retold(message(Role.ASSISTANT, "…", *TWO_FILES)), resume(ONE, TWO), parked=FILES
    ),
    Story(
        "words and calls in messages of their own",
        retold(message(Role.ASSISTANT, "Let me look."), *(message(Role.ASSISTANT, one) for one in TWO_FILES)),
        resume(ONE, TWO),
        parked=FILES,
    ),
    Story(
        "calls in another order", retold(message(Role.ASSISTANT, *reversed(TWO_FILES))), resume(ONE, TWO), parked=FILES
    ),
    Story(
        "defaults filled in",
        retold(message(Role.ASSISTANT, call("t1", '{"lines": 10, "path":"a"}'), TWO_FILES[1])),
        resume(ONE, TWO),
        parked=FILES,
    ),
    Story(
        "arguments left out, a name in other case",
        retold(message(Role.ASSISTANT, call("t1", "{}", "Read"), TWO_FILES[1])),
        resume(ONE, TWO),
        parked=FILES,
    ),
    Story(
        "arguments that a client could not read",
        retold(message(Role.ASSISTANT, call("t1", '{"path":'), TWO_FILES[1])),
        resume(ONE, TWO),
        parked=FILES,
    ),
    Story(
        "a call that was edited before it ran",
        retold(message(Role.ASSISTANT, call("t1", '{"path":"c"}'), TWO_FILES[1])),
        CHANGED,
        parked=FILES,
    ),
    Story("a call told twice", retold(message(Role.ASSISTANT, *TWO_FILES, TWO_FILES[0])), CHANGED, parked=FILES),
    Story("no account of our calls", retold(message(Role.ASSISTANT, "Let me look.")), CHANGED, parked=FILES),
    Story("a question put before our calls", retold(MORE, ASKS), CHANGED, parked=WAITING),
    Story(
        "respelled words before our calls, and others beside them",
        [SYSTEM, message(Role.USER, " hello\n"), message(Role.ASSISTANT, "…", *TWO_FILES), ONE, TWO],
        resume(ONE, TWO),
        parked=FILES,
    ),
    Story(
        "an answer that was begun for the model, and others' words beside our calls",
        [
            message(Role.USER, "hello "),
            message(Role.ASSISTANT, "Well,"),
            message(Role.ASSISTANT, "…", *TWO_FILES),
            ONE,
            TWO,
        ],
        resume(ONE, TWO),
        parked=dict.fromkeys(
            ("t1", "t2"), turn("t1", "t2", history=(HELLO, message(Role.ASSISTANT, "Well,"), ASKS_FILES))
        ),
    ),
    # ---- tools
    Story("another model", BOTH, Replay("the model changed"), parked=WAITING, model="other"),
    Story("a tool more, not asked for", BOTH, resume(ONE, TWO, reason=LATER), parked=WAITING, tools=(READ, WRITE)),
    Story("a tool more, in front", BOTH, resume(ONE, TWO, reason=LATER), parked=WAITING, tools=(WRITE, READ)),
    Story(
        "a tool more, whose name is part of a word",
        [*OPENING, done("t1", "rewrite it"), TWO],
        resume(done("t1", "rewrite it"), TWO, reason=LATER),
        parked=WAITING,
        tools=(READ, WRITE),
    ),
    Story(
        "a tool that a result names",
        [*OPENING, done("t1", "Tool: write\n"), TWO],
        LOADED,
        parked=WAITING,
        tools=(READ, WRITE),
    ),
    Story(
        "a tool that the user names",
        [*BOTH, message(Role.USER, "use write.")],
        LOADED,
        parked=WAITING,
        tools=(READ, WRITE),
    ),
    Story("a tool that our call names", [SYSTEM, HELLO, LOAD, ONE], LOADED, parked=LOADING, tools=(READ, WRITE)),
    Story(
        "tools loaded by one that does not say which",
        [SYSTEM, HELLO, LOAD, ONE],
        Replay("a tool was loaded: search", "s"),
        parked=LOADING,
        tools=(READ, SEARCH),
    ),
    Story("a search for tools that found none", [SYSTEM, HELLO, LOAD, ONE], resume(ONE), parked=LOADING),
    Story("other tools", BOTH, CHANGED_TOOLS, parked=WAITING, tools=(WRITE,)),
    Story("a tool with another description", BOTH, CHANGED_TOOLS, parked=WAITING, tools=(ToolSpec("read", "x"), WRITE)),
    Story("a tool respelled", BOTH, resume(ONE, TWO), parked=WAITING, tools=(ToolSpec("read", "Reads a file.\n"),)),
    Story("no tools any more", BOTH, CHANGED_TOOLS, parked=WAITING, tools=()),
    Story(
        "a backend that cannot park",
        BOTH,
        Replay("this backend cannot park a turn"),
        parked=WAITING,
        abilities=Abilities(continues=True),
    ),
    # ---- transcripts
    Story("the next message", [*CHAT, MORE], GOES_ON),
    Story("two next messages", [*CHAT, MORE, MORE], GOES_ON),
    Story("the next message, a session demanded", [*CHAT, MORE], GOES_ON, mode=SessionMode.REQUIRED),
    Story("the next message with an image", [*CHAT, message(Role.USER, PNG)], GOES_ON),
    Story(
        "our answer with its reasoning",
        [SYSTEM, HELLO, message(Role.ASSISTANT, Reasoning("hm"), "hi there\n"), MORE],
        GOES_ON,
    ),
    Story("another model goes on", [*CHAT, MORE], GOES_ON, model="other"),
    Story("fresh demanded for the next message", [*CHAT, MORE], Replay("fresh was asked for"), mode=SessionMode.FRESH),
    Story("another system prompt", [message(Role.SYSTEM, "be bad"), HELLO, ANSWER, MORE], UNKNOWN),
    Story("an edited question", [SYSTEM, message(Role.USER, "hullo"), ANSWER, MORE], UNKNOWN),
    Story("an edited answer", [SYSTEM, HELLO, message(Role.ASSISTANT, "hi"), MORE], UNKNOWN),
    Story("a compacted history", [SYSTEM, message(Role.USER, "summary: we said hello"), ANSWER, MORE], UNKNOWN),
    Story("a later turn that is not known", [*CHAT, MORE, message(Role.ASSISTANT, "well"), MORE], UNKNOWN),
    Story("other tools for the next message", [*CHAT, MORE], UNKNOWN, tools=(WRITE,)),
    Story("a side call without tools", [*CHAT, MORE], UNKNOWN, tools=()),
    Story("a system message before new words", [*CHAT, message(Role.SYSTEM, "be quick"), MORE], GOES_ON),
    Story("a system message after new words", [*CHAT, MORE, message(Role.SYSTEM, "be quick")], GOES_ON),
    Story("a system message and nothing else", [*CHAT, message(Role.SYSTEM, "be quick")], GOES_ON),
    Story("an empty system message and nothing else", [*CHAT, message(Role.SYSTEM)], Replay("no new message")),
    Story(
        "a system message in the history",
        [*CHAT, message(Role.SYSTEM, "be quick"), MORE, ANSWER, MORE],
        GOES_ON,
        known=(*CHAT, message(Role.SYSTEM, Text("be "), Text("quick")), MORE, ANSWER),
    ),
    Story("nothing new", CHAT, Replay("no new message")),
    Story(
        "a backend that keeps nothing",
        [*CHAT, MORE],
        Replay("this backend keeps no conversations"),
        abilities=Abilities(parks=True),
    ),
    Story(
        "a chat with tools in it goes on",
        [*BOTH, ANSWER, MORE],
        GOES_ON,
        known=(*BOTH, ANSWER),
        parked=PAST,
    ),
]


def decide(story: Story) -> Plan:
    known = fingerprint(tools_key((READ,)), story.known)
    return plan(
        TurnRequest(story.model, tuple(story.messages), tools=story.tools),
        mode=story.mode,
        abilities=story.abilities,
        parked=story.parked,
        recall=lambda key: KNOWN if key == known else None,
    )


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_story(story: Story) -> None:
    assert decide(story) == story.expected


LOST: Final = [story for story in STORIES if isinstance(story.expected, Replay) and story.mode is SessionMode.AUTO]


def test_what_would_be_replayed_fails_when_a_session_is_demanded() -> None:
    for story in LOST:
        assert isinstance(story.expected, Replay)
        with pytest.raises(GatewayError) as failure:
            decide(replace(story, mode=SessionMode.REQUIRED))
        assert failure.value.kind is ErrorKind.TURN_GONE, story.name
        assert story.expected.reason in failure.value.message, story.name


@pytest.mark.parametrize("taken", [TAKEN, REPLAYED], ids=["resumed", "replayed"])
@pytest.mark.parametrize("beside", [[MORE], [HELLO], []], ids=["the same words", "other words", "no words"])
def test_results_that_are_worked_on_start_nothing(taken: Parked, beside: list[Message]) -> None:
    with pytest.raises(GatewayError) as told:
        decide(Story("", [*BOTH, *beside], Fresh(""), parked=repeated(structs.replace(taken, waiting=False))))
    assert told.value.kind is ErrorKind.IN_PROGRESS


@pytest.mark.parametrize("mode", [SessionMode.AUTO, SessionMode.REQUIRED])
@pytest.mark.parametrize(("given", "missing"), [([ONE], "t2"), ([TWO], "t1"), ([TWO, MORE], "t1"), ([ONE, ONE], "t2")])
def test_missing_results_are_named(mode: SessionMode, given: list[Message], missing: str) -> None:
    with pytest.raises(GatewayError) as failure:
        decide(Story("", [*OPENING, *given], Fresh(""), mode=mode, parked=WAITING))
    assert failure.value.kind is ErrorKind.BAD_REQUEST
    assert failure.value.code == "missing_tool_results"
    assert f"missing for: {missing}." in failure.value.message


def test_a_history_that_was_cut_off_before_the_call_is_resumed_by_its_tickets() -> None:
    assert decide(Story("", [ONE, TWO], Fresh(""), parked=WAITING)) == resume(ONE, TWO)


def test_the_store_is_asked_for_transcripts_only() -> None:
    def never(key: bytes) -> Snapshot | None:
        raise AssertionError("the store was asked")

    for messages, mode in (
        ([HELLO], SessionMode.AUTO),
        (BOTH, SessionMode.AUTO),
        ([*CHAT, MORE], SessionMode.FRESH),
    ):
        request = TurnRequest("m", tuple(messages), tools=(READ,))
        plan(request, mode=mode, abilities=ABLE, parked=WAITING, recall=never)


def test_a_history_that_comes_back_unchanged_is_not_spelled_out_again() -> None:
    """However long it is: looking whether it is the same object by object is all."""

    def never() -> bytes:
        raise AssertionError("the whole history was hashed")

    long = tuple(message(Role.USER if n % 2 else Role.ASSISTANT, f"message {n}") for n in range(1000))
    waits = structs.replace(turn("t1", "t2"), history=(*long, HELLO), answer=ASKS, before=never)
    respelled = message(Role.ASSISTANT, ToolCall("t1", "read", " {} "), ToolCall("t2", "read", "{}"), "  ")
    story = Story("", [*long, HELLO, respelled, ONE, TWO], Fresh(""), parked=dict.fromkeys(("t1", "t2"), waits))
    assert decide(story) == resume(ONE, TWO)


def test_system_messages_beside_results_cost_linear_time() -> None:
    """Each one is looked for among those of the history."""
    compared = 0

    class Word(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    def notes(name: str) -> list[Message]:
        return [message(Role.SYSTEM, Text(Word(f"{name} {i}"))) for i in range(300)]

    opening = (HELLO, *notes("old"), ASKS)
    waiting = dict.fromkeys(("t1", "t2"), turn("t1", "t2", history=opening))
    request = TurnRequest("m", (*opening, ONE, TWO, *notes("new"), *notes("old")), tools=(READ,))
    decision = plan(request, mode=SessionMode.AUTO, abilities=ABLE, parked=waiting, recall=lambda _: None)
    assert isinstance(decision, Resume)
    assert [part.text for part in decision.extra] == [
        f"<system_message>\nnew {i}\n</system_message>" for i in range(300)
    ]
    assert compared < 10 * 300
