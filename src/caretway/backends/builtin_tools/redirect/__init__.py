"""Redirects Cursor's built-in tools to the client's own: which tool can run an exec, with which arguments, and how its
result becomes the exec's typed answer.

`roles` knows what tools are called, `exec_intent` what an exec asks for, `by_shell` how a shell does it, `fitting` how
arguments fit a JSON schema, `outcome` and `shell_text` what a result says, `answers` the typed results. Nothing here
runs a tool, keeps a state or knows about sessions.
"""

from .redirector import Redirector

__all__ = ["Redirector"]
