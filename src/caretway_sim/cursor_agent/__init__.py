"""A stand-in for Cursor's `cursor-agent`: `python -m caretway_sim.cursor_agent`. See README.md in this folder.

Imports nothing: the program is started for every prompt, and imports take most of its time.
"""
