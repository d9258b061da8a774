"""Python programs that tests write to disk."""

import sys
from pathlib import Path

_HEAD = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
"""
"""A command for sh and a string for Python. A `#!` line with the interpreter's path cannot hold a space."""


def write_program(path: Path, source: str) -> None:
    """Write `source` as an executable file that this interpreter runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_HEAD.format(python=sys.executable) + source)
    path.chmod(0o755)
