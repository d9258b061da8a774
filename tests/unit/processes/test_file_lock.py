"""One process has the lock, and others have it when that one has ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from caretway.processes.file_lock import try_lock

HOLD = """
import os, sys
from caretway.processes.file_lock import try_lock
handle = os.open(sys.argv[1], os.O_RDWR)
print(try_lock(handle), flush=True)
sys.stdin.readline()
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    handle = os.open(file, os.O_RDWR)
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not try_lock(handle)
        other.kill()
    assert try_lock(handle)
    os.close(handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        try_lock(handle)
