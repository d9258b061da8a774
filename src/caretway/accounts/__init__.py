"""Credentials: where a bearer token comes from, how it is stored, and how it stays valid.

The user's own account only: nothing is pooled and nothing is rotated. HTTP is handed in as a `Call`; this room opens no
socket and reads no environment variable.
"""
