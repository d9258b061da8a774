"""Credentials: where a bearer token comes from, how it is kept, and how it stays valid.

The user's own account only: nothing is pooled and nothing is rotated. HTTP comes in as a `Call`; the room opens no
socket and reads no environment.
"""
