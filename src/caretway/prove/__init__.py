"""`caretway prove`: which of our beliefs about Cursor's service hold for one account, and a receipt of it."""
