"""The cli backend's own decisions, without a process."""
