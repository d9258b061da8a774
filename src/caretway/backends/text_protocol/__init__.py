"""Tools and thinking for text-only backends: instructions in the prompt, a parser for the answer.

Knows `core` and no backend. `prompt.py` writes the prompt, `parser.py` reads the answer.
"""
