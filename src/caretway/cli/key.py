"""`caretway key new`: prints a new key of the gateway itself, which clients must then send."""

import argparse
from typing import Final

from ..web.access import new_key
from .process import say

NAME: Final = "key"
SUMMARY: Final = "make a key that clients of the gateway must send"
DESCRIPTION: Final = (
    "Print a new random key for the gateway itself. It is not a Cursor key, and it is\n"
    "not stored anywhere: keep it in a file that only you can read, and give it to\n"
    "the clients that may use the gateway."
)
EXAMPLES: Final = """\
examples:
  (umask 077; caretway key new > gateway.key)
  caretway serve --host 0.0.0.0 --api-key-file gateway.key
  curl -H "authorization: Bearer $(cat gateway.key)" \\
      http://127.0.0.1:32124/v1/models
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("new",), help="What to do: new prints a key.")


def run(arguments: argparse.Namespace) -> int:
    say([new_key()])
    return 0
