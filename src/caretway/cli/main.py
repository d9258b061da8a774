"""The entry point: picks the command, and turns failures into one line and an exit code (2 a wrong setting, 1 others,
130 Ctrl-C, 0 when the reader of a pipe is gone).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from .. import __version__
from ..config import ConfigError
from ..core.errors import GatewayError
from . import config, doctor, key, login, logout, mcp, models, prove, serve, simulate, status
from .flags import HelpFormatter
from .process import INTERRUPTED, CommandFailed, remark

_COMMANDS: Final = (serve, login, logout, status, models, mcp, doctor, prove, key, config, simulate)

_DESCRIPTION: Final = "Cursor models in the tools you already use: a local OpenAI and Anthropic API\ngateway."
_EXAMPLES: Final = """\
examples:
  caretway serve                        start it on http://127.0.0.1:32124
  caretway login                        use your own Cursor subscription
  CURSOR_API_KEY=... caretway serve     the same with an API key
  caretway serve --backend simulator    try it without an account
  caretway COMMAND --help               how to use one command
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="caretway",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
        usage="caretway COMMAND [flags]",
        allow_abbrev=False,
        add_help=False,
    )
    top.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    top.add_argument(
        "--version", action="version", version=f"caretway {__version__}", help="Print the version and exit."
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for command in _COMMANDS:
        own = commands.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=command.EXAMPLES,
            formatter_class=HelpFormatter,
            usage=f"caretway {command.NAME} [flags]",
            allow_abbrev=False,
            add_help=False,
        )
        own.add_argument("-h", "--help", action="help", help="Show this help and exit.")
        command.add_flags(own)
        own.set_defaults(run=command.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if "run" not in arguments:
        top.print_help()
        return 0
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
        return int(code)
    except ConfigError as problem:
        remark([str(problem)])
        return 2
    except GatewayError as problem:
        remark([str(problem)])
        return 1
    except CommandFailed as problem:
        remark([str(problem)])
        return problem.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (`caretway models | head`) has seen enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
