"""The client's result text -> the typed answer of the exec. Texts as the clients print them."""

import pytest

from caretway.backends.builtin_tools.execs import Redirect
from caretway.core.request import Text, ToolResult, added_words, system_text
from caretway.cursor.wire.messages import pb

from .client_tools import picture, replies, reply, tool, tools_of, translate

CODEX_HEAD = (
    "Chunk ID: 36c2f2\nWall time: 0.0512 seconds\nProcess exited with code {}\nOriginal token count: 5\nOutput:\n"
)

SHELL_CASES: list[tuple[str, str, bool, str, int]] = [
    # what it is, text, error flag, stdout, exit code
    ("plain", "NONCE-1\n", False, "NONCE-1\n", 0),
    ("plain failure", "boom", True, "boom", 1),
    ("codex", CODEX_HEAD.format(0) + "NONCE-1\n", False, "NONCE-1\n", 0),
    ("codex failure", CODEX_HEAD.format(3) + "no\n", False, "no\n", 3),
    ("codex, killed", CODEX_HEAD.format(-9) + "no\n", False, "no\n", 1),
    ("codex without output", CODEX_HEAD.format(0), False, "", 0),
    (
        "codex, still running",
        "Wall time: 10.0 seconds\nProcess running with session ID 4\nOriginal token count: 1\nOutput:\nhalf",
        False,
        "half\n[still running as session 4]\n",
        0,
    ),
    ("codex's older shell", "Exit code: 2\nWall time: 0.1 seconds\nOutput:\nx", False, "x", 2),
    ("codex's first shell", '{"output":"x\\n","metadata":{"exit_code":4,"duration_seconds":0.1}}', False, "x\n", 4),
    ("a script's object", '{"stdout":"a","stderr":"b","returncode":0}', False, "ab", 0),
    ("some JSON is output", '{"output":"a","metadata":{}}', False, '{"output":"a","metadata":{}}', 0),
    ("claude code failure", "Exit code 2\nls: no", True, "ls: no", 2),
    ("claude code failure, silent", "Exit code 1", True, "", 1),
    ("the same words as output", "Exit code 2\nls: no", False, "Exit code 2\nls: no", 0),
    ("claude code's own error", "<tool_use_error>bad input</tool_use_error>", False, "bad input", 1),
    ("goose failure", "fail\n\nCommand exited with code 7", False, "fail", 7),
    ("goose without output", "(no output)", False, "", 0),
    ("continue failure", "Error (exit code 2): ls: no", False, "ls: no", 2),
    ("gemini", "Output: x\nExit Code: 5\nSignal: (none)\nProcess Group PGID: 12", False, "Output: x", 5),
    ("tags", "x\n<exit_code>6</exit_code>\n", False, "x", 6),
    ("tags in front", "<exit_code>0</exit_code>\nx", False, "x", 0),
    ("words in the middle", "a\nCommand exited with code 7\nb", False, "a\nCommand exited with code 7\nb", 0),
    (
        "opencode, out of time",
        "x\n\n<bash_metadata>\nbash tool terminated command after exceeding timeout 5 ms\n</bash_metadata>",
        False,
        "x\n\n<bash_metadata>\nbash tool terminated command after exceeding timeout 5 ms\n</bash_metadata>",
        1,
    ),
    ("a code beyond the wire", "Command exited with code 3221225477", False, "", 1),
    ("error flag and code 0", CODEX_HEAD.format(0) + "x", True, "x", 1),
]


@pytest.mark.parametrize(
    ("text", "failed", "stdout", "code"), [c[1:] for c in SHELL_CASES], ids=[c[0] for c in SHELL_CASES]
)
def test_shell(text: str, failed: bool, stdout: str, code: int) -> None:
    redirect = translate(tools_of("opencode"), "shell", command="x", working_directory="/w")
    result = reply(redirect, text, failed=failed).shell_result
    assert result.WhichOneof("result") == ("failure" if code else "success")
    ended = result.failure if code else result.success
    assert (ended.stdout, ended.exit_code, ended.command, ended.working_directory) == (stdout, code, "x", "/w")


@pytest.mark.parametrize(
    ("text", "failed", "stdout", "code"), [c[1:] for c in SHELL_CASES], ids=[c[0] for c in SHELL_CASES]
)
def test_shell_stream(text: str, failed: bool, stdout: str, code: int) -> None:
    redirect = translate(tools_of("opencode"), "shell_stream", command="x", working_directory="/w")
    events = [answer.shell_stream for answer in replies(redirect, text, failed=failed)]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds == (["start", "stdout", "exit"] if stdout else ["start", "exit"])
    assert "".join(event.stdout.data for event in events) == stdout
    assert (events[-1].exit.code, events[-1].exit.cwd) == (code, "/w")


