"""Shared by all tests. Unit tests may not open sockets: what needs one belongs in tests/contract."""
