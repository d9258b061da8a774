"""Cursor through its official program, `cursor-agent`: one process per turn (print), or warm processes (ACP)."""
