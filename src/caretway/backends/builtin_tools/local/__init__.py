"""Cursor's built-in tools, run in the gateway inside one workspace, for requests without tools.

This package imports nothing, so that the search worker, a separate process, starts in a few milliseconds.
"""
