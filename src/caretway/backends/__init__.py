"""Ways to reach Cursor, one folder each. Every backend passes tests/contract/test_backend.py."""
