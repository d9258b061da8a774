"""What a refusal may be about: a table of errors, and of what was heard before."""

import pytest
from msgspec.structs import replace

from caretway.backends.agent.compose import Composer, RunContext
from caretway.backends.agent.refused_run import cause_of
from caretway.core.events import Recovered
from caretway.core.recovery import Cause
from caretway.cursor.transport.faults import fault_from_connect
from caretway.cursor.wire.errors import ConnectError
from caretway.cursor.wire.messages import ai
from unit.backends.agent.stories import Story, checkpoint, text

SCHEMA = ConnectError(
    "internal", "Error", error=ai.ErrorDetails.ERROR_PROVIDER_ERROR, info=(("providerStatusCode", "400"),)
)
BUSY = ConnectError(
    "internal", "Error", error=ai.ErrorDetails.ERROR_PROVIDER_ERROR, info=(("providerStatusCode", "503"),)
)
BARE = ConnectError("resource_exhausted", "Error")
HOLE = ConnectError("internal", "Blob not found")

ROWS = [
    ("a refused schema", SCHEMA, "", True, Cause.SCHEMA),
    ("nothing to simplify", SCHEMA, "", False, Cause.REFUSED),
    ("a refused schema after words", SCHEMA, "words", True, Cause.REFUSED),
    ("another failure of the maker's", BUSY, "", True, Cause.REFUSED),
    ("without a reason, one shape", BARE, "", True, Cause.REFUSED),
    ("without a reason, from a checkpoint", BARE, "kept", True, Cause.STALE),
    ("a refused schema, from a checkpoint", SCHEMA, "kept", True, Cause.SCHEMA),
    ("a hole in the conversation", HOLE, "kept", True, Cause.INCOMPLETE),
]


@pytest.mark.parametrize(
    ("error", "before", "simplifiable", "cause"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_cause(error: ConnectError, before: str, simplifiable: bool, cause: Cause) -> None:
    story = Story("look")
    if before == "words":
        story.hear(text("so far"))
    elif before == "kept":
        story.hear(checkpoint(b"k"))
        story.drop()
    fault = fault_from_connect(error, story.conversation.asked)
    assert cause_of(error, fault, story.conversation, simplifiable=simplifiable) is cause


def test_simpler_schemas_begin_anew_and_are_told() -> None:
    story = Story("look")
    story.hear(checkpoint(b"early"))
    story.events()
    life = story.conversation
    opening = Composer(RunContext()).compose(story.request, conversation_id="conv", run_id="run", simplest=True)
    life.simplify(replace(opening, adapted="fitted for any maker: look (unions)"))
    retry = story.lose(Cause.SCHEMA)
    assert retry is not None and not retry.alone
    assert story.events() == [Recovered("same run", "schema", 1, "fitted for any maker: look (unions)")]
    story.conversation.outgoing.clear()
    life.open(story.now)
    (opened,) = story.said()
    assert not opened.run_request.conversation_state.root_prompt_messages_json, "the early checkpoint counts no more"
    assert life.simplified
