"""When a refusal may be about the conversation that an attempt goes on with, and what is done then."""

import os
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from caretway.backends.agent.compose import Composer, RunContext, no_blobs
from caretway.backends.agent.run_life import PIECE_BYTES, BlobStore, loss_of
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Recovered, TurnFailed
from caretway.core.recovery import Fact, Loss
from caretway.core.request import Text, ToolResult
from caretway.cursor.transport.faults import fault_from_connect
from caretway.cursor.wire.envelope import ConnectError
from caretway.cursor.wire.messages import ai, pb
from unit.backends.agent.stories import Story, checkpoint, heartbeat, mcp, text

LIMIT = 100_000


def blob_store(own: dict[bytes, bytes] | None = None) -> BlobStore:
    return BlobStore(own if own is not None else {}, no_blobs, LIMIT)


def set_blob(key: bytes, data: bytes, number: int = 1) -> pb.KvServerMessage:
    return pb.KvServerMessage(id=number, set_blob_args=pb.SetBlobArgs(blob_id=key, blob_data=data))


def get_blob(key: bytes, number: int = 1) -> pb.KvServerMessage:
    return pb.KvServerMessage(id=number, get_blob_args=pb.GetBlobArgs(blob_id=key))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000, 3_000_000])
@pytest.mark.parametrize("number", [0, 1, 300])
def test_an_answer_is_what_the_real_encoder_writes(size: int, number: int) -> None:
    data = os.urandom(size)
    reply = pb.KvClientMessage(id=number, get_blob_result=pb.GetBlobResult(blob_data=data))
    got = blob_store({b"k": data}).answer(get_blob(b"k", number))
    assert got is not None
    assert pb.AgentClientMessage.FromString(got) == pb.AgentClientMessage(kv_client_message=reply)


def test_what_is_gone_is_never_answered_with_nothing() -> None:
    with pytest.raises(GatewayError) as gone:
        blob_store().answer(get_blob(b"k"))
    assert gone.value.kind is ErrorKind.TURN_GONE


HOSTILE = {
    "large pieces": (set_blob(bytes([n]), bytes(10_000)) for n in range(20)),
    "large ids": (set_blob(bytes([n]) * 10_000, b"") for n in range(20)),
    "many of nothing": (set_blob(b"%d" % n, b"") for n in range(1000)),
    "a piece that grows": (set_blob(b"k", bytes(n * 10_000)) for n in range(20)),
}


@pytest.mark.parametrize("story", HOSTILE)
def test_what_cursor_stores_is_bounded(story: str) -> None:
    blobs = blob_store()
    with pytest.raises(GatewayError, match="stores more") as refused:
        any(blobs.answer(each) is None for each in HOSTILE[story])
    assert refused.value.kind is ErrorKind.UPSTREAM_PROTOCOL
    assert sum(len(key) + len(data) + PIECE_BYTES for key, data in blobs.own.items()) <= LIMIT


def test_a_piece_that_is_set_again_counts_once() -> None:
    blobs = blob_store()
    for _ in range(100):
        assert blobs.answer(set_blob(b"k", bytes(50_000))) is not None


