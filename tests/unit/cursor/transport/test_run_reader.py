"""A run's answer in slices: everything is told once and in order, however it is cut, held back and taken up again."""

import asyncio
import gzip
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.ports import TransportLimits
from caretway.cursor.transport.run_reader import FEW, SLICE_BYTES, SLICE_MESSAGES, RunReader
from caretway.cursor.wire.envelope import COMPRESSED, pack, write_end
from caretway.cursor.wire.heavy import NO_CHECKPOINT, Oversized
from caretway.cursor.wire.messages import pb


def text(words: str) -> bytes:
    update = pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text=words))
    return pb.AgentServerMessage(interaction_update=update).SerializeToString()


def asking(number: int) -> bytes:
    args = pb.GetBlobArgs(blob_id=b"%d" % number)
    return pb.AgentServerMessage(
        kv_server_message=pb.KvServerMessage(id=number, get_blob_args=args)
    ).SerializeToString()


def zipped(payload: bytes) -> bytes:
    packed = gzip.compress(payload)
    return struct.pack(">BI", COMPRESSED, len(packed)) + packed


class Carrier(RunReader):
    """A reader whose carrier only notes what it is told."""

    __slots__ = ("given_up", "held_back")

    def __init__(self, owner: "Owner", max_frame_bytes: int = 1 << 24) -> None:
        super().__init__(owner, TransportLimits(max_frame_bytes=max_frame_bytes, max_refusal_bytes=100))
        self.held_back = self.given_up = False
        self.on_head(200, {})

    def _hold_back(self) -> None:
        self.held_back = True

    def _let_go(self) -> None:
        self.held_back = False

    def _give_up(self) -> None:
        self.given_up = True


class Owner:
    def __init__(self) -> None:
        self.told: list[list[bytes]] = []
        self.ends: list[GatewayError | None] = []
        self.over = asyncio.Event()

    @property
    def messages(self) -> list[bytes]:
        return [message for batch in self.told for message in batch]

    def on_messages(self, messages: list[bytes]) -> None:
        assert messages
        assert not self.ends
        self.told.append(messages)

    def on_closed(self, error: GatewayError | None) -> None:
        self.ends.append(error)
        self.over.set()


