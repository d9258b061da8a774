"""`caretway ask` as a real process: of a running gateway, of its own, through pipes; what it says when it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from caretway.cli.ask import AnswerEnd, footer, message

from .test_commands import ADDRESS, caretway, read_until

PNG: Final = b"\x89PNG\r\n\x1a\n"


def ask(*arguments: str, home: Path, piped: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "caretway", "ask", *arguments],
        input=piped,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        check=False,
    )


def test_without_an_account_it_answers_and_says_that_it_simulates(tmp_path: Path) -> None:
    done = ask("sim: think hm\nsim: say forty-two", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "forty-two\n")
    assert done.stderr == (
        "caretway: simulated answer: nothing of it comes from Cursor or from any model; "
        "for real answers: caretway login\n"
    )


def test_pipes_and_files_are_sent_along(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("sim: say from the file\n")
    done = ask("What is this?", "--file", str(file), home=tmp_path, piped="sim: say , from the pipe\n")
    assert done.stdout.split() == ["from", "the", "file", ",", "from", "the", "pipe"]


def test_a_conversation_goes_on(tmp_path: Path) -> None:
    done = ask("--continue", "And then?", home=tmp_path)
    assert done.returncode == 2 and "there is no question to go on with" in done.stderr
    assert ask("--model", "sim-auto", "sim: say forty-two", home=tmp_path).returncode == 0
    kept = next(tmp_path.rglob("ask.json"))
    assert kept.stat().st_mode & 0o077 == 0
    done = ask("--continue", "sim: say once more", home=tmp_path)
    assert done.stdout == "once more\n"
    talk = json.loads(kept.read_bytes())
    assert talk["model"] == "sim-auto"
    assert [one["role"] for one in talk["messages"]] == ["user", "assistant"] * 2
    assert talk["messages"][1]["content"] == "forty-two"
    kept.write_text('{"model": "x", "messages": [{"a": ' + "[" * 5000)
    done = ask("--continue", "And now?", home=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "ask.json: " in done.stderr


def test_keys_with_a_name_do_not_shut_out_the_user_who_made_them(tmp_path: Path) -> None:
    with caretway("key", "new", "--name", "ci", home=tmp_path) as process:
        assert process.wait(30) == 0
    done = ask("sim: say hello", "--backend", "simulator", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello\n")


def test_a_running_gateway_is_used_with_any_port_and_key(tmp_path: Path) -> None:
    key = tmp_path / "gateway.key"
    key.write_text("0123456789abcdef-of-the-gateway")
    key.chmod(0o600)
    with caretway("serve", "--port", "0", "--api-key-file", str(key), home=tmp_path) as process:
        read_until(process, ADDRESS)
        done = ask("--json", "sim: say hello", home=tmp_path)
        assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "hello"
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert "hello" not in log and log.count(" caretway-ask ") == 1, "it was asked there"


FAILURES = [
    (["sim: fail usage_limit"], 1, "usage"),
    (["--model", "no-such-model", "hello"], 1, "caretway models"),
    ([], 2, 'try: caretway ask "'),
    (["--file", "/no/such/file", "hello"], 2, "cannot read /no/such/file"),
    (["sim: say half\nsim: fail internal"], 1, "Cursor"),
]


@pytest.mark.parametrize(("arguments", "code", "says"), FAILURES, ids=lambda value: str(value)[:30])
def test_a_failure_is_one_sentence(arguments: list[str], code: int, says: str, tmp_path: Path) -> None:
    done = ask(*arguments, home=tmp_path)
    assert done.returncode == code and "Traceback" not in done.stderr
    assert says.lower() in done.stderr.splitlines()[-1].lower()


def test_what_is_sent() -> None:
    assert message("why?", "", []) == "why?"
    assert message("", "a pipe alone", []) == "a pipe alone"
    assert message("", " \n", []) == ""
    assert message("why?", "text", [("a.md", b"```x```")]) == (
        "a.md:\n````\n```x```\n````\n\nstandard input:\n```\ntext\n```\n\nwhy?"
    )
    assert message("what?", "", [("a.png", PNG)]) == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "text", "text": "what?"},
    ]


def test_the_footer_tells_the_cost() -> None:
    usage = {"prompt_tokens": 12034, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 12000}}
    assert footer(AnswerEnd("m", usage, "length"), 1.23) == (
        "m, 12,034 tokens in (12,000 cached), 5 out, cut at the limit of tokens, 1.2 s"
    )
    assert footer(AnswerEnd(), 2) == "2.0 s"
