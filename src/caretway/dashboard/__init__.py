"""The page: what the gateway knows of itself, for a browser and `caretway top`; snapshots, changes, a few switches."""
