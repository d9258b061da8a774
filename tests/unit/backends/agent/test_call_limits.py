"""What the table of calls keeps is bounded, whatever upstream tells of calls."""

from collections.abc import Callable

import pytest

from caretway.backends.agent.call_limits import MAX_ARGUMENT_CHARS, MAX_OPEN_CALLS, MAX_REMEMBERED_BYTES
from caretway.backends.agent.calls import CallTable
from caretway.backends.agent.drafts import MAX_DRAFT_CHARS, MAX_ID_CHARS
from caretway.backends.agent.echo import Diverged
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import Text, ToolResult


def answer(exec_id: int, result: ToolResult) -> list[bytes]:
    return []


def begin_many(table: CallTable) -> None:
    for number in range(MAX_OPEN_CALLS + 1):
        table.begin((f"call-{number}",), "look", answer)


def ask_many(table: CallTable) -> None:
    for number in range(MAX_OPEN_CALLS + 1):
        table.ask((f"call-{number}",), number, "look", "{}", answer)


def grow_a_draft(table: CallTable) -> None:
    table.begin(("shown",), "look", answer)
    table.begin(("waits",), "look", answer)
    for number in range(2 * MAX_DRAFT_CHARS // 10_000):
        table.grow(("waits",), f"{number:010000d}")


def long_id(table: CallTable) -> None:
    table.begin(("x" * (MAX_ID_CHARS + 1),), "look", answer)


def long_id_of_an_exec(table: CallTable) -> None:
    table.ask(("x" * (MAX_ID_CHARS + 1),), 1, "look", "{}", answer)


def long_arguments(table: CallTable) -> None:
    table.ask(("call",), 1, "look", '"' + "x" * MAX_ARGUMENT_CHARS + '"', answer)


@pytest.mark.parametrize(
    "story", [begin_many, ask_many, grow_a_draft, long_id, long_id_of_an_exec, long_arguments], ids=lambda s: s.__name__
)
@pytest.mark.parametrize("parallel", [True, False])
def test_too_much_ends_the_turn(story: Callable[[CallTable], None], parallel: bool) -> None:
    if (story is begin_many and not parallel) or (story is grow_a_draft and parallel):
        parallel = not parallel  # the other one shows nothing, or has no drafts
    with pytest.raises(GatewayError) as refused:
        story(CallTable(parallel=parallel))
    assert refused.value.kind is ErrorKind.UPSTREAM_PROTOCOL


def test_a_draft_that_is_told_whole_each_time_counts_once() -> None:
    table = CallTable(parallel=False)
    table.begin(("shown",), "look", answer)
    table.begin(("waits",), "look", answer)
    for number in range(2000):
        table.grow(("waits",), "x" * number * 10)


def test_of_too_many_results_the_oldest_are_forgotten() -> None:
    """What is forgotten is never answered with something else: the run starts anew."""
    piece = "x" * (MAX_REMEMBERED_BYTES // 10)
    table = CallTable(parallel=True)
    answered: list[ToolResult] = []

    def convert(exec_id: int, result: ToolResult) -> list[bytes]:
        answered.append(result)
        return [b"%d" % exec_id]

    results = []
    for number in range(12):
        call = table.ask((f"call-{number}",), number, "look", f'{{"at":{number}}}', convert).call
        results.append(ToolResult(call.id, (Text(piece),)))
        table.submit(results[-1:])
    with pytest.raises(Diverged, match="no longer remembered"):
        table.ask(("call-0",), 100, "look", '{"at":0}', convert)
    assert table.ask(("call-11",), 111, "look", '{"at":11}', convert).replies == [b"111"]
    assert answered[-1] is results[-1]
