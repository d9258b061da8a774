"""A history as Cursor takes it: ids, results without their call, pictures."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.agent.replayed_history import (
    FAILED_ORPHAN,
    NO_RESULT,
    ORPHAN,
    PICTURES,
    plain_id,
    root_messages,
    sendable,
    typed_history,
)
from caretway.core.request import Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from caretway_sim.admission import judge_roots
from caretway_sim.manners import LIVE

PICTURE = Image(b"\x89PNG", "image/png")


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


def called(*ids: str) -> Message:
    return Message(Role.ASSISTANT, tuple(ToolCall(one, "look", "{}") for one in ids))


def result(call: str, text: str = "found", *more: Image, failed: bool = False) -> Message:
    return Message(Role.TOOL, (ToolResult(call, (Text(text), *more), failed),))


def gave_up(*ids: str) -> Message:
    return Message(Role.TOOL, tuple(ToolResult(one, (Text(NO_RESULT),), is_error=True) for one in ids))


ASKED, FOREIGN = user(Text("look")), "call_x|fc_y"
HASHED = plain_id(FOREIGN)
HISTORIES: list[tuple[str, list[Message], list[Message] | None]] = [
    ("nothing to do", [ASKED, called("a", "b"), result("a"), result("b"), ASKED], None),
    ("foreign ids", [called(FOREIGN), result(FOREIGN)], [called(HASHED), result(HASHED)]),
    ("an empty id", [called(""), result("")], [called(plain_id("")), result(plain_id(""))]),
    ("no call", [ASKED, result("a")], [ASKED, user(Text(f"{ORPHAN}\nfound"))]),
    (
        "a call that comes later",
        [result("a"), called("a")],
        [user(Text(f"{ORPHAN}\nfound")), called("a"), gave_up("a")],
    ),
    (
        "a call that nobody answered",
        [called("a", "b"), result("b"), ASKED],
        [called("a", "b"), result("b"), gave_up("a"), ASKED],
    ),
    ("calls that nobody answered", [called("a", FOREIGN), ASKED], [called("a", HASHED), gave_up("a", HASHED), ASKED]),
    (
        "an answer that comes too late",
        [called("a"), ASKED, result("a"), ASKED],
        [called("a"), gave_up("a"), ASKED, user(Text(f"{ORPHAN}\nfound")), ASKED],
    ),
    ("an error", [result("a", failed=True)], [user(Text(f"{FAILED_ORPHAN}\nfound"))]),
    (
        "told twice",
        [called("a"), result("a"), result("a", "b")],
        [called("a"), result("a"), user(Text(f"{ORPHAN}\nb"))],
    ),
    ("an id used again", [called("a"), result("a"), called("a"), result("a")], None),
    (
        "among results",
        [called("a", "b"), result("a"), result("x"), result("y"), result("b"), ASKED],
        [
            *(called("a", "b"), result("a"), result("b")),
            user(Text(f"{ORPHAN}\nfound"), Text(f"\n\n{ORPHAN}\nfound")),
            ASKED,
        ],
    ),
    (
        "pictures of results",
        [called("a", "b"), result("a", "one", PICTURE), result("b")],
        [called("a", "b"), result("a", "one"), result("b"), user(Text(PICTURES), PICTURE)],
    ),
    ("a picture without its call", [result("a", "x", PICTURE)], [user(Text(f"{ORPHAN}\nx"), PICTURE)]),
    ("a message of nothing", [ASKED, user(), user(Text(""))], [ASKED]),
    ("thoughts alone", [ASKED, Message(Role.ASSISTANT, (Reasoning("hm"),)), ASKED], [ASKED, ASKED]),
]


@pytest.mark.parametrize(("name", "history", "wanted"), HISTORIES, ids=[row[0] for row in HISTORIES])
def test_histories(name: str, history: list[Message], wanted: list[Message] | None) -> None:
    made = sendable(history)
    assert made == (history if wanted is None else wanted)
    if wanted is None:
        assert all(one is other for one, other in zip(made, history, strict=True)), "what is fine stays as it is"
    assert judge_roots(root_messages(made), "gpt-5.4", own=False, manners=LIVE) is None


@given(st.text(max_size=100))
def test_ids(call: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", plain_id(call))
    assert plain_id(plain_id(call)) == plain_id(call)
    assert (plain_id(call) == call) == bool(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call))


IDS = st.sampled_from(["a", "b", "c|d", "", "\n", "x" * 70])
PARTS = st.one_of(
    st.builds(Text, st.sampled_from(["", "hi"])),
    st.just(PICTURE),
    st.just(Reasoning("hm")),
    st.builds(ToolCall, IDS, st.just("look"), st.sampled_from(["{}", "{"])),
    st.builds(ToolResult, IDS, st.sampled_from([(), (Text("x"),), (PICTURE, Text("y"))]), st.booleans()),
)
MESSAGES = st.builds(Message, st.sampled_from([Role.USER, Role.ASSISTANT, Role.TOOL]), st.lists(PARTS).map(tuple))


@given(st.lists(MESSAGES, max_size=8))
def test_any_history_is_taken(history: list[Message]) -> None:
    made = sendable(history)
    assert judge_roots(root_messages(made), "gpt-5.4", own=False, manners=LIVE) is None
    typed_history(made)
    calls = [part.id for one in made for part in one.parts if isinstance(part, ToolCall)]
    results = [part.call_id for one in made for part in one.parts if isinstance(part, ToolResult)]
    assert set(calls) == set(results), "every call has its result"
    assert all(msgspec.json.decode(root)["content"] for root in root_messages(made)), "no message is empty"
    pictures = [part for one in made for part in one.parts if isinstance(part, Image)]
    assert len(pictures) == str(history).count("image/png"), "none is lost, none is told twice"


def test_a_picture_travels_as_a_data_uri() -> None:
    (root,) = root_messages([user(Text("see"), PICTURE)])
    written: Any = msgspec.json.decode(root)
    assert written["content"][1] == {
        "type": "image",
        "mediaType": "image/png",
        "image": "data:image/png;base64,iVBORw==",
    }
