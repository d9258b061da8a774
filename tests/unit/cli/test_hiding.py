"""The gateway's environment is not for its commands: what /proc shows of it, before and after."""

import subprocess
import sys

PROGRAM = """
import ctypes, os
from caretway.cli.process import hide_from_children
if os.geteuid() == 0:
    os.setuid(54321)  # root sees everything
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # a change of user hides a process too
look = "cat /proc/$PPID/environ >/dev/null 2>&1"
print(os.system(look) == 0, hide_from_children(), os.system(look) == 0, os.system("test -n \\"$(echo works)\\"") == 0)
"""


def test_a_command_cannot_look_into_its_parent() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "True", "False", "True"]
