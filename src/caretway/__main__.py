"""`python -m caretway` is the `caretway` command."""

import sys

from .cli.main import main

sys.exit(main())
