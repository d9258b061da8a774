"""Instructions are the leading system messages; later ones are told where they stand."""

import pytest

from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolResult, TurnRequest, ends_with_results

S, T, U = (Message(role, (Text(role.value[0]),)) for role in (Role.SYSTEM, Role.ASSISTANT, Role.USER))
EMPTY = Message(Role.SYSTEM, ())
CALLS = Message(Role.ASSISTANT, (ToolCall("1", "read", "{}"),))
DONE = Message(Role.TOOL, (ToolResult("1", (Text("done"),)),))
SEEN = Message(Role.USER, (Text("look"), Image(b"png", "image/png")))
MARKED = "<system_message>\ns\n</system_message>"


def user(text: str) -> tuple[Role, str]:
    return Role.USER, text


ANSWERED = (Role.ASSISTANT, "a")

PLACES = {
    "none": ([U, T, U], "", [user("u"), ANSWERED, user("u")]),
    "leading": ([S, S, U], "s\n\ns", [user("u")]),
    "after the user": ([S, U, S], "s", [user(f"u\n\n{MARKED}")]),
    "before the user": ([U, T, S, U], "", [user("u"), ANSWERED, user(f"{MARKED}\n\nu")]),
    "between users": ([U, S, U], "", [user(f"u\n\n{MARKED}\n\nu")]),
    "users apart from it": ([U, U, S, U, U], "", [user("u"), user(f"u\n\n{MARKED}\n\nu"), user("u")]),
    "two beside each other": ([U, S, S], "", [user(f"u\n\n{MARKED}\n\n{MARKED}")]),
    "between answers": ([U, T, S, T], "", [user("u"), ANSWERED, user(MARKED), ANSWERED]),
    "behind results": ([S, U, CALLS, DONE, S], "s", [user("u"), (Role.ASSISTANT, ""), (Role.TOOL, ""), user(MARKED)]),
    "empty": ([S, U, EMPTY, U], "s", [user("u"), user("u")]),
    "nothing else": ([S, S], "s\n\ns", []),
    "nothing": ([], "", []),
}


@pytest.mark.seed("G03")
@pytest.mark.parametrize("case", PLACES)
def test_where_system_messages_are_told(case: str) -> None:
    messages, instructions, talk = PLACES[case]
    request = TurnRequest("m", tuple(messages))
    assert request.system == instructions
    assert [(message.role, message.text) for message in request.talk] == talk


def test_images_beside_a_system_message_stay() -> None:
    (told,) = TurnRequest("m", (SEEN, S)).talk
    assert told.parts == (*SEEN.parts, Text("\n\n"), Text(MARKED))


def test_results_are_the_end_whatever_the_system_says_behind_them() -> None:
    assert ends_with_results([U, CALLS, DONE])
    assert ends_with_results([U, CALLS, DONE, S])
    assert not ends_with_results([U, CALLS, DONE, U, S])
    assert not ends_with_results([S])
