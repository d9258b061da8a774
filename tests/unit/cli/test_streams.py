"""The commands where standard streams are missing or full, and Ctrl-C while they are being loaded: real processes."""

import io
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import caretway.__main__ as program
from caretway.cli.completion import bash, words
from caretway.cli.main import parser
from caretway.cli.process import typed_or_piped


@pytest.mark.parametrize("missing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_without_a_standard_stream_does_its_work(missing: str, tmp_path: Path) -> None:
    """Some supervisors start programs so: the next file or socket would get the stream's number."""
    line = f'exec "$0" -m caretway models --backend simulator {missing}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"HOME": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (">&-" in missing.replace("2>&-", "")) or "sim-auto" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("words", [("models", "--backend", "simulator"), ("config",)])
def test_output_to_a_full_disk_is_one_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "caretway", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=os.environ | {"HOME": str(tmp_path)},
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "caretway: the output cannot be written: No space left on device\n")


_INTERRUPTED: Final = """
import os, signal, sys
from caretway.cli.main import main
signal.signal(signal.SIGALRM, lambda *_: os.write(int(sys.argv[1]), b"."))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
sys.exit(main(["completion", "bash"]))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_is_lost_when_a_signal_interrupts_the_output(unbuffered: str, tmp_path: Path) -> None:
    """The reader waits until signals have come to a writer whose pipe is full."""
    notes, note = os.pipe()
    writer = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, str(note)],
        stdout=subprocess.PIPE,
        pass_fds=[note],
        pipesize=4096,
        env=os.environ | {"HOME": str(tmp_path), "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(note)
    with writer:
        assert writer.stdout is not None
        select.select([writer.stdout], [], [], 60)
        os.read(notes, 65536)  # those of before
        assert os.read(notes, 1) + os.read(notes, 1) == b".."
        written = writer.stdout.read().decode()
    os.close(notes)
    assert written == f"{bash(list(words(parser())))}\n"


def test_ctrl_c_while_it_is_being_loaded_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "caretway.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "caretway.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert program.main() == 130


def test_ctrl_d_at_a_question_is_no_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def ended(_question: str) -> str:
        raise EOFError

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    assert typed_or_piped(ended, "Cursor API key: ", terminal) == ""
    assert capsys.readouterr().err == "\n"


def test_a_start_on_windows_names_wsl(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main("win32") == 1
    assert capsys.readouterr() == ("", "caretway: Windows is not supported; run it in WSL 2\n")
