"""What was used and what it cost: rows of responses and runs in SQLite, questions about them, prices."""
