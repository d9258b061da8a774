"""Tokens, the prefix cache, blobs and checkpoints: what the server remembers survives the way through the client."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.messages import pb
from caretway_sim.history import HistoryError, piece, read_root, read_typed, read_user, write_root
from caretway_sim.model_input import (
    Charge,
    InputCall,
    InputMessage,
    InputResult,
    InputText,
    Part,
    Picture,
    Piece,
    PrefixCache,
    Thought,
    estimate,
)
from caretway_sim.start import Blob, StateLedger, StateReader


def prompt(*texts: str) -> list[Piece]:
    return [Piece(text, len(text)) for text in texts]


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("äöü✓", 3)])
def test_estimate(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


def test_what_opens_an_earlier_prompt_is_cached() -> None:
    cache = PrefixCache()
    assert cache.charge(prompt("system", "tools", "one")) == Charge(0, 14)
    assert cache.charge(prompt("system", "tools", "one")) == Charge(14, 0)
    assert cache.charge(prompt("system", "tools", "one", "two")) == Charge(14, 3)
    assert cache.charge(prompt("system", "tools", "three", "two")) == Charge(11, 8), "only the shared opening"
    assert cache.charge(prompt("other", "tools", "one")) == Charge(0, 13), "nothing after the first difference"
    assert cache.charge(prompt("systemtools", "one")) == Charge(0, 14), "where a piece ends matters"


def test_the_cache_is_bounded_and_forgets_the_oldest() -> None:
    cache = PrefixCache(max_prefixes=3)
    cache.charge(prompt("a"))
    cache.charge(prompt("b", "c", "d"))
    assert cache.charge(prompt("a")) == Charge(0, 1)


PARTS: list[Part] = [
    InputText("words ✓"),
    Thought("hm"),
    Picture("image/png", "aGk="),
    InputCall("c1", "add", '{"a":1,"b":[null,true]}'),
    InputResult("c1", "add", "42", is_error=True),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_root_messages_round_trip(part: Part) -> None:
    message = InputMessage("tool" if isinstance(part, InputResult) else "assistant", (part, InputText("and")))
    assert read_root(write_root(message)) == message


FOREIGN: list[tuple[bytes, InputMessage]] = [
    (b'{"role":"user","content":"hi"}', InputMessage("user", (InputText("hi"),))),
    (b'{"role":"system","content":""}', InputMessage("system", ())),
    (b'{"role":"developer","content":"x","id":7}', InputMessage("system", (InputText("x"),))),
    (
        b'{"role":"user","content":[{"type":"text","text":"a"},"b",{"type":"new"},7]}',
        InputMessage("user", (InputText("a"), InputText("b"))),
    ),
    (
        b'{"role":"assistant","content":[{"type":"tool-call","toolCallId":"1","toolName":"t","args":{"b":1,"a":2}}]}',
        InputMessage("assistant", (InputCall("1", "t", '{"a":2,"b":1}'),)),
    ),
    (
        b'{"role":"assistant","content":[{"type":"tool-call","toolCallId":"1","toolName":"t","args":"{}"}]}',
        InputMessage("assistant", (InputCall("1", "t", "{}"),)),
    ),
    (
        b'{"role":"tool","content":[{"type":"tool-result","toolCallId":"1","toolName":"t","result":[{"type":"text","text":"a"}]}]}',
        InputMessage("tool", (InputResult("1", "t", "a"),)),
    ),
    (
        b'{"role":"tool","content":[{"type":"tool-result","toolCallId":"1","toolName":"t","output":{"type":"text","value":"v"}}]}',
        InputMessage("tool", (InputResult("1", "t", "v"),)),
    ),
    (
        b'{"role":"tool","content":[{"type":"tool-result","toolCallId":"1","toolName":"t","result":{"n":1}}]}',
        InputMessage("tool", (InputResult("1", "t", '{"n":1}'),)),
    ),
]


@pytest.mark.parametrize(("data", "message"), FOREIGN)
def test_messages_of_other_clients_are_understood(data: bytes, message: InputMessage) -> None:
    assert read_root(data) == message


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.booleans() | st.text(max_size=5), st.lists).map(repr).map(str.encode)
)
def test_any_bytes_are_a_message_or_a_clear_error(data: bytes) -> None:
    with contextlib.suppress(HistoryError):
        assert read_root(data).role in ("system", "user", "assistant", "tool")


def test_typed_history_is_understood() -> None:
    history = pb.ConversationHistory()
    history.messages.add().user.content.add().text.text = "question"
    answer = history.messages.add().assistant
    answer.content.add().reasoning.text = "hm"
    answer.content.add().text.text = "let me see"
    call = answer.content.add().tool_call
    call.tool_call_id, call.tool_name, call.args_json = "c1", "look", '{"at":"it"}'
    tool = history.messages.add().tool
    tool.tool_call_id, tool.tool_name, tool.is_error = "c1", "look", True
    tool.content.add().text.text = "nothing"
    assert list(read_typed(history)) == [
        InputMessage("user", (InputText("question"),)),
        InputMessage("assistant", (Thought("hm"), InputText("let me see"), InputCall("c1", "look", '{"at":"it"}'))),
        InputMessage("tool", (InputResult("c1", "look", "nothing", is_error=True),)),
    ]


def test_a_user_message_brings_its_pictures() -> None:
    user = pb.UserMessage(text="look")
    user.selected_context.selected_images.add(mime_type="image/png", data=b"hi")
    assert read_user(user) == InputMessage("user", (InputText("look"), Picture("image/png", "aGk=")))


def test_call_ids_do_not_spoil_the_cache() -> None:
    one = InputMessage("assistant", (InputCall("call_1", "t", '{"a":1, "b":2}'),))
    other = InputMessage("assistant", (InputCall("sess_x__call_9", "t", '{"b":2,"a":1}'),))
    assert piece(one) == piece(other)


# ---------------------------------------------------------------------------------------------- checkpoints


class Client:
    """Keeps blobs, as a client does, and gives back only what it was given."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, bytes] = {}

    def keep(self, *blobs: Blob) -> None:
        self.blobs.update(blobs)

    def read(self, state: pb.ConversationStateStructure) -> tuple[list[InputMessage], StateReader]:
        reader = StateReader(state)
        outer = {name: self.blobs[name] for name in reader.outer()}
        known = outer | {name: self.blobs[name] for name in reader.inner(outer)}
        return reader.history(known), reader


