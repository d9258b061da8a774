"""`caretway help [COMMAND]`: the same as `caretway COMMAND --help`."""

import argparse
from typing import Final

from .parsing import flags_of, subcommands

NAME: Final = "help"
SUMMARY: Final = "show how to use a command"
DESCRIPTION: Final = "Show the list of commands, or how to use one of them."
EXAMPLES: Final = """\
examples:
  caretway help
  caretway help serve
  caretway help --all serve             every flag of it
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "caretway help [--all] [COMMAND]"
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="The command; without it, all commands.")
    parser.add_argument("--all", action="store_true", help="Show all flags, also those that few people need.")


def run(arguments: argparse.Namespace) -> int:
    top: argparse.ArgumentParser = arguments.tree
    if arguments.command is None:
        top.print_help()
        return 0
    own = subcommands(top).get(arguments.command)
    everything = arguments.all and own is not None and "--help-all" in flags_of(own)
    top.parse_args([arguments.command, "--help-all" if everything else "--help"])
    return 0
