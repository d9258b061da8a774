"""Cursor's built-in tools, run in the gateway: inside one workspace, for requests without tools of their own.

Nothing is imported here: the search worker is a process of its own and should start in a few milliseconds.
"""
