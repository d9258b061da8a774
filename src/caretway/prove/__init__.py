"""`caretway prove`: which assumptions about Cursor's service hold for one account, and a receipt of it."""
