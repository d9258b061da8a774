"""Tools and thinking for backends that take and give only text: instructions in the prompt, a parser for the answer.

Knows `core` and no backend. prompt.py writes the prompt, parser.py reads the answer.
"""
