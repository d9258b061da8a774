"""Logs, metrics and recordings of the gateway's work, without prompts, answers or secrets."""
