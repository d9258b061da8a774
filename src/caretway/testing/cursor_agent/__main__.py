"""`python -m caretway.testing.cursor_agent`: starts the stand-in for cursor-agent as a program."""

import sys

from .program import main

sys.exit(main())
