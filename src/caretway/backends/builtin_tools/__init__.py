"""Cursor's built-in tools: redirected to the client's own tools, run in the gateway's workspace, or refused."""
