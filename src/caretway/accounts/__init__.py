"""Credentials: the source, storage and renewal of bearer tokens.

Only the user's own account is used: accounts are neither pooled nor rotated. Callers pass HTTP as a `Call`; this room
opens no socket and reads no environment variable.
"""
