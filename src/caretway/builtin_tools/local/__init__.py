"""Cursor's built-in tools, run here: inside one workspace, for requests that bring no tools of their own.

Nothing is imported at this level: the search worker is a process of its own and should start in a few milliseconds.
"""