MESSAGES = st.lists(
    st.one_of(
        st.text(max_size=40).map(text),
        st.integers(0, 300).map(asking),
        st.just(b""),
        st.just(text("long " * 20_000)),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(messages=MESSAGES, seed=st.integers(0, 2**32))
def test_everything_is_told_once_and_in_order(messages: list[bytes], seed: int) -> None:
    chance = random.Random(seed)

    async def story() -> None:
        owner = Owner()
        reader = Carrier(owner)
        whole = b"".join(zipped(each) if chance.random() < 0.2 else pack(each) for each in messages)
        whole += pack(write_end(), end=True)
        at = 0
        while at < len(whole):
            size = chance.choice((1, 7, 300, 5000, 200_000))
            reader.on_data(whole[at : at + size])
            at += size
            if chance.random() < 0.2:
                reader.pause()
                before = len(owner.told)
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
                assert len(owner.told) == before
                reader.resume()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        reader.on_end(None)
        await owner.over.wait()
        assert owner.ends == [None]
        told = [pb.AgentServerMessage.FromString(each) for each in owner.messages[:-1]]
        said = "".join(each.interaction_update.text_delta.text for each in told)
        sent = [pb.AgentServerMessage.FromString(each) for each in messages]
        assert said == "".join(each.interaction_update.text_delta.text for each in sent)
        asked = [each.kv_server_message.id for each in told if each.HasField("kv_server_message")]
        assert asked == [each.kv_server_message.id for each in sent if each.HasField("kv_server_message")]

    asyncio.run(story())


async def test_a_callback_works_on_a_slice_and_the_carrier_waits() -> None:
    owner = Owner()
    reader = Carrier(owner)
    reader.on_data(pack(text("word")) * 5000)
    assert [len(batch) for batch in owner.told] == [SLICE_MESSAGES]
    assert reader.held_back
    reader.on_data(pack(text("late")))
    reader.on_end(None)
    assert not owner.ends
    await owner.over.wait()
    assert owner.messages == [text("word")] * 5000 + [text("late")]
    assert max(map(len, owner.told)) <= SLICE_MESSAGES


async def test_many_questions_are_told_one_by_one() -> None:
    owner = Owner()
    reader = Carrier(owner)
    questions = [asking(number) for number in range(FEW + 2)]
    reader.on_data(b"".join(map(pack, (text("a"), text("b"), *questions, text("c"), text("d")))))
    reader.on_end(None)
    await owner.over.wait()
    assert owner.told == [[text("a"), text("b")], *[[each] for each in questions], [text("c"), text("d")]]


async def test_what_hides_behind_news_is_told_alone_too() -> None:
    owner = Owner()
    reader = Carrier(owner)
    hidden = b"\x0a\x00" + asking(1)
    reader.on_data(pack(hidden) * (FEW + 1))
    reader.on_end(None)
    await owner.over.wait()
    assert owner.told == [[hidden]] * (FEW + 1)


async def test_bombs_of_one_read_are_unpacked_one_by_one() -> None:
    owner = Owner()
    reader = Carrier(owner)
    reader.on_data(zipped(text("a" * 4_000_000)) * 10)
    assert not owner.told
    await asyncio.sleep(0)
    assert sum(map(len, owner.messages)) < 2 * SLICE_BYTES
    reader.close()
    assert reader.given_up
    await asyncio.sleep(0)
    assert not owner.ends


async def test_nothing_is_told_after_close() -> None:
    owner = Owner()
    reader = Carrier(owner)
    reader.on_data(pack(text("word")) * 5000)
    reader.close()
    reader.on_end(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(owner.told) == 1
    assert not owner.ends


async def test_what_is_too_much_ends_the_run_after_what_came_before_it() -> None:
    owner = Owner()
    reader = Carrier(owner)
    asked = pb.WebSearchRequestQuery(args=pb.WebSearchArgs(search_term="x" * (1 << 20)))
    query = pb.InteractionQuery(id=1, web_search_request_query=asked)
    heavy = pb.AgentServerMessage(interaction_query=query).SerializeToString()
    reader.on_data(pack(text("before")) + pack(heavy) + pack(text("after")))
    await owner.over.wait()
    assert owner.messages == [text("before")]
    (error,) = owner.ends
    assert error is not None
    assert error.kind is ErrorKind.UPSTREAM_PROTOCOL
    assert "too much" in error.message
    assert reader.given_up


async def test_an_exec_with_too_much_in_it_is_told_without_its_arguments() -> None:
    owner = Owner()
    reader = Carrier(owner)
    args = pb.McpArgs(name="x")
    for _ in range(60_000):
        args.args["key"].list_value.values.add().list_value.SetInParent()
    heavy = pb.AgentServerMessage(exec_server_message=pb.ExecServerMessage(id=1, mcp_args=args)).SerializeToString()
    reader.on_data(pack(text("before")) + pack(heavy) + pack(text("after")))
    reader.on_end(None)
    await owner.over.wait()
    before, bare, after = owner.messages
    assert (before, after, owner.ends) == (text("before"), text("after"), [None])
    assert type(bare) is Oversized
    assert pb.AgentServerMessage.FromString(bare).exec_server_message.mcp_args == pb.McpArgs(name="x")


@pytest.mark.parametrize("packed", [False, True])
async def test_a_checkpoint_over_the_limit_is_dropped_unread(packed: bool) -> None:
    owner = Owner()
    reader = Carrier(owner, max_frame_bytes=100_000)
    state = pb.ConversationStateStructure(root_prompt_messages_json=[bytes(1000)] * 300)
    large = pb.AgentServerMessage(conversation_checkpoint_update=state).SerializeToString()
    data = pack(text("a")) + (zipped(large) if packed else pack(large)) + pack(text("b"))
    for at in range(0, len(data), 999):
        reader.on_data(data[at : at + 999])
        await asyncio.sleep(0)
    reader.on_end(None)
    await owner.over.wait()
    assert owner.messages == [text("a"), NO_CHECKPOINT, text("b")]
    assert owner.ends == [None]
