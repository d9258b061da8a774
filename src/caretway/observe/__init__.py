"""Logs, metrics and recordings of the gateway's work. They contain no prompt, no answer and no secret."""
