"""`python -m caretway.testing.cursor_agent`: the stand-in as a program."""

import sys

from .program import main

sys.exit(main())
