"""Programs that stand in for Cursor's own, for tests and for trying things out. The gateway never imports this room."""
