"""Tools and thinking over an upstream that only speaks text: instructions in front of a backend, a parser behind it.

Knows `core` and no backend. What the model is told is in prompt.py, what is made of its answer in parser.py.
"""
