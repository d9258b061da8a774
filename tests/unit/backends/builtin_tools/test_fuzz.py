"""Any schema and any result: a valid call or none, typed answers and never an exception."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry

from caretway.backends.builtin_tools.exec_intent import COMMAND, CONTENT, FOLDER, NAMES, PATH, PATTERN, URL
from caretway.backends.builtin_tools.redirector import Redirector
from caretway.core.request import Image, Text, ToolResult, ToolSpec
from caretway.cursor.wire.messages import pb

from .client_tools import CLIENTS, exec_, tools_of

TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
WORDS = st.sampled_from(
    ["type", "properties", "required", "enum", "anyOf", "$ref", "#", "#/$defs/x", "string", "array", "items", "pattern",
     "(", "default", "null", "object", "additionalProperties", "$schema", "const", "minLength", "not"]
)  # fmt: skip
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
PROPERTY = st.sampled_from(sorted({*COMMAND, *CONTENT, *FOLDER, *PATH, *PATTERN, *URL, "offset", "limit", "timeout"}))
PLAUSIBLE = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(PROPERTY, st.just({"type": "string"}) | JSON, max_size=4),
    },
    optional={"required": st.lists(PROPERTY, max_size=2) | JSON, "additionalProperties": st.booleans() | JSON},
)
SCHEMA = PLAUSIBLE | st.dictionaries(WORDS | PROPERTY, JSON, max_size=5)
TOOL = st.builds(ToolSpec, st.sampled_from(sorted({n for names in NAMES.values() for n in names})), schema=SCHEMA)
VALID = st.text(max_size=20)
EXECS = st.one_of(
    st.builds(lambda c, d: exec_("shell", command=c, working_directory=d, timeout=9), VALID, VALID),
    st.builds(lambda c: exec_("shell_stream", command=c), VALID),
    st.builds(lambda p, o, n: exec_("read", path=p, offset=o, limit=n), VALID, st.integers(-3, 9), st.integers(0, 9)),
    st.builds(lambda p: exec_("redacted_read", path=p), VALID),
    st.builds(lambda p: exec_("ls", path=p), VALID),
    st.builds(
        lambda p, g, r, m, c: exec_("grep", pattern=p, glob=g, path=r, output_mode=m, context=c),
        VALID, VALID, VALID, st.sampled_from(["", "content", "files_with_matches", "count", "x"]), st.integers(-1, 2),
    ),
    st.builds(lambda p, t: exec_("write", path=p, file_text=t), VALID, VALID),
    st.builds(lambda p, b: exec_("write", path=p, file_bytes=b), VALID, st.binary(max_size=9)),
    st.builds(lambda p: exec_("delete", path=p), VALID),
    st.builds(lambda u: exec_("fetch", url=u), VALID),
    st.just(pb.ExecServerMessage()),
)  # fmt: skip
PIECES = st.lists(
    TEXT
    | st.sampled_from(
        ["\n", "  ", "- ", "a/", "/w/", ":3:", "-4-", "     1→", "     2\t", "00001| ", "Line 3: ", "File: ",
         "Exit code 1",
         "Command exited with code 99999999999", "<exit_code>7</exit_code>", "Output:\n", "Wall time: 1\n", "<file>\n",
         "</file>", "<content>\n", "</content>", "(End of file - total 9 lines)", "<system-reminder>",
         "</system-reminder>", '{"output":"x","metadata":{"exit_code":1}}', "Error: ", "│ ├── ", "[DIR] ",
         "(directory)",
         "Chunk ID: 1\n", "Process exited with code 3\n", "<tool_use_error>", "</tool_use_error>", "999999999:", "\0"]
    ),
    max_size=12,
).map("".join)  # fmt: skip
RESULTS = st.builds(
    ToolResult,
    st.just("c"),
    st.lists(st.builds(Text, PIECES) | st.builds(Image, st.binary(max_size=4), st.just("image/png")), max_size=3).map(
        tuple
    ),
    st.booleans(),
)


@given(st.lists(TOOL, max_size=4, unique_by=lambda tool: tool.name), EXECS)
def test_any_schema(tools: list[ToolSpec], asked: pb.ExecServerMessage) -> None:
    redirect = Redirector(tools).translate(asked)
    if redirect is not None:
        schema = _for_the_judge(dict(next(tool.schema for tool in tools if tool.name == redirect.name)))
        rules = validator_for(schema, default=Draft202012Validator)
        # Foreign regular expressions are not run by us; what stands for one here need not even be a text.
        lenient = extend(rules, dict.fromkeys(("pattern", "patternProperties"), _no_rule))  # type: ignore[no-untyped-call]  # theirs
        judge = lenient(schema, registry=Registry())
        if rules(rules.META_SCHEMA).is_valid(schema):  # else the judge itself may fail, or follow no rule
            judge.validate(msgspec.json.decode(redirect.arguments))


def _no_rule(*_: Any) -> None: ...


def _for_the_judge(schema: Any) -> Any:
    """The same without `$schema` that is no text, at any depth: on that the judge itself fails."""
    if isinstance(schema, list):
        return [_for_the_judge(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _for_the_judge(each) for key, each in schema.items() if key != "$schema" or isinstance(each, str)}


TOOLS = {client: Redirector(tools_of(client)) for client in CLIENTS}


@given(st.sampled_from(CLIENTS), EXECS, RESULTS)
def test_any_result(client: str, asked: pb.ExecServerMessage, result: ToolResult) -> None:
    redirect = TOOLS[client].translate(asked)
    if redirect is None:
        return
    messages = [pb.AgentClientMessage.FromString(data) for data in redirect.convert(3, result)]
    assert messages[-1].exec_client_control_message.stream_close.id == 3
    kind = asked.WhichOneof("message")
    assert kind is not None
    expected = {"shell_stream_args": "shell_stream"}.get(kind, kind.replace("_args", "_result"))
    for message in messages[:-1]:
        assert message.exec_client_message.id == 3
        assert message.exec_client_message.WhichOneof("message") == expected
