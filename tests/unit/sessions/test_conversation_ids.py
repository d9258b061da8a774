"""Which conversation a run is counted for."""

from caretway.core.request import Message, Role, Text
from caretway.sessions.conversation_ids import MAX_REMEMBERED, ConversationIds

from .played import ask


def said(*words: str) -> tuple[Message, ...]:
    roles = (Role.USER, Role.ASSISTANT)
    return tuple(Message(roles[number % 2], (Text(text),)) for number, text in enumerate(words))


def test_a_replay_belongs_to_the_conversation_that_opened_alike() -> None:
    ids = ConversationIds()
    first = ids.fresh("key", ask(*said("hi")))
    assert ids.replayed("key", ask(*said("hi", "hello", "go on"))) == first
    assert ids.replayed("other key", ask(*said("hi", "hello", "go on"))) != first
    assert ids.replayed("key", ask(*said("hi there", "hello", "go on"))) != first
    newer = ids.fresh("key", ask(*said("hi")))
    assert newer != first, "two chats that open alike are two conversations"
    assert ids.replayed("key", ask(*said("hi", "hello"))) == newer


def test_a_replay_of_something_unknown_is_known_from_then_on() -> None:
    ids = ConversationIds()
    instructions = Message(Role.SYSTEM, (Text("be brief"),))
    once = ids.replayed("", ask(instructions, *said("hi", "hello", "more")))
    assert ids.replayed("", ask(*said("hi", "hello", "more", "yes", "and more"))) == once
    assert ids.replayed("", ask(instructions)) != once


def test_what_is_remembered_is_bounded() -> None:
    ids = ConversationIds()
    first = ids.fresh("", ask(*said("first")))
    for number in range(MAX_REMEMBERED):
        ids.fresh("", ask(*said(f"chat {number}")))
    assert ids.replayed("", ask(*said("first"))) != first
