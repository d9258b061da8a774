"""The entry point: selects the command and converts failures to one line and an exit code (2 for a wrong setting or
command line, 1 for other failures, 130 after Ctrl-C, 0 if the reader of a pipe has gone).
"""

import argparse
import errno
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from .. import __version__
from ..config import ConfigError
from ..core.errors import GatewayError
from .flags import PROGRAM, CommandParser, HelpFormatter, flags_of, given, unknown
from .process import INTERRUPTED, CommandFailed, buffer_streams, open_missing_streams, remark

_COMMANDS: Final = (
    "serve",
    "open",
    "launch",
    "setup",
    "env",
    "ask",
    "login",
    "logout",
    "status",
    "top",
    "usage",
    "models",
    "mcp",
    "service",
    "doctor",
    "prove",
    "key",
    "config",
    "simulate",
    "completion",
)

_DESCRIPTION: Final = "Cursor models in the tools you already use: a local OpenAI and Anthropic API\ngateway."
_EXAMPLES: Final = """\
examples:
  caretway serve                        start it on http://127.0.0.1:32124
  caretway ask "..."                    ask a model, here in the terminal
  caretway login                        use your own Cursor subscription
  caretway COMMAND --help               how to use one command
"""


def parser(typed: Sequence[str] = ()) -> CommandParser:
    """The parser of the command line. Imports only the command that `typed` begins with; `completion` imports all."""
    alone = typed[:1] and typed[0] in _COMMANDS and typed[0] != "completion"
    top = CommandParser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
        usage="caretway COMMAND [flags]",
        allow_abbrev=False,
        add_help=False,
    )
    top.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    top.add_argument(
        "-V", "--version", action="version", version=f"caretway {__version__}", help="Print the version and exit."
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for name in typed[:1] if alone else _COMMANDS:
        command = import_module(f".{name}", __package__)
        own = commands.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=command.EXAMPLES,
            formatter_class=HelpFormatter,
            usage=getattr(command, "USAGE", f"caretway {command.NAME} [flags]"),
            allow_abbrev=False,
            add_help=False,
            prog=f"{PROGRAM} {command.NAME}",
        )
        own.add_argument("-h", "--help", action="help", help="Show this help and exit.")
        command.add_flags(own)
        own.set_defaults(run=command.run, parser=own)
    return top


def apart(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Splits the words at `--`: ours, and those for the program that `launch` starts."""
    if words[:1] != ["launch"] or "--" not in words:
        return words, ()
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def main(argv: Sequence[str] | None = None) -> int:
    open_missing_streams()
    buffer_streams()
    typed, rest = apart(sys.argv[1:] if argv is None else argv)
    top = parser(typed)
    if typed[:1] and typed[0].startswith("-") and typed[0] not in flags_of(top):
        top.exit_with(unknown(top, typed[:1]))
    arguments, left = top.parse_known_args(typed, argparse.Namespace(tree=top, parser=top, run=None, rest=rest))
    if left:
        arguments.parser.exit_with(unknown(arguments.parser, left))
    if arguments.run is None:
        top.print_help()
        return 0
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
        return int(code)
    except ConfigError as problem:
        remark([f"{problem}{_how_to_fix(problem, arguments)}"])
        return 2
    except GatewayError as problem:
        remark([str(problem)])
        return 1
    except CommandFailed as problem:
        remark([str(problem)])
        return problem.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone (`caretway models | head`)
        _give_up_output()
        return 0
    except OSError as failure:
        if failure.errno not in _FULL or failure.filename is not None:
            raise
        _give_up_output()
        remark([f"the output cannot be written: {failure.strerror}"])
        return 1


def _how_to_fix(problem: ConfigError, arguments: argparse.Namespace) -> str:
    """The command that fixes a mistake in a settings file; empty for other sources."""
    if not problem.origin.startswith("file "):
        return ""
    named = given(arguments).get("config")
    return f"; fix it with: {shlex.join(['caretway', 'config', 'edit', *(['--config', str(named)] if named else [])])}"


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _give_up_output() -> None:
    """Discards buffered output, because Python would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