@pytest.mark.parametrize("words", [Text("Hurry."), system_text("Be quick.")], ids=["the user's", "the system's"])
def test_words_beside_a_shells_result_do_not_hide_its_exit_code(words: Text) -> None:
    added = added_words([words])
    result = ToolResult("c", (Text(CODEX_HEAD.format(3) + "no"), added))
    failure = reply(translate(tools_of("opencode"), "shell", command="x"), result).shell_result.failure
    assert (failure.exit_code, failure.stdout) == (3, f"no{added.text}")


def test_a_moved_command_is_echoed_as_it_was_asked() -> None:
    redirect = translate(tools_of("goose"), "shell", command="ls", working_directory="/w")
    assert reply(redirect, "x").shell_result.success.command == "ls"


REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


@pytest.mark.parametrize(
    ("kind", "field"),
    [("shell", "shell_result"), ("read", "read_result"), ("write", "write_result"), ("delete", "delete_result")],
)
def test_a_person_said_no(kind: str, field: str) -> None:
    asked = {"command": "x"} if kind == "shell" else {"path": "x"}
    answer = reply(translate(tools_of("claude-code"), kind, **asked), REFUSED, failed=True)
    assert getattr(answer, field).rejected.reason == REFUSED


def test_a_person_said_no_to_a_stream() -> None:
    redirect = translate(tools_of("claude-code"), "shell_stream", command="x")
    assert reply(redirect, REFUSED, failed=True).shell_stream.rejected.command == "x"


# ---------------------------------------------------------------------------------------------- read


def read(client: str = "claude-code", **fields: object) -> Redirect | None:
    return translate(tools_of(client), "read", **{"path": "/w/a.txt", **fields})


OPENCODE = "<path>/w/a.txt</path>\n<type>file</type>\n<content>\n{}\n</content>"
READ_CASES: list[tuple[str, str, str, int]] = [
    # what it is, text, content, total lines
    ("plain", "a\n\tb\n", "a\n\tb\n", 2),
    ("empty", "", "", 0),
    ("arrows", "     1→a\n     2→\n     3→ c", "a\n\n c", 3),
    ("cat -n", "     9\ta\n    10\tb\n", "a\nb\n", 2),
    ("opencode", OPENCODE.format("1: a\n2: \n3: 3: c\n\n(End of file - total 3 lines)"), "a\n\n3: c", 3),
    ("opencode, older", "<file>\n00001| a\n00002| b\n\n(End of file - total 2 lines)\n</file>", "a\nb", 2),
    (
        "opencode, with a reminder",
        OPENCODE.format("1: a\n\n(End of file - total 1 lines)") + "\n\n<system-reminder>\nx\n</system-reminder>",
        "a",
        1,
    ),
    ("a reminder alone", "<system-reminder>Warning: the file is empty.</system-reminder>", "", 0),
    ("continue", "Content of /w/a.txt:\n1\ta\n", "1\ta\n", 1),
    ("a table is not numbered", "1\ta\n2\tb\n", "1\ta\n2\tb\n", 2),
    ("a gap in the numbers", "     1→a\n     3→b", "     1→a\n     3→b", 2),
    ("a line without a number", "     1→a\nb", "     1→a\nb", 2),
    ("a list outside of a frame", "1: a\n2: b", "1: a\n2: b", 2),
    ("an error in a log", "Error: no such file\nGo on\n", "Error: no such file\nGo on\n", 2),
]


@pytest.mark.parametrize(("text", "content", "lines"), [c[1:] for c in READ_CASES], ids=[c[0] for c in READ_CASES])
def test_read(text: str, content: str, lines: int) -> None:
    success = reply(read(), text).read_result.success
    assert (success.path, success.content, success.total_lines) == ("/w/a.txt", content, lines)
    assert success.file_size == len(content.encode())
    assert success.WhichOneof("output") == "content"


def test_read_says_what_part_it_is() -> None:
    more = OPENCODE.format("1: a\n\n(Showing lines 1-1 of 900. Use offset=2 to continue.)")
    success = reply(read("opencode"), more).read_result.success
    assert (success.content, success.total_lines, success.truncated, success.range_applied) == ("a", 900, True, False)
    success = reply(read("opencode", offset=1, limit=1), more).read_result.success
    assert (success.truncated, success.range_applied) == (False, True)


def test_read_without_the_range() -> None:
    """A tool that reads whole files, and nothing else there: better more than nothing."""
    redirect = translate([tool("read_file")], "read", path="a", offset=3)
    assert reply(redirect, "x").read_result.success.range_applied is False


def test_redacted_read_answers_in_its_own_field() -> None:
    redirect = translate(tools_of("claude-code"), "redacted_read", path="a")
    assert reply(redirect, "x").redacted_read_result.success.content == "x"


