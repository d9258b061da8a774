"""Cursor's built-in tools: redirected to the client's own tools, run here inside a workspace, or refused."""
