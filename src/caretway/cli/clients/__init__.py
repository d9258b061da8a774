"""The programs that people use the gateway with: one table, their configurations, and edits of their files. Pure."""
