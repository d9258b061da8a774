"""Which arguments fit a tool's schema, and when the model is told."""

import pytest

from caretway.core.request import ToolSpec
from caretway.schemas.arguments import CORRECTIONS, MAX_CHECKED_CALLS, MAX_CHECKED_CHARS, ArgumentCheck, misfit

LOOKUP = ToolSpec(
    "lookup",
    schema={
        "type": "object",
        "properties": {"key": {"type": "string"}, "depth": {"type": "integer"}},
        "required": ["key"],
        "additionalProperties": False,
    },
)
ANY = ToolSpec("any")
BROKEN = ToolSpec("broken", schema={"$ref": "#/nowhere"})

CASES = [
    (LOOKUP, '{"key": "a"}', ""),
    (LOOKUP, '{"key": "a", "depth": 2}', ""),
    (LOOKUP, "{}", "key"),
    (LOOKUP, "", "key"),
    (LOOKUP, '{"key": 1}', "$.key"),
    (LOOKUP, '{"key": "a", "more": 1}', "more"),
    (LOOKUP, "[1]", "not an object"),
    (LOOKUP, "{", "not JSON"),
    (ANY, '{"whatever": 1}', ""),
    (ANY, "[]", "not an object"),
    (BROKEN, '{"a": 1}', ""),
    (LOOKUP, '{"key": "' + "a" * MAX_CHECKED_CHARS + '", "more": 1}', ""),
]


@pytest.mark.seed("F24")
@pytest.mark.parametrize(("tool", "arguments", "says"), CASES, ids=[f"{tool.name} {a[:20]}" for tool, a, _ in CASES])
def test_what_fits(tool: ToolSpec, arguments: str, says: str) -> None:
    problem = misfit(tool, arguments)
    assert says in problem if says else problem == ""


def test_the_model_is_told_once() -> None:
    check = ArgumentCheck([LOOKUP], CORRECTIONS)
    assert check.correction("lookup", '{"key": "a"}') == ""
    assert "do not fit" in check.correction("lookup", "{}")
    assert check.correction("lookup", "{}") == "", "the second time it goes out"
    assert ArgumentCheck([LOOKUP]).correction("lookup", "{}") == ""


def test_a_tool_that_nobody_offered_is_not_judged() -> None:
    assert ArgumentCheck([LOOKUP]).problem("other", "{") == ""


def test_the_work_of_one_response_is_bounded() -> None:
    check = ArgumentCheck([LOOKUP])
    problems = [check.problem("lookup", "{}") for _ in range(MAX_CHECKED_CALLS + 5)]
    assert [bool(problem) for problem in problems] == [True] * MAX_CHECKED_CALLS + [False] * 5