def test_read_an_image() -> None:
    success = reply(read(), picture(b"\x89PNG")).read_result.success
    assert (success.data, success.file_size, success.WhichOneof("output")) == (b"\x89PNG", 4, "data")


@pytest.mark.parametrize(
    ("text", "failed", "kind"),
    [
        ("File does not exist.", True, "file_not_found"),
        ("<tool_use_error>File does not exist.</tool_use_error>", True, "file_not_found"),
        ("Error: File not found: /w/a.txt", False, "file_not_found"),
        ("File not found: /w/a.txt\n\nDid you mean one of these?\n/w/b.txt", False, "file_not_found"),
        ("cat: /w/a.txt: No such file or directory", False, "file_not_found"),
        ("EISDIR: illegal operation on a directory", True, "error"),
        ("cat: /w/a.txt: Permission denied", False, "error"),
        ("Error: something else", False, "success"),
    ],
)
def test_read_fails(text: str, failed: bool, kind: str) -> None:
    assert reply(read(), text, failed=failed).read_result.WhichOneof("result") == kind


def test_read_through_a_shell_is_left_as_it_is() -> None:
    redirect = read("codex")
    assert reply(redirect, CODEX_HEAD.format(0) + "     1→a\n").read_result.success.content == "     1→a\n"
    missing = CODEX_HEAD.format(1) + "cat: /w/a.txt: No such file or directory\n"
    assert reply(redirect, missing).read_result.file_not_found.path == "/w/a.txt"


# ---------------------------------------------------------------------------------------------- write, delete, fetch


def test_write() -> None:
    redirect = translate(
        tools_of("opencode"), "write", path="a", file_text="é\nb", return_file_content_after_write=True
    )
    success = reply(redirect, "Wrote file successfully.").write_result.success
    assert success == pb.WriteSuccess(path="a", lines_created=2, file_size=4, file_content_after_write="é\nb")
    for text, failed in (("disk full", True), ("Error: File a has not been read", False)):
        assert reply(redirect, text, failed=failed).write_result.error == pb.WriteError(path="a", error=text)


def test_delete() -> None:
    redirect = translate([tool("delete_file")], "delete", path="a")
    success = reply(redirect, "ok").delete_result.success
    assert (success.path, success.deleted_file) == ("a", "a")
    assert reply(redirect, "no", failed=True).delete_result.error.error == "no"
    assert reply(redirect, "rm: a: No such file or directory").delete_result.file_not_found.path == "a"


def test_fetch() -> None:
    redirect = translate(tools_of("opencode"), "fetch", url="u")
    success = reply(redirect, "# Page").fetch_result.success
    assert (success.url, success.content, success.status_code) == ("u", "# Page", 200)
    for text, failed in (("404", True), ("Error: status code 404", False)):
        assert reply(redirect, text, failed=failed).fetch_result.error == pb.FetchError(url="u", error=text)


def test_halves_of_characters_are_replaced() -> None:
    redirect = translate(tools_of("opencode"), "shell", command="x")
    assert reply(redirect, "a\ud800b").shell_result.success.stdout == "a?b"


def test_a_large_result_is_passed_whole() -> None:
    text = "x" * 80 + "\n"
    redirect = translate(tools_of("opencode"), "shell", command="x")
    assert reply(redirect, text * 100_000).shell_result.success.stdout == text * 100_000


LISTED = tool("run_commands", {"commands": {"type": "array", "items": {"type": "string"}}})


@pytest.mark.parametrize(
    ("text", "stdout", "code"),
    [
        ('[{"query": "ls", "result": "a\\nb", "success": true, "duration": 3}]', "a\nb", 0),
        ('[\n  {"query": "ls", "result": "", "error": "no such thing", "success": false}\n]', "no such thing", 1),
        ('[{"query": "ls", "result": ""}]', '[{"query": "ls", "result": ""}]', 0),
        ('[{"success": true, "result": 1}, {}]', '[{"success": true, "result": 1}, {}]', 0),
        ('[{"success": true, "result": 7}]', '[{"success": true, "result": 7}]', 0),
        ("[{ not json", "[{ not json", 0),
        ("plain", "plain", 0),
    ],
)
def test_a_list_with_one_answer_is_that_answer(text: str, stdout: str, code: int) -> None:
    answered = reply(translate([LISTED], "shell", command="ls"), text).shell_result
    ended = answered.failure if code else answered.success
    assert (ended.stdout, ended.exit_code) == (stdout, code)


def test_a_file_that_looks_like_one_stays_a_file() -> None:
    text = '[{"success": true, "result": "x"}]'
    assert reply(translate([tool("read")], "read", path="a"), text).read_result.success.content == text
