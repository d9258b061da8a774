"""What is kept of content stays within its bounds, whatever is said and answered."""

import json

import pytest

from caretway.core.fold import Reply
from caretway.core.request import Message, Reasoning, Role, Text, ToolCall, TurnRequest
from caretway.dashboard import content
from caretway.dashboard.content import KeptContent

Said = Text | Reasoning | ToolCall
LONG = "x" * 100_000


def heard(kept: KeptContent, conversation: str, said: str, *parts: Said) -> None:
    request = TurnRequest(model="m", messages=(Message(Role.USER, (Text(said),)),))
    kept.hear(
        conversation,
        request,
        Reply(text="".join(part.text for part in parts if isinstance(part, Text)), parts=parts),
        1.0,
    )


def held(kept: KeptContent, conversation: str) -> int:
    """Characters, as they are told and as a script."""
    write = kept.script(conversation)
    assert write is not None
    return len(json.dumps(kept.steps(conversation))) + len(write())


@pytest.mark.parametrize(
    "parts",
    [
        (Text(LONG),),
        (ToolCall("1", "write", json.dumps({"text": LONG * 5})),),
        tuple(Text(f"{n} {LONG}") for n in range(30)),
        tuple(ToolCall(str(n), "write", json.dumps({"text": LONG})) for n in range(30)),
    ],
    ids=["text", "a long call", "many texts", "many calls"],
)
def test_one_conversation_alone_is_bounded(monkeypatch: pytest.MonkeyPatch, parts: tuple[Said, ...]) -> None:
    monkeypatch.setattr(content, "MAX_ALL_CHARS", 1_000_000)
    kept = KeptContent()
    kept.record(60)
    for _ in range(20):
        heard(kept, "one", f"begin {LONG}", *parts)
    assert 0 < held(kept, "one") < 2_000_000
    assert kept._chars <= 1_000_000
    kept.forget("one")
    assert kept._chars == 0


def test_the_newest_steps_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_ALL_CHARS", 1_000)
    kept = KeptContent()
    kept.keep = True
    for n in range(100):
        heard(kept, "one", f"step {n}", Text("yes " * 10))
    received = kept.steps("one")
    assert received is not None
    assert received[-1]["said"] == "step 99" and 1 < len(received) < 100


def test_arguments_that_nest_too_deeply_are_no_failure() -> None:
    kept = KeptContent()
    kept.record(60)
    heard(kept, "one", "look", ToolCall("1", "look", "[" * 60_000))
    write = kept.script("one")
    assert write is not None and "sim: call look {}" in write()


def test_nothing_is_kept_while_both_switches_are_off() -> None:
    kept = KeptContent()
    heard(kept, "one", "look", Text("yes"))
    assert "one" not in kept
