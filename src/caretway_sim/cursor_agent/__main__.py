"""`python -m caretway_sim.cursor_agent`: starts the stand-in for cursor-agent as a program."""

import sys

from .program import main

sys.exit(main())
