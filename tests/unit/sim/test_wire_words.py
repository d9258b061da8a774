"""Small tables between the script's words and the wire's: text deltas, execs, queries, failures, accounts."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.envelope import End, EnvelopeReader, read_end, write_end
from caretway.cursor.wire.messages import pb
from caretway_sim import execs, faults, raw_fields, updates
from caretway_sim.accounts import LIFETIME_S, Accounts, accepted
from caretway_sim.manners import CLASSIC
from caretway_sim.model_input import Tool, find
from caretway_sim.script import EXEC_FIELDS, EXEC_KINDS, NEWER_EXECS, QUERY_KINDS, ScriptStream, ToolUse
from caretway_sim.shared import Drops, Shared
from caretway_sim.start import merged, read_tools


@given(st.text(max_size=60))
def test_words_join_to_the_text(text: str) -> None:
    words = updates.words(text)
    assert "".join(words) == text
    assert all(words)
    assert len(words) == max(len(text.split()), 1 if text else 0)


@pytest.mark.parametrize("size", [0, 1, 40, 127, 128, 20_000])
def test_the_stream_template_is_real_protobuf(size: int) -> None:
    step = ScriptStream(3, size)
    template = updates.StreamTemplate(step)
    for index in range(3):
        assert template.delta(index) == updates.text(step.delta(index))


# ---------------------------------------------------------------------------------------------- execs


@pytest.mark.parametrize("kind", sorted(EXEC_KINDS - NEWER_EXECS.keys()))
def test_every_kind_has_arguments_on_the_wire(kind: str) -> None:
    message = execs.request(kind, {}, "call_1")
    which = message.WhichOneof("message")
    assert which == EXEC_FIELDS[kind]
    inner = getattr(message, which)
    if "tool_call_id" in inner.DESCRIPTOR.fields_by_name:
        assert inner.tool_call_id == "call_1"


def test_a_shell_has_a_parsing_result() -> None:
    message = execs.request("shell", {"command": "ls", "working_directory": "/w", "timeout": 5}, "call_1")
    assert message.shell_args.HasField("parsing_result")
    assert (message.shell_args.command, message.shell_args.timeout) == ("ls", 5)


def test_the_unknown_exec_is_unknown() -> None:
    message = pb.ExecServerMessage.FromString(execs.request("unknown", {}, "c").SerializeToString())
    assert message.WhichOneof("message") is None
    assert message.SerializeToString(), "and yet there is something in it"


def test_arguments_that_do_not_fit_are_named() -> None:
    with pytest.raises(execs.BadArguments, match="nonsense"):
        execs.request("read", {"nonsense": 1}, "c")


def test_a_newer_kind_takes_its_fields_by_number() -> None:
    args = {"1": "touch x", "3": 5, "6": True, "8": {"1": "inside"}}
    message = execs.request("mini_swe_bash", args, "c").SerializeToString()
    shell = pb.ShellArgs.FromString(raw_fields.embedded(message, NEWER_EXECS["mini_swe_bash"]) or b"")
    assert (shell.command, shell.timeout, shell.has_input_redirect) == ("touch x", 5, True)
    assert shell.HasField("parsing_result")
    for wrong in ({"command": "x"}, {"0": "x"}, {"1": None}, {"1": [1]}):
        with pytest.raises(execs.BadArguments, match="field"):
            execs.request("mini_swe_bash", wrong, "c")


def test_mcp_arguments_keep_their_types() -> None:
    args: dict[str, Any] = {"s": "x", "n": 1.5, "b": True, "z": None, "l": [1, None], "o": {"k": "v"}}
    message = execs.mcp_args(Tool("p-t", "t", "p"), ToolUse("t", args), "call_1")
    kinds = {key: value.WhichOneof("kind") for key, value in message.args.items()}
    assert kinds == {
        "s": "string_value",
        "n": "number_value",
        "b": "bool_value",
        "z": "null_value",
        "l": "list_value",
        "o": "struct_value",
    }
    assert (message.name, message.tool_name, message.provider_identifier) == ("p-t", "t", "p")


def outcome(**result: Any) -> execs.ExecOutcome:
    return execs.ExecOutcome((pb.ExecClientMessage(id=1, **result),))


def tree() -> pb.LsResult:
    result = pb.LsResult()
    root = result.success.directory_tree_root
    root.abs_path = "/w"
    root.children_files.add(name="a.txt")
    root.children_dirs.add(abs_path="/w/sub").children_files.add(name="b.txt")
    return result


def found() -> pb.GrepResult:
    result = pb.GrepResult()
    match = result.success.workspace_results["/w"].content.matches.add(file="a.txt").matches.add()
    match.line_number, match.content = 3, "hit"
    return result


OUTCOMES: list[tuple[execs.ExecOutcome, str, bool]] = [
    (outcome(shell_result=pb.ShellResult(success=pb.ShellSuccess(stdout="out\n", stderr="err"))), "out\nerr", False),
    (
        outcome(shell_result=pb.ShellResult(failure=pb.ShellFailure(stdout="out", exit_code=3))),
        "out\n[exit code 3]",
        False,
    ),
    (outcome(shell_result=pb.ShellResult(rejected=pb.ShellRejected(reason="no shell"))), "rejected: no shell", True),
    (outcome(shell_result=pb.ShellResult(timeout=pb.ShellTimeout(timeout_ms=9))), "error: timed out after 9 ms", True),
    (outcome(read_result=pb.ReadResult(success=pb.ReadSuccess(content="text"))), "text", False),
    (outcome(read_result=pb.ReadResult(success=pb.ReadSuccess(data=b"1234"))), "[4 bytes]", False),
    (
        outcome(read_result=pb.ReadResult(file_not_found=pb.ReadFileNotFound(path="/x"))),
        "error: file not found: /x",
        True,
    ),
    (outcome(read_result=pb.ReadResult(rejected=pb.ReadRejected(reason="no"))), "rejected: no", True),
    (
        outcome(write_result=pb.WriteResult(success=pb.WriteSuccess(path="/x", file_size=4))),
        "wrote /x (4 bytes)",
        False,
    ),
    (outcome(delete_result=pb.DeleteResult(success=pb.DeleteSuccess(path="/x"))), "deleted /x", False),
    (outcome(ls_result=tree()), "/w/\n  /w/sub/\n    b.txt\n  a.txt", False),
    (outcome(grep_result=found()), "a.txt:3:hit", False),
    (outcome(fetch_result=pb.FetchResult(error=pb.FetchError(error="offline"))), "error: offline", True),
    (outcome(mcp_result=pb.McpResult(rejected=pb.McpRejected(reason="later"))), "rejected: later", True),
    (outcome(mcp_result=pb.McpResult(tool_not_found=pb.McpToolNotFound(name="t"))), "error: tool not found: t", True),
    (outcome(mcp_result=pb.McpResult(error=pb.McpError(error="boom"))), "error: boom", True),
    (outcome(mcp_result=pb.McpResult()), "error: the result is empty", True),
    (execs.ExecOutcome((), "cannot do that"), "error: cannot do that", True),
    (execs.ExecOutcome(), "error: the exec was closed without a result", True),
]


@pytest.mark.parametrize(("outcome", "text", "is_error"), OUTCOMES)
def test_outcomes_read_as_text(outcome: execs.ExecOutcome, text: str, is_error: bool) -> None:
    assert outcome.text() == text
    assert outcome.is_error() is is_error


def test_an_mcp_result_is_its_content() -> None:
    success = pb.McpSuccess(is_error=True)
    success.content.add().text.text = "one"
    success.content.add().image.CopyFrom(pb.McpImageContent(data=b"123", mime_type="image/png"))
    result = outcome(mcp_result=pb.McpResult(success=success))
    assert result.text() == "one\n[image/png, 3 bytes]"
    assert result.is_error()


def test_a_shell_stream_ends_with_its_exit() -> None:
    events = [
        pb.ShellStream(start=pb.ShellStreamStart()),
        pb.ShellStream(stdout=pb.ShellStreamStdout(data="a")),
        pb.ShellStream(stderr=pb.ShellStreamStderr(data="b\n")),
        pb.ShellStream(exit=pb.ShellStreamExit(code=2)),
    ]
    messages = tuple(pb.ExecClientMessage(id=1, shell_stream=event) for event in events)
    assert [execs.final(message) for message in messages] == [False, False, False, True]
    assert execs.ExecOutcome(messages).text() == "ab\n[exit code 2]"


NEWER_QUERIES = {
    "setup_vm": (8, 1, "success"),
    "pull_request": (10, 3, "rejected: not here"),
    "mcp_auth": (11, 2, "rejected: not here"),
    "generate_image": (12, 2, "rejected: not here"),
    "kind_13": (13, 2, "failure: not here"),
    "connect_scm": (14, 2, "rejected: not here"),
}


@pytest.mark.parametrize(("kind", "field", "result", "wanted"), [(kind, *row) for kind, row in NEWER_QUERIES.items()])
def test_newer_queries_and_their_typed_answers(kind: str, field: int, result: int, wanted: str) -> None:
    query = execs.query(kind, {}, 0, "call_1").SerializeToString()
    assert list(raw_fields.read(query)) == [(field, b"")], "query ids begin at 0, which is not written"
    reason = b"" if wanted == "success" else raw_fields.message(1, b"not here")
    typed = raw_fields.message(field, raw_fields.message(result, reason))
    assert execs.query_text(pb.InteractionResponse.FromString(typed)) == wanted
    assert (
        execs.query_text(pb.InteractionResponse.FromString(raw_fields.message(field))) == "error: the answer is empty"
    )
    with pytest.raises(execs.BadArguments):
        execs.query(kind, {"a": 1}, 0, "call_1")


@pytest.mark.parametrize(("kind", "field"), sorted(NEWER_EXECS.items()))
def test_newer_execs(kind: str, field: int) -> None:
    message = execs.request(kind, {}, "c").SerializeToString()
    assert [number for number, _ in raw_fields.read(message)] == [field]
    typed = pb.ExecClientMessage.FromString(raw_fields.number(1, 3) + raw_fields.message(field))
    assert execs.ExecOutcome((typed,)).text() == f"answered in field {field}"
    assert execs.ExecOutcome((pb.ExecClientMessage(id=3),)).text() == "error: the result has no content"


@pytest.mark.parametrize("kind", sorted(QUERY_KINDS - NEWER_QUERIES.keys()))
def test_every_query_has_its_call_id(kind: str) -> None:
    query = execs.query(kind, {}, 7, "call_1")
    assert query.id == 7
    assert b"call_1" in query.SerializeToString()


def test_query_answers_read_as_text() -> None:
    response = pb.InteractionResponse(id=1)
    assert execs.query_text(response) == "error: the answer is empty"
    response.web_search_request_response.rejected.reason = "offline"
    assert execs.query_text(response) == "rejected: offline"
    response.web_fetch_request_response.approved.SetInParent()
    assert execs.query_text(response) == "approved"
    response.ask_question_interaction_response.result.rejected.reason = "nobody here"
    assert execs.query_text(response) == "rejected: nobody here"
    response.create_plan_request_response.result.success.SetInParent()
    assert execs.query_text(response) == "success"
    response.create_plan_request_response.result.error.error = "no plan"
    assert execs.query_text(response) == "error: no plan"


# ---------------------------------------------------------------------------------------------- the rest


def test_tools_are_known_by_both_names_and_counted_once() -> None:
    one = pb.McpToolDefinition(name="p-add", tool_name="add", provider_identifier="p", input_schema_json='{"a":1}')
    tools = read_tools(merged([one], [one, pb.McpToolDefinition(name="bare", input_schema_json="{")]))
    assert [tool.shown for tool in tools] == ["add", "bare"]
    assert find(tools, "add") is find(tools, "p-add") is tools[0]
    assert find(tools, "sub") is None
    assert tools[0].schema == {"a": 1}
    assert tools[1].schema == {}


BARE = ("bare", "quota", "plan", "not_in_plan", "gone", "late", "team_region", "denied", "no_exec", "picture", "eof")
INFO = {"rate_limit": {"retryAfterMs": "1000"}, "schema": {"providerStatusCode": "400"}}


@pytest.mark.parametrize("code", sorted(faults.SCRIPTED.keys() - set(BARE)))
def test_failures_say_whether_to_retry(code: str) -> None:
    error = read_end(write_end(faults.SCRIPTED[code]))
    assert error is not None
    assert error.retryable is (code == "unavailable")
    assert error.title
    assert dict(error.info) == INFO.get(code, {})


@pytest.mark.parametrize("code", BARE)
def test_bare_failures_say_nothing_but_a_code(code: str) -> None:
    error = read_end(write_end(faults.SCRIPTED[code]))
    assert error is not None
    assert (error.error, error.title, error.retryable) == (0, "", None)


def test_an_end_frame_is_one_frame() -> None:
    (frame,) = EnvelopeReader().feed(updates.end())
    assert isinstance(frame, End)
    assert frame == b"{}"


@pytest.mark.parametrize(("token", "good"), [("", False), ("bad-key", False), ("expired.x", False), ("key_1", True)])
def test_keys(token: str, good: bool) -> None:
    assert accepted(token) is good
    assert (Accounts(Shared()).exchange(token) is not None) is good


def test_tokens_are_unique_and_expire() -> None:
    shared = Shared(CLASSIC, clock=lambda: 1_000.0)
    accounts = Accounts(shared)
    first = accounts.exchange("key")
    assert first is not None
    second = accounts.exchange(first["refreshToken"])
    assert second is not None
    assert accounts.renew(second["refreshToken"], "refresh") is not None
    assert len({*first.values(), *second.values()}) == 4
    payload = first["accessToken"].split(".")[1]
    claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["exp"] == 1_000 + LIFETIME_S
    assert (shared.stats.token_exchanges, shared.stats.token_refreshes) == (1, 2)
    assert accounts.poll("u1", "v") is None
    assert accounts.poll("u1", "v") is not None
    assert accounts.poll("u2", "v") is None


def test_a_drop_happens_so_many_times() -> None:
    drops = Drops()
    assert [drops.due("run", 4, 0, 2) for _ in range(4)] == [True, True, False, False]
    assert drops.due("run", 4, 3, 1), "another line of the same script"
    assert drops.due("run", 6, 0, 1), "the same line in a later message"
    assert drops.due("other", 4, 0, 1)
