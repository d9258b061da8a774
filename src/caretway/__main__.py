"""The `caretway` command, also as `python -m caretway`. Ctrl-C ends it quietly even while it is loading."""

import gc
import sys

LOADING = 100_000
"""The collection threshold while loading: imports make many permanent objects and few cycles. `serve` sets its own."""


def main(platform: str = sys.platform) -> int:
    if platform == "win32":
        print("caretway: Windows is not supported; run it in WSL 2", file=sys.stderr)  # noqa: T201 - no logging before the commands are imported
        return 1
    gc.set_threshold(LOADING)
    try:
        from .cli.main import main as command

        return command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
