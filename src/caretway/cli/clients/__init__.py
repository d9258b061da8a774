"""The clients of the gateway: one table, their configurations, and edits of their files. Pure."""