SYSTEM = InputMessage("system", (InputText("be simulated"),))
USER = InputMessage("user", (InputText("add"),))
CALL = InputMessage("assistant", (InputText("now"), InputCall("c1", "add", "{}")))
DONE = InputMessage("tool", (InputResult("c1", "add", "3"),))


def first_turn(client: Client) -> pb.ConversationStateStructure:
    ledger = StateLedger(pb.ConversationStateStructure(), None, "r1")
    client.keep(ledger.put_first(SYSTEM), ledger.open_turn(pb.UserMessage(text="add")), *ledger.add_messages([USER]))
    client.keep(*ledger.add_messages([CALL, DONE]))
    step = pb.ConversationStep(assistant_message=pb.AssistantMessage(text="now"))
    client.keep(*ledger.add_steps([step]), ledger.write_turn())
    return ledger.checkpoint(11)


def test_a_checkpoint_gives_the_conversation_back() -> None:
    client = Client()
    state = first_turn(client)
    history, reader = client.read(pb.ConversationStateStructure.FromString(state.SerializeToString()))
    assert history == [SYSTEM, USER, CALL, DONE]
    assert state.token_details.used_tokens == 11
    turn = reader.last_turn()
    assert turn is not None
    assert len(turn.steps) == 1


def test_a_resumed_turn_is_continued_and_not_repeated() -> None:
    client = Client()
    state = first_turn(client)
    _, reader = client.read(state)
    ledger = StateLedger(state, reader.last_turn(), "r2")
    client.keep(*ledger.add_messages([InputMessage("assistant", (InputText("3"),))]))
    client.keep(*ledger.add_steps([pb.ConversationStep(assistant_message=pb.AssistantMessage(text="3"))]))
    client.keep(ledger.write_turn())
    resumed = ledger.checkpoint(12)
    assert len(resumed.turns) == 1
    history, reader = client.read(resumed)
    assert [message.text for message in history] == ["be simulated", "add", "now", "", "3"]
    turn = reader.last_turn()
    assert turn is not None
    assert len(turn.steps) == 2


def test_a_second_turn_comes_after_the_first() -> None:
    client = Client()
    state = first_turn(client)
    state.read_paths.append("/kept")
    ledger = StateLedger(state, None, "r2")
    client.keep(
        ledger.open_turn(pb.UserMessage(text="more")),
        *ledger.add_messages([InputMessage("user", (InputText("more"),))]),
    )
    client.keep(ledger.write_turn())
    client.keep(ledger.write_turn())  # two checkpoints in one turn still name it once
    second = ledger.checkpoint(20)
    assert len(second.turns) == 2
    assert list(second.read_paths) == ["/kept"], "what we do not use travels on"
    history, _ = client.read(second)
    assert history[-1].text == "more"


def test_a_state_with_turns_only_is_read_from_the_turns() -> None:
    client = Client()
    state = first_turn(client)
    del state.root_prompt_messages_json[:]
    history, _ = client.read(state)
    assert [(message.role, message.text) for message in history] == [("user", "add"), ("assistant", "now")]


def test_a_blob_of_the_wrong_kind_is_a_clear_error() -> None:
    client = Client()
    state = first_turn(client)
    client.blobs[state.turns[0]] = b"\xff\xff"
    with pytest.raises(HistoryError, match="ConversationTurnStructure"):
        client.read(state)
