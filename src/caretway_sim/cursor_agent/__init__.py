"""A stand-in for Cursor's `cursor-agent`: `python -m caretway_sim.cursor_agent`. See README.md in this folder.

Nothing is imported here: the program is started for every prompt, and its imports are most of its time.
"""
