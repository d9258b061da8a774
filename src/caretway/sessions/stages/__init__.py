"""Event filters between a turn and its client. Each is a pure `Stage`: it is fed events and returns events."""
