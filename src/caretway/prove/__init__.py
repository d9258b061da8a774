"""`caretway prove`: tests which assumptions about Cursor's service hold for one account, and writes the result to a
file, the receipt."""