def test_what_the_turn_brings_does_not_count() -> None:
    blobs = blob_store({b"mine": bytes(10 * LIMIT)})
    assert blobs.answer(set_blob(b"k", bytes(LIMIT // 2))) is not None


SCHEMA = ConnectError(
    "internal", "Error", error=ai.ErrorDetails.ERROR_PROVIDER_ERROR, info=(("providerStatusCode", "400"),)
)
BUSY = ConnectError(
    "internal", "Error", error=ai.ErrorDetails.ERROR_PROVIDER_ERROR, info=(("providerStatusCode", "503"),)
)
BARE = ConnectError("resource_exhausted", "Error")
HOLE = ConnectError("internal", "Blob not found")

SIGNED_OUT = ConnectError("unauthenticated", "Error")
REGION = ConnectError("failed_precondition", "This region is not yet available for your team")
DOWN = ConnectError("unavailable", "Error")

ROWS = [
    ("a refused schema", SCHEMA, "", Loss.SCHEMA),
    ("a refused schema after words", SCHEMA, "words", Loss.FINAL),
    ("another failure of the maker's", BUSY, "", Loss.FINAL),
    ("without a reason, one shape", BARE, "", Loss.FINAL),
    ("without a reason, from a checkpoint", BARE, "kept", Loss.STALE),
    ("a refused schema, from a checkpoint", SCHEMA, "kept", Loss.SCHEMA),
    ("a hole in the conversation", HOLE, "kept", Loss.INCOMPLETE),
    ("a refused token", SIGNED_OUT, "words", Loss.TOKEN),
    ("a team's region", REGION, "", Loss.HOST),
    ("a temporary failure", DOWN, "", Loss.REFUSED),
]


@pytest.mark.parametrize(("error", "before", "loss"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_loss(error: ConnectError, before: str, loss: Loss) -> None:
    story = Story("look")
    if before == "words":
        story.hear(text("so far"))
    elif before == "kept":
        story.hear(checkpoint(b"k"))
        story.drop()
    fault = fault_from_connect(error, story.conversation.asked)
    assert loss_of(error, fault, story.conversation) is loss


def test_simpler_schemas_begin_anew_and_are_told() -> None:
    story = Story("look")
    story.hear(checkpoint(b"early"))
    story.events()
    life = story.conversation
    opening = Composer(RunContext()).compose(story.request, conversation_id="conv", run_id="run", simplest=True)
    life.simplify(replace(opening, adapted="fitted for any maker: look (unions)"))
    retry = story.lose(Loss.SCHEMA)
    assert retry is not None and not retry.alone
    assert story.events() == [Recovered("simpler schemas", "schema", 1, "fitted for any maker: look (unions)")]
    story.conversation.outgoing.clear()
    life.open(story.now)
    (opened,) = story.said()
    assert not opened.run_request.conversation_state.root_prompt_messages_json, "the early checkpoint counts no more"
    assert life.simplified


def asked(story: Story) -> Story:
    """The client has a call, and the turn is paused."""
    story.hear(mcp(1, "c1", "look"), checkpoint(b"k"))
    story.wait(1)
    return story


def answered(story: Story) -> Story:
    story.conversation.submit([ToolResult("c1", (Text("A"),))], [], story.now)
    return story


def hear(story: Story, *words: str) -> Story:
    story.hear(heartbeat(), *map(text, words))
    return story


def saved(story: Story) -> Story:
    story.hear(checkpoint(b"k"))
    return story


def dropped(story: Story) -> Story:
    story.drop()
    return story


STORIES: list[tuple[str, Callable[[Story], Story], bool]] = [
    ("a first run", lambda story: story, False),
    ("a first run with an early checkpoint", saved, False),
    ("the same run from its checkpoint", lambda story: dropped(saved(story)), True),
    ("the same, and heartbeats", lambda story: hear(dropped(saved(story))), True),
    ("the same, and words", lambda story: hear(dropped(saved(story)), "word"), False),
    ("the same run without a checkpoint", dropped, False),
    ("after results, on the same attempt", lambda story: answered(asked(story)), False),
    ("after results, on a new attempt", lambda story: dropped(answered(asked(story))), True),
]


@pytest.mark.parametrize(("name", "happened", "stale"), STORIES, ids=[row[0] for row in STORIES])
def test_may_be_stale(name: str, happened: Callable[[Story], Story], stale: bool) -> None:
    story = happened(Story("look"))
    assert story.conversation.may_be_stale is stale
    assert story.conversation.asked.continued is (stale or "and words" in name)


def test_the_history_goes_to_a_fresh_run_with_its_results() -> None:
    story = dropped(answered(asked(Story("look"))))
    story.events()
    assert story.lose(Loss.STALE) is None
    recovered, failed = story.events()
    assert recovered == Recovered("fresh run", "stale", 2)
    assert isinstance(failed, TurnFailed) and failed.error.kind is ErrorKind.TURN_GONE


def test_the_retry_budget_is_the_same_for_all_causes() -> None:
    story = saved(Story("look"))
    for _ in range(2):
        story = dropped(story)
    story.events()
    assert story.lose(Loss.STALE) is None
    (failed,) = story.events()
    assert isinstance(failed, TurnFailed) and failed.error.kind is ErrorKind.UPSTREAM_DOWN


def test_a_second_stream_without_a_message_is_the_end() -> None:
    story = Story()
    fault = GatewayError(ErrorKind.UPSTREAM_DOWN, "nothing", code="empty_stream", repeatable=False)
    retry = story.conversation.lost(Loss.UNHEARD, fault, [Fact.NONE_LEFT])
    assert retry is not None and retry.alone
    story.conversation.open(story.now)
    assert story.conversation.watch.unheard
    assert story.conversation.lost(Loss.UNHEARD, fault, [Fact.NONE_LEFT]) is None
    failed = story.events()[-1]
    assert isinstance(failed, TurnFailed)
    assert (failed.error.code, failed.error.may_repeat) == ("empty_stream", False)


def test_what_a_refusal_can_be_about() -> None:
    assert not Story().conversation.asked.tools
    story = Story("look")
    assert (story.conversation.asked.tools, story.conversation.asked.heard) == (True, False)
    assert hear(story, "word").conversation.asked.heard
