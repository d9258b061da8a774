"""Credentials: where a bearer token comes from and how it stays valid."""
