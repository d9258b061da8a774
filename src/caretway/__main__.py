"""The `caretway` command, also as `python -m caretway`. Ctrl-C ends it quietly while it is still being loaded, too."""

import sys


def main() -> int:
    try:
        from .cli.main import main as command

        return command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
